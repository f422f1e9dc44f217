"""The overview of a new model: true to its text and its figures, and commands that run as they are printed."""

import json
import shlex
from itertools import groupby, pairwise
from math import log2
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import prepared, recipe

from bertsmith.data.shards.shards import Shards
from bertsmith.insight import overview as page
from bertsmith.insight.model_card import USES, Use
from bertsmith.insight.overview import Overview
from bertsmith.objectives import bilm, causal
from bertsmith.objectives.masked import MaskedLM
from bertsmith.runs import build, more_time, verdict, yardsticks
from bertsmith.runs.next_commands import next_commands
from bertsmith.runs.overview import Trained, overview
from bertsmith.runs.verdict import Level

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("text"))


def trained(data: Path, out: Path, metrics: dict[str, float], *changes: str, **given: object) -> Trained:
    made = recipe(data, out, *changes)
    tokenizer, train, valid = build.load_data(made)
    plain = yardsticks.Yardsticks(3.0, 0.04, 0.12, 0.8)
    return Trained(
        recipe=made,
        objective=build.objective(made, tokenizer),
        tokenizer=tokenizer,
        train=train,
        valid=valid,
        metrics=metrics,
        yardsticks=plain,
        level=verdict.level(metrics, plain.unigram_loss),
        epochs=2.0,
        **given,  # type: ignore[arg-type]
    )


# ----------------------------------------------------------------------------------------------------- the sentences


def test_a_masked_model_is_described_by_its_text_and_its_figures(data: Path, tmp_path: Path) -> None:
    made = overview(trained(data, tmp_path / "mine", {"masked_loss": 0.9, "masked_accuracy": 0.31}))
    shards = [Shards(data / name) for name in ("train", "valid")]
    words, held_out = (f"{one.words:,}" for one in shards)
    assert made.read.startswith(f"{words} words of English in 1 file, seen 2.0 times; {held_out} others were held out")
    (guessed,) = made.guesses
    assert guessed.startswith("Of 100 hidden words and parts of words it gets 31 right; guessing always the commonest")
    assert guessed.endswith("the commonest one gets 4, what most often follows the one before 12.")
    assert [round(100 * share) for _, share in made.accuracies] == [4, 12, 31]
    assert made.good_for[0].startswith("Good enough as a start for fine-tuning on texts of this kind")
    assert any("Texts of more than 32 tokens, about" in line for line in made.limits)
    assert "Other languages: it has read English only." in made.limits
    assert any("capitals and accents" in line for line in made.limits)


def test_positions_that_training_never_reached_are_named(data: Path, tmp_path: Path) -> None:
    metrics = {"masked_loss": 0.9, "masked_accuracy": 0.31}
    made = overview(trained(data, tmp_path / "mine", metrics, "model.max_length=64"))
    (line,) = [line for line in made.limits if line.startswith("Texts of more than 32 tokens, about")]
    assert line.endswith(": it was trained on none, though it takes up to 64.")


def test_a_discriminator_is_judged_by_what_it_finds(data: Path, tmp_path: Path) -> None:
    metrics = {"masked_loss": 0.9, "masked_accuracy": 0.31, "replaced_found": 0.42}
    changes = ("objective={kind='replaced_tokens'}", "objective.generator_size=0.5")
    made = overview(trained(data, tmp_path / "mine", metrics, *changes))
    assert made.guesses[0] == "Of 100 tokens that its generator has replaced it finds 42."
    assert "its generator gets 31 right" in made.guesses[1]
    assert made.accuracies[-1] == ("its generator", 0.31)
    assert made.commands[1][1].startswith(f"bertsmith fill {tmp_path / 'mine' / 'generator'} ")
    assert verdict.level(metrics | {"replaced_found": 0.02}, 3.0) == Level.LITTLE


def test_cleaned_text_is_said_to_be_cleaned_and_its_files_are_not_counted(data: Path, tmp_path: Path) -> None:
    (tmp_path / "mine" / "cleaned").mkdir(parents=True)
    made = overview(trained(data, tmp_path / "mine", {"masked_loss": 0.9, "masked_accuracy": 0.31}))
    assert " words of English after cleaning, seen 2.0 times; " in made.read


