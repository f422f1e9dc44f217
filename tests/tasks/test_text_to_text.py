"""Every task as text: what is read, what is to be written, what it costs, and how it is scored."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tasks.small import prose
from tasks.written import LENGTH, shape, task, tokenizer
from torch import Tensor

from bertsmith.data.labelled.examples import Answer, Example, Question
from bertsmith.data.rows import pack_rows
from bertsmith.errors import BertsmithError
from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf.layouts import layout_of
from bertsmith.tasks import TASKS
from bertsmith.tasks.base import Bucket, Item, predict
from bertsmith.tasks.label_words import GLUE_PROMPTS
from bertsmith.tasks.text_to_text import TextToText
from bertsmith.text.tokenizer import TokenizerConfig, train

CLASSES = ("bark", "purr")


def examples() -> list[Example]:
    """Single texts and pairs by turns, and texts of all lengths to be written about them."""
    texts, targets = prose(16, 3, 16), prose(8, 4, 6)
    return [
        Example(location=f"made:{number}", texts=tuple(texts[2 * number : 2 * number + 1 + number % 2]), label=target)
        for number, target in enumerate(targets)
    ]


def question(*answers: str, passage: str = "the old cat sees the green river", name: str = "1") -> Question:
    found = tuple(Answer(text=text, start=passage.index(text)) for text in answers)
    return Question(location="made", name=name, question="who sees ?", context=passage, answers=found)


def learnt(made: TextToText, items: Sequence[Item], bucket: Bucket) -> tuple[float, dict[str, Tensor]]:
    """The loss of a batch, divided as a trainer divides it, and its gradients."""
    made.zero_grad()
    batch = made.collate(items, bucket)
    loss = made(batch)["text"].total / batch.counts["text"]
    loss.backward()
    gradients = {name: one.grad.clone() for name, one in made.named_parameters() if one.grad is not None}
    return float(loss.detach()), gradients


def assert_same(one: tuple[float, dict[str, Tensor]], other: tuple[float, dict[str, Tensor]]) -> None:
    assert one[0] == pytest.approx(other[0], abs=2e-6)
    assert one[1].keys() == other[1].keys()
    for name, gradient in one[1].items():
        torch.testing.assert_close(gradient, other[1][name], rtol=1e-5, atol=2e-6, msg=name)


# ------------------------------------------------------------------------------------------------------- laws


@pytest.mark.slow
def test_other_texts_do_not_change_the_output() -> None:
    made = task(max_new_tokens=12)
    rows = [item.rows[0] for item in made.preprocess(examples(), tokenizer(), LENGTH)]
    assert len({len(row) for row in rows}) > 3
    crowd = made.outputs(pack_rows(rows))
    assert len({tuple(said.tolist()) for said in crowd}) > 3
    for row, said in zip(rows, crowd, strict=True):
        (alone,) = made.outputs(pack_rows([row]))
        assert torch.equal(alone, said)


@pytest.mark.slow
def test_predictions_come_in_the_order_of_the_examples_whatever_their_lengths() -> None:
    made, some = task(max_new_tokens=8), examples()
    together = predict(made, some, made.preprocess(some, tokenizer(), LENGTH), device="cpu")
    order = np.random.default_rng(0).permutation(len(some))
    for budget in (1, 70):
        turned = [some[number] for number in order]
        again = predict(made, turned, made.preprocess(turned, tokenizer(), LENGTH), device="cpu", budget=budget)
        assert again == [together[number] for number in order]
    assert predict(made, [], made.preprocess([], tokenizer(), LENGTH), device="cpu") == []


def test_the_generated_text_does_not_depend_on_the_training_precision() -> None:
    made = task(max_new_tokens=8)
    items = made.preprocess(examples(), tokenizer(), LENGTH)
    full = predict(made, examples(), items, device="cpu")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert predict(made, examples(), items, device="cpu") == full


@pytest.mark.parametrize("multiple", [16, 256])
def test_padding_missing_items_and_parts_change_neither_loss_nor_gradients(multiple: int) -> None:
    made = task()
    items = made.preprocess(examples(), tokenizer(), LENGTH)
    plain = learnt(made, items, Bucket(batch_size=8, max_length=LENGTH))
    assert plain[0] > 0.1
    for places in (8, 11):
        assert_same(
            learnt(made, items, Bucket(batch_size=places, max_length=LENGTH, pad_to_multiple_of=multiple)), plain
        )
    parts = [made.collate(items[a:b], Bucket(batch_size=8, max_length=LENGTH)) for a, b in ((0, 1), (1, 5), (5, 8))]
    with torch.no_grad():
        total = sum(float(made(part)["text"].total) for part in parts)
    assert total / sum(part.counts["text"] for part in parts) == pytest.approx(plain[0], rel=1e-5)


@pytest.mark.parametrize("multiple", [0, 64])
def test_examples_without_labels_change_nothing(multiple: int) -> None:
    made = task()
    nameless = made.preprocess([replace(example, label=None) for example in examples()], tokenizer(), LENGTH)
    known = made.preprocess(examples(), tokenizer(), LENGTH)
    plain = learnt(made, known, Bucket(batch_size=8, max_length=LENGTH))
    mixed = [item for both in zip(nameless, known, strict=True) for item in both]
    assert_same(learnt(made, mixed, Bucket(batch_size=17, max_length=LENGTH, pad_to_multiple_of=multiple)), plain)
    loss, gradients = learnt(made, nameless, Bucket(batch_size=9, max_length=LENGTH, pad_to_multiple_of=multiple))
    assert loss == 0
    assert all(not gradient.any() for gradient in gradients.values())  # nan would be some


def test_batches_come_in_few_shapes() -> None:
    made = task(max_new_tokens=8)
    items = made.preprocess(examples(), tokenizer(), LENGTH)
    bucket = Bucket(batch_size=6, max_length=LENGTH, pad_to_multiple_of=64)
    parts = [items[begin:end] for begin, end in ((0, 6), (1, 7), (0, 2))]
    batches = [made.collate(part, bucket) for part in parts]
    for part, batch in zip(parts, batches, strict=True):
        assert batch.tokens.bounds.shape == batch.decoder_tokens.bounds.shape
        near = 16 if max(len(item.rows[0]) for item in part) <= 16 else 32  # a multiple of 16, for few shapes
        assert (batch.tokens.max_length, batch.decoder_tokens.max_length) == (near, 8)
        assert len(batch.decoder_tokens.ids) == len(batch.targets) == 64
        assert len(batch.tokens.ids) % 64 == 0
        for half, most in ((batch.tokens, LENGTH), (batch.decoder_tokens, 8)):
            assert int(half.bounds[-1]) == len(half.ids)
            assert int(half.bounds.diff().max()) <= most
    assert {batch.tokens.max_length for batch in batches} == {16, LENGTH}
    assert len({batch.tokens.bounds.shape for batch in batches}) <= 2
    lengths = [(len(item.rows[0]), len(item.target) - 1) for item in items[:6]]
    assert batches[0].counts["text"] == sum(written for _, written in lengths)
    assert batches[0].counts["tokens"] == sum(map(sum, lengths))
    assert batches[0].counts["squares"] == sum(read**2 + written**2 for read, written in lengths)


# ----------------------------------------------------------------------------------------------------- parity


def test_the_loss_is_theirs(tmp_path: Path) -> None:
    made = task()
    folders.write(tmp_path, shape(), made.state_dict(), tokenizer().special_ids(layout_of(shape()).special_tokens))
    reference = transformers.T5ForConditionalGeneration.from_pretrained(tmp_path).eval()
    items = made.preprocess(examples(), tokenizer(), LENGTH)
    rows, asked = [item.rows[0].ids for item in items], [item.target[1:] for item in items]
    ids, labels = (np.full((8, max(map(len, part))), fill) for part, fill in ((rows, 0), (asked, -100)))
    for number in range(8):
        ids[number, : len(rows[number])] = rows[number]
        labels[number, : len(asked[number])] = asked[number]
    mask = np.arange(ids.shape[1]) < np.array([[len(row)] for row in rows])
    with torch.no_grad():
        true = reference(
            input_ids=torch.from_numpy(ids),
            attention_mask=torch.from_numpy(mask.astype(np.int64)),
            labels=torch.from_numpy(labels),
        )
        batch = made.collate(items, Bucket(batch_size=8, max_length=LENGTH))
        own = made(batch)["text"].total / batch.counts["text"]
    assert abs(float(own - true.loss)) < 1e-5


# ---------------------------------------------------------------------------------------- what is read and asked


@pytest.mark.parametrize(
    ("name", "texts", "label", "source", "target"),
    [
        ("CoLA", ("a cat",), "0", "cola sentence: a cat", "unacceptable"),
        ("SST-2", ("a cat",), "1", "sst2 sentence: a cat", "positive"),
        ("MRPC", ("a cat", "a dog"), "1", "mrpc sentence1: a cat sentence2: a dog", "equivalent"),
        ("STS-B", ("a cat", "a dog"), 3.75, "stsb sentence1: a cat sentence2: a dog", "3.8"),
        ("QQP", ("a cat", "a dog"), "0", "qqp question1: a cat question2: a dog", "not_duplicate"),
        ("MNLI", ("a cat", "a dog"), "neutral", "mnli hypothesis: a dog premise: a cat", "neutral"),
        ("QNLI", ("a cat", "a dog"), "entailment", "qnli question: a cat sentence: a dog", "entailment"),
        ("RTE", ("a cat", "a dog"), "not_entailment", "rte sentence1: a cat sentence2: a dog", "not_entailment"),
        ("WNLI", ("a cat", "a dog"), "1", "wnli sentence1: a cat sentence2: a dog", "entailment"),
    ],
)
def test_the_tasks_of_glue_have_t5s_prompts(
    name: str, texts: tuple[str, ...], label: Any, source: str, target: str
) -> None:
    words = GLUE_PROMPTS[name].get("label_words")
    labels = () if name == "STS-B" else ("0", "1") if words else ("entailment", "neutral", "not_entailment")
    made = task(labels, **GLUE_PROMPTS[name])
    (item,) = made.preprocess([Example(location="made", texts=texts, label=label)], tokenizer(), 64)
    read, asked = tokenizer().encode([source, target])
    assert item.rows[0].ids.tolist() == [*read, tokenizer().stop_id]
    assert item.target.tolist() == [tokenizer().padding_id, *asked, tokenizer().stop_id]


@pytest.mark.parametrize(("answers", "target"), [(("cat", "old cat"), "cat"), ((), "")])
def test_a_question_and_its_context_are_the_input_and_the_first_answer_the_target(
    answers: tuple[str, ...], target: str
) -> None:
    asked = question(*answers)
    (item,) = task(output="span").preprocess([asked], tokenizer(), 64)
    source, written = tokenizer().encode([f"question: {asked.question} context: {asked.context}", target])
    assert item.rows[0].ids.tolist() == [*source, tokenizer().stop_id]
    assert item.target.tolist() == [0, *written, tokenizer().stop_id]
    (item,) = task(output="span").preprocess([replace(asked, answers=None)], tokenizer(), 64)
    assert item.target.tolist() == [0]


@pytest.mark.parametrize(
    ("number", "step", "written"),
    [(3.75, 0.2, "3.8"), (0.0, 0.2, "0.0"), (-1.26, 0.5, "-1.5"), (7.4, 1.0, "7.0"), (0.126, 0.01, "0.13")],
)
def test_numbers_are_rounded_in_targets(number: float, step: float, written: str) -> None:
    (item,) = task(output="number", rounding=step).preprocess(
        [Example(location="", texts=("a",), label=number)], tokenizer(), LENGTH
    )
    assert tokenizer().decode(item.target[1:-1].tolist()) == written


def test_a_long_pair_is_truncated_from_the_longer_text_and_counted() -> None:
    made = task(max_new_tokens=6)
    long, short = "cat " * 60, "old dog"
    whole = made.preprocess([Example(location="", texts=(short, long), label="cat")], tokenizer(), 64)[0]
    some, two = made.preprocess(
        [
            Example(location="", texts=(short, long), label="cat"),
            Example(location="", texts=("cat",), label="dog " * 7),
        ],
        tokenizer(),
        LENGTH,
    )
    assert len(some.rows[0]) == LENGTH
    assert some.truncated - whole.truncated == 64 - LENGTH
    assert some.rows[0].ids[:-1].tolist() == whole.rows[0].ids[: LENGTH - 1].tolist()
    assert two.truncated == 2
    assert two.target.tolist() == [0, *tokenizer().encode(["dog " * 7])[0][:5], tokenizer().stop_id]


def test_repeated_targets_are_classes() -> None:
    again = [Example(location="", texts=("a",), label=label) for label in ("purr", "bark", "purr", "bark")]
    assert TextToText.collect_labels(again) == CLASSES
    assert TextToText.collect_labels(again[:3]) == ()
    assert TextToText.collect_labels([Example(location="", texts=("a",), label=1.0)] * 9) == ()
    assert TextToText.collect_labels([question("cat")] * 9) == ()


# ----------------------------------------------------------------------------------------- what is said, scored


def read(made: TextToText, text: str, example: Any = None) -> Any:
    example = example or Example(location="made", texts=("a",))
    items = made.preprocess([example], tokenizer(), LENGTH)
    return made.postprocess(example, items, [np.array(tokenizer().encode([text])[0], np.float32)])


def test_a_class_is_predicted_by_its_label_word_only() -> None:
    made = task(("0", "1"), label_words=("negative", "positive"))
    assert read(made, "positive") == {"text": "positive", "label": "1"}
    assert read(made, "positiv") == {"text": "positiv", "label": None}
    assert read(task(), "positive") == {"text": "positive"}
    assert read(task(output="number"), "3.8") == {"text": "3.8", "number": 3.8}
    assert read(task(output="number"), "3.8.") == {"text": "3.8.", "number": None}
    assert read(task(output="span"), "cat", question("cat")) == {"id": "1", "answer": "cat"}


def figures(made: TextToText, gold: Sequence[Any], said: Sequence[dict[str, Any]]) -> dict[str, float]:
    return made.score([Example(location="", texts=("a",), label=label) for label in gold], said)


def test_a_text_that_is_no_class_is_wrong_and_counted() -> None:
    two = figures(
        task(CLASSES), ["purr", "bark", "purr", "bark"], [{"label": one} for one in ("purr", "bark", None, None)]
    )
    # The two that are none count as the other class: one of two is right in each.
    assert two == {"accuracy": 0.5, "macro_f1": 0.5, "f1": 0.5, "matthews": 0.0, "accuracy_f1": 0.5, "no_class": 0.5}
    three = figures(task(("a", "b", "c")), ["a", "b", "c", "a"], [{"label": one} for one in ("a", "b", None, None)])
    assert three == {"accuracy": 0.5, "macro_f1": pytest.approx((2 / 3 + 1 + 0) / 3), "no_class": 0.5}
    assert next(iter(figures(task(CLASSES, metric="matthews"), ["purr"], [{"label": "purr"}]))) == "matthews"
    new = figures(task(CLASSES), ["purr", "mew"], [{"label": "purr"}, {"label": "bark"}])
    assert (new["accuracy"], new["no_class"]) == (0.5, 0.0)


def test_a_text_that_is_no_number_is_as_wrong_as_possible() -> None:
    right = figures(task(output="number"), [0.0, 2.0, 5.0], [{"number": one} for one in (0.0, 2.0, 5.0)])
    assert right == {"spearman": pytest.approx(1), "pearson": pytest.approx(1), "no_number": 0}
    wrong = figures(task(output="number"), [0.0, 2.0, 5.0], [{"number": one} for one in (None, 2.0, None)])
    assert wrong["spearman"] == pytest.approx(-1)
    assert wrong["no_number"] == pytest.approx(2 / 3)


def test_texts_are_scored_by_their_words_and_as_wholes() -> None:
    found = figures(task(), ["old cat", "river"], [{"text": "cat"}, {"text": "river"}])
    assert found == {"f1": pytest.approx((2 / 3 + 1) / 2), "exact": 0.5}


def test_spans_are_scored_as_by_squad() -> None:
    asked = [question("cat", "old cat"), question(name="2"), replace(question(name="3"), answers=None)]
    said = [{"answer": "the old cat"}, {"answer": ""}, {"answer": "dog"}]
    found = task(output="span").score(asked, said)
    assert next(iter(found)) == "f1"
    assert (found["f1"], found["exact"]) == (1.0, 1.0)
    assert task(output="span").score(asked[:1], [{"answer": "cat sees"}])["f1"] == pytest.approx(2 / 3)


# --------------------------------------------------------------------------------------------------- refusals


def one(*texts: str) -> list[Example]:
    return [Example(location="made:1", texts=texts, label="a")]


@pytest.mark.parametrize(
    ("act", "line"),
    [
        (
            lambda: task(CLASSES, label_words=("a", "b", "c")),
            "task.label_words: names 3 classes, and there are 2. Give a word for each of ('bark', 'purr').",
        ),
        (lambda: task(label_words=("a", "b")), "task.label_words: names 2 classes, and there are 0."),
        (
            lambda: task(("a", "b", "c"), metric="matthews"),
            "task.metric: 'matthews' needs two classes. Use accuracy or macro_f1.",
        ),
        (
            lambda: task(CLASSES, max_new_tokens=2, label_words=("cat", "cat dog")).preprocess(
                one("a"), tokenizer(), LENGTH
            ),
            (
                "task.label_words: 'cat' and 'cat dog' are both written 'cat'. "
                "Give the classes other words, or raise task.max_new_tokens."
            ),
        ),
        (
            lambda: task(prefix="cat " * 11).preprocess(one("a"), tokenizer(), 12),
            (
                "task.prefix: with names it takes 11 tokens, and leaves no room in 12. "
                "Shorten it, or raise data.max_length."
            ),
        ),
        (
            lambda: task().preprocess(one("a", "b", "c"), tokenizer(), LENGTH),
            "made:1: has 3 texts. Name one or two with data.texts.",
        ),
        (
            lambda: task().preprocess(
                one("a"), train(["ab ab"] * 9, TokenizerConfig(kind="bpe", vocabulary=261, min_frequency=1)), LENGTH
            ),
            "tokenizer: its padding token has id 1. A decoder starts with the padding token, whose id must be 0.",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(act: Any, line: str) -> None:
    with pytest.raises(BertsmithError) as caught:
        act()
    assert str(caught.value) == line


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"text_names": ("a",)}, "text_names are ['a']. Give two, for the first text and the second"),
        ({"rounding": 0.0}, "rounding is 0.0. Give more than 0, usually 0.2"),
        ({"max_new_tokens": 1}, "max_new_tokens is 1. Give at least 2, for a token and the one that stops"),
    ],
)
def test_settings_that_mean_nothing_are_refused(changes: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError) as caught:
        TextToText.Config(**changes)
    assert str(caught.value) == line


def test_generation_stops_at_the_networks_maximum_length() -> None:
    made = TextToText(EncoderDecoder(shape(max_length=16)), TextToText.Config(), ())
    assert made.max_new_tokens == 15
    assert TASKS["write"] is TextToText
