"""Shots: labels are scored exactly, draws are pure, and a model that has learnt to read its prompt is found out."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from bertsmith.cli import app
from bertsmith.data.batch import SelectedBatch, Tokens
from bertsmith.data.labelled.examples import Example
from bertsmith.data.labelled.glue import GLUE
from bertsmith.errors import FolderError, RecipeError, TextError
from bertsmith.inference import few_shot as module
from bertsmith.inference.few_shot import CONTENT_FREE, FewShotClassifier
from bertsmith.inference.likelihood import score
from bertsmith.inference.load import load
from bertsmith.inference.model import Model
from bertsmith.inference.prompt import GLUE_LABEL_WORDS, DemonstrationPool, Template, label_words
from bertsmith.models.family import BERT, GPT2
from bertsmith.models.hf import folder as folders
from bertsmith.models.transformer import Transformer
from bertsmith.nn.init import initialise
from bertsmith.objectives.causal import CausalLM
from bertsmith.objectives.masked import MaskedLM
from bertsmith.runs import suites
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train

pytestmark = pytest.mark.slow("trains the model that all tests ask")

SIZES = {"width": 32, "layers": 2, "heads": 2, "feed_forward": 64, "dropout": 0.0, "attention_dropout": 0.0}
PAIRS = [("the cat sees", "good"), ("a bird", "bad"), ("", "good"), ("the dog\nhas two lines", "not good at all")]
LABELS = {"good": "good", "bad": "bad", "not good at all": "not good at all", "not": "not"}
TONGUES = (  # two ways to answer the same: which is meant, only the prompt tells
    {"cat": "yes", "dog": "no", "one": "yes", "two": "no"},
    {"cat": "true", "dog": "false", "one": "true", "two": "false"},
)


def examples(pairs: Sequence[tuple[str, str]]) -> list[Example]:
    return [
        Example(location=f"here:{number}", texts=(text,), label=label) for number, (text, label) in enumerate(pairs)
    ]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    texts = [f"{text} => {label}\n" for text, label in PAIRS] + [" good bad not"]
    return train(texts * 3, TokenizerConfig(kind="bpe", vocabulary=290, min_frequency=1))


def stirred(tokenizer: Tokenizer, length: int = 128) -> CausalLM:
    """A network that says something different of everything."""
    made = CausalLM(
        Transformer(replace(GPT2, vocabulary=tokenizer.vocabulary, max_length=length, **SIZES)), CausalLM.Config()
    )
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in made.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.1) if weight.ndim == 1 else weight.normal_(std=0.3)
    return made.eval()


def shots(tokenizer: Tokenizer, length: int = 128) -> FewShotClassifier:
    return FewShotClassifier(stirred(tokenizer, length), tokenizer, LABELS, Template.of(None, 1))


# ---------------------------------------------------------------------------------------------------- scores


def test_a_label_scores_what_it_adds_to_the_likelihood_of_the_whole_text(tokenizer: Tokenizer) -> None:
    made = shots(tokenizer)
    shown = examples(PAIRS[:3])
    heard = made.predict([("a dog sees",), ("a  cat\n",)], [shown, shown[1:]])
    before = ["the cat sees => good\n", "a bird => bad\n", " => good\n"]
    for prompt, logs in zip(
        ["".join(before) + "a dog sees =>", "".join(before[1:]) + "a cat =>"], heard.log_likelihoods, strict=True
    ):
        wholes = [f"{prompt} {words}" for words in LABELS.values()]
        bare, *full = (one.log_likelihood for one in score(made.objective, tokenizer, [prompt, *wholes]))
        assert logs == pytest.approx([total - bare for total in full], rel=1e-4, abs=1e-4)
    assert heard.shots.tolist() == [3, 2]
    assert len(tokenizer.encode([" not good at all"])[0]) > 1  # such a label needs more than one piece


def test_a_prompt_is_read_once_for_all_labels_that_one_reading_can_tell() -> None:
    def asked(answers: list[tuple[int, ...]]) -> dict[tuple[int, ...], list[list[int]]]:
        return {way: found.T.tolist() for way, found in module._shared_prefixes(answers).items()}

    assert asked([(5,), (6,)]) == {(): [[0, 5, 0], [0, 6, 1]]}
    assert asked([(5,), (7, 8, 9), (7, 8), (7, 6)]) == {
        (7, 8): [[0, 7, 1], [1, 8, 1], [2, 9, 1], [0, 7, 2], [1, 8, 2], [0, 7, 3], [1, 6, 3], [0, 5, 0]]
    }
    assert asked([(1, 2), (3, 4)]).keys() == {(1,), (3,)}


@pytest.mark.parametrize("budget", [1, 40, 10_000])
def test_neighbours_and_the_size_of_a_pass_change_nothing(budget: int, tokenizer: Tokenizer) -> None:
    made = shots(tokenizer)
    made.objective.train()
    pool, texts = DemonstrationPool(examples(PAIRS)), [("a bird",), ("",), ("the dog sees the cat",), ("a bird",)]
    drawn = [pool.draw(number, 0, number) for number in range(4)]
    keys = [7, 8, 9, 10]
    crowd = made.predict(texts, drawn, order_keys=keys, calibrate=True, batch_tokens=budget)
    assert made.objective.training
    for number, text in enumerate(texts):
        alone = made.predict([text], [drawn[number]], order_keys=[keys[number]], calibrate=True)
        assert alone.log_likelihoods[0] == pytest.approx(crowd.log_likelihoods[number], rel=1e-4, abs=1e-4)
        assert alone.calibrated[0] == pytest.approx(crowd.calibrated[number], rel=1e-4, abs=1e-4)
    assert made.predict([], []).to_dicts() == []


def test_what_is_calibrated_is_told_less_what_is_said_of_a_text_that_says_nothing(tokenizer: Tokenizer) -> None:
    made, shown = shots(tokenizer), examples(PAIRS[:2])
    heard = made.predict([("a cat",)], [shown], calibrate=True)
    plain, free = (made.predict([(text,)], [shown]).log_likelihoods for text in ("a cat", CONTENT_FREE))
    assert heard.log_likelihoods == pytest.approx(plain, rel=1e-4, abs=1e-4)
    assert heard.calibrated == pytest.approx(plain - free, rel=1e-4, abs=1e-4)
    [said] = heard.to_dicts()
    assert math.fsum(said["probabilities"].values()) == pytest.approx(1)
    ratios = np.exp(heard.calibrated[0]) / np.exp(heard.calibrated[0]).sum()
    assert list(said["probabilities"].values()) == pytest.approx(ratios.tolist())
    assert said["label"] == max(said["probabilities"], key=lambda label: said["probabilities"][label])


# ---------------------------------------------------------------------------------------------------- prompts


def test_what_does_not_fit_is_left_out_from_the_end_and_counted(tokenizer: Tokenizer) -> None:
    shown = examples(PAIRS[:3])
    sizes = [len(ids) for ids in tokenizer.encode(["the cat sees => good\n", "a bird => bad\n"])]
    asks, longest = len(tokenizer.encode(["a dog =>"])[0]), len(tokenizer.encode([" not good at all"])[0])
    exact = sum(sizes) + asks + longest  # and a start, less the piece that is only guessed
    fits, short = shots(tokenizer, exact), shots(tokenizer, exact - 1)
    assert fits.predict([("a dog",)], [shown]).shots.tolist() == [2]
    heard = short.predict([("a dog",)], [shown])
    assert (heard.shots.tolist(), heard.truncated.tolist()) == ([1], [0])
    assert heard.log_likelihoods == pytest.approx(short.predict([("a dog",)], [shown[:1]]).log_likelihoods)
    long = Example(location="", texts=("a dog " * 99,), label="bad")
    for count, fewer in ((0, 0), (2, 1)):
        figures = short.evaluate({0: long}, DemonstrationPool(shown), count, 0)
        assert (figures["fewer_shots"], figures["truncated"]) == (fewer, 1)


def test_draws_are_balanced_nested_and_a_function_of_seed_and_number() -> None:
    rows = [(f"text {number}", label) for label, count in (("a", 40), ("b", 9), ("c", 1)) for number in range(count)]
    pool = DemonstrationPool(examples(rows))
    for number in range(20):
        eight = pool.draw(8, 3, number)
        assert pool.draw(8, 3, number) == eight
        assert pool.draw(5, 3, number) == eight[:5]
        assert len(set(eight)) == 8
        assert {example.label for example in eight[:3]} == {"a", "b", "c"}
        counts = Counter(example.label for example in eight)
        assert counts["c"] == 1
        assert abs(counts["a"] - counts["b"]) <= 1
    assert len({tuple(pool.draw(4, 0, number)) for number in range(20)}) > 15
    assert len({tuple(pool.draw(4, seed, 0)) for seed in range(20)}) > 15
    assert {pool.draw(1, 0, number)[0].label for number in range(20)} == {"a", "b", "c"}
    assert sorted(example.location for example in pool.draw(99, 0, 0)) == sorted(
        example.location for example in pool.examples
    )


def test_a_key_shuffles_the_examples_that_are_shown(tokenizer: Tokenizer) -> None:
    made, shown = shots(tokenizer), examples(PAIRS)
    found = {
        tuple(made.predict([("a cat",)], [shown], order_keys=[key]).log_likelihoods[0].round(3)) for key in range(12)
    }
    assert len(found) > 6


def test_templates_put_texts_before_labels_and_the_blank_with_the_label() -> None:
    pair = Template.of(None, 2)
    assert pair.demonstration(("one\ntwo", "{text}"), "yes") == "one two | {text} => yes\n"
    assert (pair.question(("a", "b")), pair.answer("yes")) == ("a | b =>", " yes")
    own = Template("Review: {text}\nIs it good?  {label}.\n\n")
    assert own.demonstration(("fine",), "yes") == "Review: fine\nIs it good?  yes.\n\n"
    for wrong in ("{text}", "{label} {text}", "{label}", "{text} {label} {second}", "{text} {label} {label}"):
        with pytest.raises(
            RecipeError, match=r"^template: .* has not its texts first and then one label\. Write it as in"
        ):
            Template(wrong)
    with pytest.raises(RecipeError, match=r"has a place for 2 and not for 1 texts\. Write \{text\} for one, "):
        pair.question(("alone",))


def test_every_class_of_glue_has_a_word_of_its_own() -> None:
    for task in GLUE.values():
        words = label_words(task.classes, {}, task.name)
        assert len(set(words.values())) == len(task.classes)
        assert not task.classes or task.name in GLUE_LABEL_WORDS
    assert label_words(("0", "1"), {"1": "fine"}, "SST-2") == {"0": "negative", "1": "fine"}
    assert label_words(("x", "y"), {}) == {"x": "x", "y": "y"}
    with pytest.raises(RecipeError, match=r"^label_words: there is no label 'positiv'\. Did you mean 'positive'\?$"):
        label_words(("negative", "positive"), {"positiv": "good"})


def test_labels_that_cannot_be_told_apart_are_refused_in_one_line(tokenizer: Tokenizer) -> None:
    made, form = stirred(tokenizer), Template.of(None, 1)
    with pytest.raises(TextError, match=r"^labels: there is no choice among 1\. Give at least two\.$"):
        FewShotClassifier(made, tokenizer, {"a": "a"}, form)
    with pytest.raises(TextError, match=r"^label 'b': reads the same as 'a'\. Give it another name\.$"):
        FewShotClassifier(made, tokenizer, {"a": "good", "b": "good"}, form)
    with pytest.raises(TextError, match=r"^label 'b': has no tokens to be scored by\. Give it a name in words\.$"):
        FewShotClassifier(made, tokenizer, {"a": "good", "b": ""}, Template("{text}{label}"))
    with pytest.raises(TextError, match=r"^labels: do not fit a model of 2 positions\. Give them shorter names\.$"):
        FewShotClassifier(stirred(tokenizer, 2), tokenizer, LABELS, form)
    with pytest.raises(TextError, match=r"^here:0: has the unknown label 'goood'\. Did you mean 'good'\?$"):
        shots(tokenizer).predict([("a",)], [examples([("a", "goood")])])


# --------------------------------------------------------------------------- a model that reads its prompt


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has seen texts in one of two tongues, each text in one alone."""
    words = sorted({word for tongue in TONGUES for both in tongue.items() for word in both})
    pieces = train([" ".join(words)] * 3 + ["negative positive"], TokenizerConfig(vocabulary=100, min_frequency=1))
    made = CausalLM(Transformer(replace(GPT2, vocabulary=pieces.vocabulary, max_length=32, **SIZES)), CausalLM.Config())
    initialise(made, 0)
    adam, dice = torch.optim.Adam(made.parameters(), betas=(0.9, 0.98)), np.random.default_rng(0)
    for step in range(100):
        adam.param_groups[0]["lr"] = 0.01 * min(1, step / 20) * (1 - step / 100)
        tongues = [TONGUES[number] for number in dice.integers(2, size=32)]
        texts = [
            " ".join(f"{word} {tongue[word]}" for word in dice.choice(list(tongue), dice.integers(1, 10)))
            for tongue in tongues
        ]
        rows = [[pieces.start_id, *ids] for ids in pieces.encode(texts)]
        tokens = Tokens.from_rows([row[:-1] for row in rows])
        targets = torch.tensor([piece for row in rows for piece in row[1:]])
        chosen = (tokens.positions % 2 == 1).nonzero()[:, 0]  # a word, which a label follows
        loss = made(SelectedBatch(tokens=tokens, target_positions=chosen, targets=targets[chosen]))["next_token"].total
        adam.zero_grad()
        (loss / len(chosen)).backward()
        adam.step()
    folder = tmp_path_factory.mktemp("reader") / "model"
    folders.write(folder, made.trunk.config, made.state_dict(), {"pad_token_id": pieces.padding_id})
    pieces.save(folder, max_length=32)
    return folder