def test_a_continued_model_is_compared_with_the_one_before_and_no_language_is_denied(
    data: Path, tmp_path: Path
) -> None:
    one = trained(data, tmp_path / "mine", {"masked_loss": 0.9, "masked_accuracy": 0.31}, before=0.25, partial=True)
    made = overview(one)
    assert made.guesses[0].endswith("the model that was continued 25.")
    assert [name for name, _ in made.accuracies][-2:] == ["the model that was continued", "this model"]
    assert made.read.endswith("It is the beginning of your text, for which alone there was time.")


@pytest.mark.parametrize(
    ("loss", "level", "words"),
    [
        (float("nan"), Level.NOTHING, "Not yet useful"),
        (6.99, Level.NOTHING, "Not yet useful"),
        (6.8, Level.LITTLE, "Not yet useful"),
        (5.5, Level.WEAK, "A weak start for"),
        (4.5, Level.FAIR, "Good enough as a start for"),
        (3.0, Level.GOOD, "A good start for"),
    ],
)
def test_what_a_model_is_for_follows_from_what_it_has_learnt(
    loss: float, level: Level, words: str, data: Path, tmp_path: Path
) -> None:
    metrics = {"masked_loss": loss, "masked_accuracy": 0.3}
    assert verdict.level(metrics, 7.0) == level
    made = trained(data, tmp_path, {"masked_loss": loss - 4.0, "masked_accuracy": 0.3})
    assert overview(made).good_for[0].startswith(words)


# ------------------------------------------------------------------------------------------------------ the commands


@pytest.mark.parametrize("use", USES)
def test_commands_have_the_paths_of_the_run_and_survive_a_shell(use: Use) -> None:
    evil = ["the $HOME [MASK]", 'a "quoted" [MASK]', "`rm` [MASK]"]
    for out in (Path("runs/mine"), Path("my runs/it's")):
        for examples, text in ((evil, None), ([*evil, "the [MASK] sees"], "the [MASK] sees")):
            made = next_commands(out, use, examples)
            assert 2 <= len(made) <= 3
            for _, line in made:
                words = shlex.split(line)
                assert words[0] in ("bertsmith", "python")
                assert any(str(out) in word for word in words[1:])
                if words[0] == "python":
                    compile(words[2], "command", "exec")
            assert text is None or use in ("features", "masked_autoencoder") or any(text in line for _, line in made)
            assert not any("$HOME" in line or "`" in line for _, line in made)


def test_the_example_of_the_commands_is_plain_words_not_the_shortest_text() -> None:
    examples = ["1 eV is [MASK] x 10 -19 J.", "the ship left the [MASK] before the storm ."]
    fill = dict(next_commands(Path("runs/mine"), "fill_mask", examples))["fill masks"]
    assert fill == f'bertsmith fill runs/mine/model "{examples[1]}"'


def test_the_overview_is_escaped_on_the_page_and_has_a_line_for_each_command() -> None:
    made = Overview(read="<b>x</b>", guesses=["a"], accuracies=[("<i>", 0.2)], commands=[("do", "cat '<x>'")])
    html = page.html(made)
    assert "<b>" not in html
    assert "<i>" not in html
    assert "cat &#39;&lt;x&gt;&#39;" in html
    assert list(made.lines()) == [
        "What it has read",
        "  <b>x</b>",
        "How well it guesses",
        "  a",
        "What to do next",
        "  do  cat '<x>'",
    ]


# ---------------------------------------------------------------------------------------------------- the yardsticks


