"""`make`: the wall-clock budget, the choices and their reasons, resuming, and the verdict."""

import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import fail_at, losses, prepared, recipe, write_text

from bertsmith.commands import make, prepare, pretrain
from bertsmith.data.batch import Batch
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.shards.prepare import prepare as tokenise
from bertsmith.data.shards.shards import Shards
from bertsmith.errors import FolderError, RecipeError, RunError
from bertsmith.inference.cloze import cloze_sentences
from bertsmith.models.hf import folder as folders
from bertsmith.objectives.base import Term
from bertsmith.objectives.masked import MaskedLM
from bertsmith.recipe import Recipe
from bertsmith.runs import autoconfig, build, summary
from bertsmith.runs import verdict as verdicts
from bertsmith.runs.summary import Choices
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train
from bertsmith.train import checkpoint, log
from bertsmith.train import evaluate as evaluation
from bertsmith.train.clock import Clock, Extent, WallBudget
from bertsmith.train.evaluate import Validation

pytestmark = pytest.mark.slow("makes models")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("tiny"))


def timed(recipe: Recipe, budget: str) -> Recipe:
    return replace(recipe, train=replace(recipe.train, steps=None, budget=budget))


# ------------------------------------------------------------------------------------------------------------ the time


def test_a_wall_clock_budget_ends_a_run_whatever_came_before(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    clock = Clock(Extent(budget=1e9), wall=WallBudget(started=90.0, budget=60.0, reserve=10.0))
    now[0] = 120.0  # preparing took thirty seconds
    clock.start()
    assert clock.progress(0, 0.0) == 0.0
    now[0] = 130.0
    assert clock.progress(0, 0.0) == 0.5  # ten of twenty seconds; ten others are reserved for the end
    now[0] = 139.0
    assert clock.progress(0, 0.0) == pytest.approx(0.95)
    clock.reserve = 0.0
    assert clock.progress(0, 0.0) == pytest.approx(0.95)  # a schedule never runs backwards
    now[0] = 150.0
    assert clock.progress(0, 0.0) == 1.0
    assert (clock.training_seconds, clock.total_seconds) == (30.0, 60.0)


def test_a_resumed_run_has_the_rest_of_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    clock = Clock(Extent(budget=1e9), wall=WallBudget(started=100.0, budget=60.0))
    clock.resume(20.0, {"budget": 60.0, "total_seconds": 40.0, "finished": False})
    assert clock.progress(0, 0.0) == 0.5
    now[0] = 120.0
    assert clock.progress(0, 0.0) == 1.0


def test_evaluations_take_a_small_share_of_a_budget(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes a tenth of the time: of twelve evaluations only the first and the last are done."""
    real = evaluation.evaluate

    def slow(*arguments: Any) -> dict[str, float]:
        time.sleep(0.2)
        return real(*arguments)

    monkeypatch.setattr(evaluation, "evaluate", slow)
    pretrain.pretrain(timed(recipe(data, tmp_path / "run", "train.evaluations=10"), "2s"))
    records = log.read(tmp_path / "run" / log.NAME)
    assert [entry["step"] > 0 for entry in records if entry["kind"] == "validation"] == [False, True]


def test_slow_validation_takes_fewer_batches_and_always_the_same(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = recipe(data, tmp_path)
    tokenizer, _, valid = build.load_data(built)
    objective, forward, seen = build.objective(built, tokenizer).eval(), MaskedLM.forward, list[Batch]()

    def slow(self: MaskedLM, batch: Batch) -> dict[str, Term]:
        seen.append(batch)
        time.sleep(0.02)
        return forward(self, batch)

    monkeypatch.setattr(MaskedLM, "forward", slow)
    batches = build.validation_batches(built, objective, tokenizer, valid, torch.device("cpu")) * 100
    validation = Validation(objective, batches, 4.0, seconds=0.2)
    with torch.inference_mode():
        validation()
    assert validation.count is not None
    assert 4 <= validation.count <= 10
    assert len(seen) == 3 + validation.count
    seen.clear()
    with torch.inference_mode():
        validation()
    assert list(map(id, seen)) == list(map(id, batches[: validation.count]))


def test_a_short_run_by_steps_is_validated_on_less_text(data: Path, tmp_path: Path) -> None:
    few = build._max_validation_batches(recipe(data, tmp_path, "train.steps=100"), None)
    many = build._max_validation_batches(recipe(data, tmp_path, "train.steps=1000000"), None)
    assert few == build.MIN_VALIDATION_TOKENS // 512
    assert many > 10_000
    assert build._max_validation_batches(timed(recipe(data, tmp_path), "9s"), None) > many


# -------------------------------------------------------------------------------------------------------------- the run


def test_make_prints_reasons_and_a_verdict_and_resumes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a simulated clock, so that a busy machine takes steps, too."""
    text, out, moved = write_text(tmp_path / "text.txt", documents=300), tmp_path / "mine", [0.0]

    def left(wall: WallBudget, spent: float) -> float:
        moved[0] += 90
        return wall.budget - moved[0]

    monkeypatch.setattr(WallBudget, "remaining", left)
    text.write_text(text.read_text().replace("the", "der").replace("in", "und").replace("sees", "hört nicht"))
    make.make([str(text)], out, budget="10m")
    said = capsys.readouterr().out
    assert "why: lowercased, accents kept: the text looks German" in said
    assert "not 8,192: the text has no others that occur at least twice" in said
    assert said.count("  correct: ") == pretrain.MAX_EXAMPLES_SHOWN
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Why these settings" in page
    assert "accents kept: the text looks German" in page
    verdict = next(line for line in said.splitlines() if line.startswith("The model has "))
    assert verdict in (out / "model" / "README.md").read_text(encoding="utf-8")
    assert re.search(r"What it has read\n  [\d,]+ words of German in 1 file, (seen|of which it has seen) ", said)
    assert "\n  Other languages: it has read German only.\n" in said
    assert "\n  Texts in which capitals matter: it does not see them.\n" in said
    assert "\nwith twice the time: " in said
    last = said.rstrip().splitlines()[-1]
    assert last.startswith("  use it in transformers       python -c 'from transformers import pipeline; ")
    assert f"bertsmith finetune {out / 'model'} labels.csv --out {out}-tuned" in page
    settings = json.loads((out / "model" / "tokenizer_config.json").read_text())
    assert (settings["do_lower_case"], settings["strip_accents"]) == (True, False)

    steps = losses(out)[-1][0]
    moved[0] = 0.0
    make.make([str(text)], out, budget="10m")
    assert (
        "this run is finished, its budget of 10 min 00 s is spent. A longer --budget continues it"
        in capsys.readouterr().out
    )
    assert losses(out)[-1][0] == steps
    moved[0] = 500.0
    make.make([str(text)], out, budget="12m")
    said = capsys.readouterr().out
    assert "this run was finished, and trains for another" in said
    assert "twice the time" not in said  # of the run as it was chosen, which is over
    assert losses(out)[-1][0] > steps
    with pytest.raises(
        RecipeError, match=r"its tokenizer was trained with --lowercase, and not --cased. Choose another"
    ):
        make.make([str(text)], out, budget="10m", lowercase=False)
    with pytest.raises(RecipeError, match=r"trained with --keep-accents, and not --strip-accents"):
        make.make([str(text)], out, budget="10m", strip_accents=True)
    with pytest.raises(
        RecipeError, match=r"mine: its run was begun with --seed 0, and not 2\. Leave the option out to"
    ):
        make.make([str(text)], out, budget="10m", seed=2)
    moved[0] = 0.0
    make.make([str(text)], out, budget="10m", seed=0)  # the same seed is accepted


def test_a_run_that_failed_before_its_first_step_does_not_block_the_corrected_one(data: Path, tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="there is no such folder"):
        pretrain.pretrain(recipe(tmp_path / "nowhere", tmp_path / "run", "train.steps=2"))
    pretrain.pretrain(recipe(data, tmp_path / "run", "train.steps=2", "optimizer.learning_rate=0.01"))
    with pytest.raises(RunError, match="was begun with another recipe"):
        pretrain.pretrain(recipe(data, tmp_path / "run", "train.steps=2", "optimizer.learning_rate=0.02"))


@pytest.mark.parametrize("damage", [b"{", b'{"examples": [[1, 2, 3]]}'])
def test_damaged_examples_do_not_block_a_resumed_run(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: bytes
) -> None:
    fail_at(1, recipe(data, tmp_path / "run", "train.steps=2", "train.checkpoints=2"))
    path = tmp_path / "run" / "examples.json"
    before = path.read_bytes()
    path.write_bytes(damage)
    pretrain.pretrain(recipe(data, tmp_path / "run", "train.steps=2", "train.checkpoints=2"))
    assert "examples.json: damaged; the examples of the report are made again" in capsys.readouterr().out
    assert path.read_bytes() == before


def test_a_damaged_log_is_reported_when_a_run_is_resumed(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_at(3, recipe(data, tmp_path / "run", "train.steps=4", "train.checkpoints=4"))
    path = tmp_path / "run" / log.NAME
    path.write_bytes(path.read_bytes().replace(b'"step": 2', b'"step": \x00'))
    pretrain.pretrain(recipe(data, tmp_path / "run", "train.steps=4", "train.checkpoints=4"))
    assert "the records of 1 of 3 steps are lost. Only the curves lack them" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------------------- the text


def test_a_part_of_a_text_is_read_if_there_is_no_time_for_all(tmp_path: Path) -> None:
    corpus = Corpus([str(write_text(tmp_path / "text.txt"))], layout="lines")
    whole = [document.sentences for document in corpus.documents()]
    corpus.max_characters = sum(map(len, whole[0])) + 1
    assert [document.sentences for document in corpus.documents()] == whole[:2]
    pieces = train(corpus.lines(), TokenizerConfig(vocabulary=100, min_frequency=1))
    tokenise(corpus, pieces, tmp_path / "data", validation_share=0.1, workers=0)
    corpus.max_characters = None
    with pytest.raises(FolderError, match="was prepared with"):
        tokenise(corpus, pieces, tmp_path / "data", validation_share=0.1, workers=0)


def test_make_reports_that_it_reads_a_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make, "PREPARE_SHARE", 1e-9)
    corpus = Corpus([str(write_text(tmp_path / "text.txt"))], layout="lines")
    _, made = make._train_tokenizer(corpus, TokenizerConfig(), tmp_path / "out", 60.0)
    assert made.max_characters is not None
    fact = "of the text: in 1 min 00 s there is no time to read all of it. A longer --budget, with another --out"
    assert fact in capsys.readouterr().out
    summary.save_choices(tmp_path / "out", made)
    assert summary.load_choices(tmp_path / "out") == Choices(made.tokenizer, [], made.max_characters)
    (tmp_path / "out" / summary.CHOICES).write_text('{"tokenizer": 7')
    assert summary.load_choices(tmp_path / "out") == Choices()


def test_the_vocabulary_size_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = write_text(tmp_path / "text.txt")
    prepare.tokenizer([str(text)], tmp_path / "words", TokenizerConfig(vocabulary=5_000))
    said = capsys.readouterr().out
    assert "lowercased, accents stripped: the text looks English" in said
    made = Tokenizer.load(tmp_path / "words").vocabulary
    assert f"{made:,} tokens, not 5,000: the text has no others that occur at least twice" in said


def test_given_case_and_accents_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = TokenizerConfig(vocabulary=120, lowercase=False, strip_accents=False)
    prepare.tokenizer([str(write_text(tmp_path / "text.txt"))], tmp_path / "words", settings)
    made = Tokenizer.load(tmp_path / "words")
    assert (made.lowercase, made.strips_accents) == (False, False)
    assert "the text looks" not in capsys.readouterr().out


def test_scripts_without_spaces_are_counted_in_characters_and_have_cloze_examples(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"我们今天去北京看{one}朋友，天气很好，大家都很高兴。" for one in "一二三四五六七八九十"]
    (tmp_path / "text.txt").write_text("\n\n".join(lines * 3) + "\n\n" + "\n".join(lines), encoding="utf-8")
    prepare.tokenizer([str(tmp_path / "text.txt")], tmp_path / "words", TokenizerConfig(vocabulary=200))
    made = Tokenizer.load(tmp_path / "words")
    corpus = Corpus([str(tmp_path / "text.txt")])
    prepare.prepare_shards(corpus, made, tmp_path / "data", 0.3, 0)
    said = capsys.readouterr().out
    assert "tokens per character" in said
    assert " characters, " in said
    assert " words, " not in said
    assert corpus.estimated_words > 900
    shards = Shards(tmp_path / "data" / "train")
    assert shards.words == shards.tokens
    assert summary._units(shards, made) == "characters"
    found = cloze_sentences(shards, made, 4)
    assert len(found) == 4
    assert all(len(cloze.truth) == 1 for cloze in found)
    assert autoconfig.vocabulary_size(900, "characters")[0] == 8_192
    assert autoconfig.vocabulary_size(5e6, "characters")[0] == autoconfig.vocabulary_size(2.5e6)[0] == 16_384


BELOW = "its validation loss is {} nats below that of predicting by word frequency"
ABOVE = "its validation loss is {} nats above that of predicting by word frequency"
MORE = "Give it more text or more time."


@pytest.mark.parametrize(
    ("loss", "verdict"),
    [
        (6.5, f"The model has not learnt yet: {ABOVE.format('0.50')}. {MORE}"),
        (5.99, f"The model has not learnt yet: it predicts no better than word frequency does. {MORE}"),
        (5.8, f"The model has begun to learn: {BELOW.format('0.20')}. {MORE}"),
        (3.0, f"The model has learnt: {BELOW.format('3.00')}, and it predicts 25% of masked words correctly."),
        (float("nan"), f"The model has not learnt yet: {ABOVE.format('nan')}. {MORE}"),
    ],
)
def test_the_verdict_says_whether_the_model_has_learnt(loss: float, verdict: str) -> None:
    assert verdicts.verdict({"masked_loss": loss, "masked_accuracy": 0.25}, 6.0, []) == verdict


def test_overfitting_is_part_of_the_verdict() -> None:
    records = [{"kind": "validation", "masked_loss": 2.5}, {"kind": "validation", "masked_loss": 3.0}]
    said = verdicts.verdict({"masked_loss": 3.0, "masked_accuracy": 0.25}, 6.0, records)
    assert said.endswith(
        " It overfits: its validation loss was lower before (2.50, now 3.00). Give it more text, or less time."
    )


def test_a_run_killed_before_its_first_checkpoint_starts_again(tmp_path: Path) -> None:
    said = make._resume_message(tmp_path / "recipe.toml", make._budget_before(tmp_path), 60.0)
    assert said.endswith("its run has no checkpoint yet, so it starts again with the whole budget")


def test_the_best_weights_are_kept_and_a_run_that_overfits_ends(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = iter([5.0, 4.0, 3.0, 3.5, 3.6, 3.7, 3.8])
    measure = Validation.__call__

    def worsening(self: Validation) -> dict[str, float]:
        return {**measure(self), "loss": next(seen)}

    monkeypatch.setattr(Validation, "__call__", worsening)
    changes = ("train.steps=30", "train.evaluations=10", "train.patience=3", "keep=best")
    figures = pretrain.pretrain(recipe(data, tmp_path / "run", *changes))
    assert (figures["step"], figures["loss"]) == (6, 3.0)
    assert "the weights of step 6 are kept: their validation loss is the lowest" in capsys.readouterr().out
    steps = [step for step, _ in losses(tmp_path / "run")]
    assert max(steps) == 15  # three evaluations later
    found = checkpoint.load_newest(tmp_path / "run" / "checkpoints")
    assert found is not None
    best = found[0].tensors["best_model"]
    written = folders.read(tmp_path / "run" / "model").state_dict
    assert torch.equal(written["trunk.embedding.weight"], best["trunk.embedding.weight"])
    assert not torch.equal(best["trunk.embedding.weight"], found[0].tensors["model"]["trunk.embedding.weight"])


def test_patience_without_keeping_the_best_is_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        recipe(data, tmp_path, "train.patience=3")
    assert str(caught.value).endswith("train.patience waits for a better validation loss. Set keep=best with it.")