def table(folder: Path, tongue: dict[str, str], count: int = 12) -> Path:
    """Train and dev files in one tongue."""
    folder.mkdir(parents=True)
    rows = [f"{word}\t{tongue[word]}" for word in list(tongue) * (count // 4)]
    for part in ("train", "dev"):
        (folder / f"{part}.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    return folder


@pytest.mark.exhaustive
def test_with_examples_a_model_finds_out_which_words_are_asked_for(reader: Path) -> None:
    model = load(reader)
    assert isinstance(model.objective, CausalLM)
    words = {label: label for tongue in TONGUES for label in tongue.values()}
    made = FewShotClassifier(model.objective, model.tokenizer, words, Template("{text} {label}\n"))
    found = []
    for count in (0, 1, 4):
        right = []
        for tongue in TONGUES:
            rows = examples(list(tongue.items()))
            right.append(made.evaluate(dict(enumerate(rows)), DemonstrationPool(rows), count, 0)["accuracy"])
        found.append(sum(right) / 2)
    assert found == [0.5, 1.0, 1.0]  # without examples it is right in one of the two, whatever it says


def test_a_model_in_a_persons_hands_classifies_by_examples(reader: Path) -> None:
    model = load(reader)
    labels = {"good": "yes", "bad": "no", "so": "true", "not so": "false"}
    shown = [("cat", "good"), ("two", "bad")]
    said = model.classify_few_shot(["dog", "one"], shown, labels, template="{text} {label}\n")
    assert [one["label"] for one in said] == ["bad", "good"]
    assert all(list(one["probabilities"]) == list(labels) for one in said)
    own = model.classify_few_shot(["dog", "one"], shown, template="{text} {label}\n", calibrate=True)
    assert all(list(one["probabilities"]) == ["good", "bad"] for one in own)
    assert model.classify_few_shot([], shown) == []
    pairs = model.classify_few_shot([("dog", "one")], [(("cat", "two"), "yes"), (("dog", "two"), "no")])
    assert list(pairs[0]["probabilities"]) == ["yes", "no"]
    with pytest.warns(UserWarning, match=r"^text 1: only \d+ of 40 examples fit before it$"):
        model.classify_few_shot(["dog"], shown * 20, template="{text} {label}\n")
    with pytest.warns(UserWarning, match=r"^text 1: \d+ of its tokens were not read$"):
        model.classify_few_shot(["dog " * 40], [], ["yes", "no"])
    with pytest.raises(TextError, match=r"^texts: is one text, not several\. Put it into a list\.$"):
        model.classify_few_shot("dog", shown)
    with pytest.raises(TextError, match=r"^labels: there is no choice among 0\."):
        model.classify_few_shot(["dog"], [])


def test_the_suite_leaves_a_table_and_a_curve_and_measures_nothing_twice(
    reader: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out = table(tmp_path / "one", TONGUES[0]), tmp_path / "out"
    asked: list[tuple[int, int]] = []
    measure = FewShotClassifier.evaluate

    def watched(
        self: FewShotClassifier, texts: dict[int, Example], pool: DemonstrationPool, count: int, seed: int, both: bool
    ) -> dict[str, float]:
        asked.append((count, seed))
        return measure(self, texts, pool, count, seed, both)

    monkeypatch.setattr(FewShotClassifier, "evaluate", watched)
    changes = ['template="{text} {label}\\n"', "calibrate=true", "shots=[0,2]"]
    results = suites.run_suite("few-shot", reader, data, out, seeds=2, limit=8, overrides=changes)
    assert asked == [(0, 0), (2, 0), (2, 1)]
    assert [row[:2] for row in results.rows] == [["one", "0"], ["one", "2"]]
    figures = results.figures["one"]
    mean = f"{50 * sum(run['accuracy'] for run in figures['runs'][1:]):.1f}"
    assert results.rows[1][2].startswith(f"{mean} ± ")
    assert "±" not in results.rows[0][2]  # no example, no chance
    assert (figures["chance"], figures["texts"]) == (0.5, 8)
    kept = json.loads((out / "few-shot.json").read_text())
    assert kept["rows"] == [list(row) for row in results.rows]
    assert kept["figures"]["one"]["words"] == {"no": "no", "yes": "yes"}
    page = (out / "few-shot.html").read_text()
    assert "<svg" in page
    assert "majority class" in page
    again = suites.run_suite("few-shot", reader, data, out, seeds=3, limit=8, overrides=changes)
    assert asked[3:] == [(2, 2)]
    assert again.figures["one"]["runs"][:3] == figures["runs"]
    suites.run_suite("few-shot", reader, data, out, seeds=1, limit=4, overrides=changes)
    assert asked[4:] == [(0, 0), (2, 0)]  # other texts, other figures


def test_the_command_asks_for_all_tasks_of_glue_that_have_classes(reader: Path, tmp_path: Path) -> None:
    table(tmp_path / "glue" / "SST-2", {"cat": "0", "dog": "1", "one": "0", "two": "1"})
    (tmp_path / "glue" / "STS-B").mkdir()
    for part in ("train", "dev"):
        (tmp_path / "glue" / "STS-B" / f"{part}.tsv").write_text("sentence1\tsentence2\tscore\ncat\tdog\t1.5\n")
    given = [
        "evaluate",
        str(reader),
        "--suite",
        "few-shot",
        "--data",
        str(tmp_path / "glue"),
        "--out",
        str(tmp_path / "out"),
    ]
    done = CliRunner().invoke(app, [*given, "--shots", "0,1", "--seeds", "1", "--limit", "4"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    kept = json.loads((tmp_path / "out" / "few-shot.json").read_text())
    assert [row[:2] for row in kept["rows"]] == [["SST-2", "0"], ["SST-2", "1"]]
    assert kept["figures"]["SST-2"]["words"] == {"0": "negative", "1": "positive"}
    assert kept["protocol"]["SST-2, label words"] == "negative, positive"
    with pytest.raises(
        TextError, match=r"STS-B: its labels are not classes\. Few-shot prompts predict one class of several\.$"
    ):
        suites.run_suite(
            "few-shot", reader, tmp_path / "glue" / "STS-B", tmp_path / "out", seeds=1, limit=4, overrides=[]
        )


def test_what_cannot_be_asked_is_told_in_one_line(reader: Path, tmp_path: Path) -> None:
    data, out = table(tmp_path / "one", TONGUES[0]), tmp_path / "out"

    def refused(*changes: str, place: Path = data, most: int | None = 4) -> str:
        with pytest.raises((RecipeError, TextError, FolderError)) as caught:
            suites.run_suite("few-shot", reader, place, out, seeds=1, limit=most, overrides=changes)
        return str(caught.value)

    assert refused("shots=[]") == "shots: [] are no numbers of examples. Write them as in --shots 0,1,2,4,8."
    assert refused("shots=[-1]").startswith("shots: [-1] are no numbers of examples.")
    assert refused("shots=[x]") == "evaluate shots: expected a list, got '[x]'."
    assert refused("label_words.yes=1") == "label_words.yes: 1 is no text. Put it into quotes."
    assert refused("label_words.ja=yes").startswith("label_words: there is no label 'ja'.")
    assert refused("temperature=1").startswith("evaluate: unknown key 'temperature'.")
    assert refused(most=0) == "--limit: 0 is too few. Give at least 1."
    (tmp_path / "bare.tsv").write_text("sentence\ncat\ndog\n")
    assert "has one column, and so no labels. Give it a file with a column of labels." in refused(
        place=tmp_path / "bare.tsv"
    )

    pieces = load(reader).tokenizer
    masked = MaskedLM(
        Transformer(replace(BERT, vocabulary=pieces.vocabulary, max_length=32, **SIZES)), MaskedLM.Config()
    )
    with pytest.raises(FolderError, match=r"^there: does not predict the next token\. Few-shot prompts need a causal"):
        Model(masked, pieces, "there").classify_few_shot(["dog"], [("cat", "yes")])