@pytest.mark.parametrize("kind", ["masked", "causal", "bilm"])
def test_bigrams_are_counted_on_the_training_text_and_seen_as_the_model_sees_them(
    kind: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = recipe(data, tmp_path, "objective.pairs=none")
    tokenizer, train, valid = build.load_data(made)
    objective = build.objective(made, tokenizer)
    if kind != "masked":
        collate = {"causal": causal, "bilm": bilm}[kind].collate
        monkeypatch.setattr(MaskedLM, "validation_collator", lambda self, tokenizer: collate)
    batches = build.validation_batches(made, objective, tokenizer, valid, torch.device("cpu"))
    ids = train.gather(np.array([0]), np.array([train.tokens])).tolist()
    followers: dict[int, dict[int, int]] = {}
    for first, second in pairwise(ids):
        followers.setdefault(first, {}).setdefault(second, 0)
        followers[first][second] += 1
    commonest = int(np.argmax(train.frequencies()))
    right, best, total = 0, 0, 0
    for batch in batches:
        for position, target in zip(batch.target_positions.tolist(), batch.targets.tolist(), strict=True):
            if target >= 0:
                before = int(batch.tokens.ids[position - (kind != "causal")])
                counts = followers.get(before, {commonest: 1})
                right += counts.get(target, 0) == max(counts.values())
                best, total = best + (target == commonest), total + 1
    found = yardsticks.measure(train.frequencies(), train, batches, tokenizer)
    assert found.unigram_accuracy == pytest.approx(best / total)
    assert found.bigram_accuracy == pytest.approx(right / total, abs=0.02)  # where two successors are equally frequent
    assert found.bigram_accuracy > found.unigram_accuracy


# --------------------------------------------------------------------------------------------------- twice the time


def test_the_gain_of_twice_the_time_is_that_of_the_measured_runs() -> None:
    kept = json.loads((ROOT / "bench" / "results" / "choose-cpu.json").read_text())
    # By the newest recipe. A broader text has a larger vocabulary, which a short run learns more slowly.
    cells = [one for one in kept["cells"] if one["like"] == "smith" and one["text"] == "small"]
    cells = [one for one in cells if one["commit"] == kept["commit"]]

    def run(cell: dict[str, str]) -> tuple[str, str]:
        return cell["size"], cell["variant"]

    by_gain: dict[float, list[float]] = {}
    for _, found in groupby(sorted(cells, key=run), key=run):
        rows = sorted(found, key=lambda one: one["tokens"])
        if len(rows) > 1:
            first, last = rows[0], rows[-1]
            doublings = log2(last["tokens"] / first["tokens"])
            expected = more_time.gain(first["tokens"])
            assert expected is not None
            by_gain.setdefault(expected, []).append((first["masked_loss"] - last["masked_loss"]) / doublings)
            per_nat = (last["masked_accuracy"] - first["masked_accuracy"]) / (
                first["masked_loss"] - last["masked_loss"]
            )
            assert 100 * per_nat == pytest.approx(more_time.CORRECT_PER_NAT, abs=4)
    assert len(by_gain) == 2
    for expected, measured in by_gain.items():
        assert expected == pytest.approx(np.mean(measured), abs=0.02)
        assert measured == pytest.approx([expected] * len(measured), abs=0.1)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("smith", "tiny", "tiny", 3e6, 4.0), "text: about 4 more of 100 hidden words right, 0.4 nats."),
        (("smith", "tiny", "mini", 8e6, 4.0), "It would be smith-mini, 4 layers of width 256 then."),
        (("smith", "tiny", "tiny", 1e5, 1.0), "Much, probably: a run of so few tokens has hardly begun to learn."),
        (("smith", "tiny", "mini", 8e6, 20.0), "seen 20 times as it is. More text would bring more."),
        (("bert", "tiny", "mini", 8e6, 4.0), "It would be bert-mini, 4 layers of width 256 then."),
        (("bert", "tiny", "tiny", 8e6, 4.0), ""),
    ],
)  # fmt: skip
def test_twice_the_time_is_an_estimate_and_never_of_a_text_that_is_worn_out(
    arguments: tuple[str, str, str, float, float], line: str
) -> None:
    said = more_time.twice_the_time(*arguments)
    assert said.endswith(line)
    assert bool(said) == bool(line)
