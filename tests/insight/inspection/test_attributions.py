"""Integrated gradients: against the formula on a function of numpy, and against transformers' `inputs_embeds`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from inference.test_load import saved
from tasks.small import CASES, shape, stirred, tokenizer

from bertsmith.data.rows import Row, pack_rows
from bertsmith.insight.inspection import attributions
from bertsmith.insight.inspection.attribution_targets import MAX_TARGETS, log_odds
from bertsmith.insight.inspection.attributions import (
    Attribution,
    attribute,
    baseline_id,
    integrate,
    replaced_embeddings,
    word_scores,
)
from bertsmith.models.elmo import Elmo, ElmoConfig
from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.family import FAMILY
from bertsmith.models.recurrent import Recurrent, RecurrentConfig
from bertsmith.models.transformer import Transformer
from bertsmith.objectives.base import Objective
from bertsmith.objectives.bilm import BidirectionalLM
from bertsmith.objectives.causal import CausalLM
from bertsmith.objectives.masked import MaskedLM
from bertsmith.objectives.recurrent_lm import RecurrentLM
from bertsmith.tasks.base import with_special_tokens
from bertsmith.text.tokenizer import Tokenizer

TEXT = "the old cat sees the unbelievable garden"


def read(text: str, pair: str | None = None) -> tuple[Row, list[int], list[str]]:
    """A text or two as a row, with the word of each token, and its spelling without ##."""
    pieces = tokenizer()
    second = None if pair is None else pieces.encode([pair])[0]
    row = with_special_tokens(pieces, pieces.encode([text])[0], second)
    words, word = [], -1
    for number in row.ids.tolist():
        special = bool(pieces.special_mask[number])
        word += not special and not pieces.continuation_mask[number]
        words.append(-1 if special else word)
    return row, words, [pieces.piece(number).removeprefix("##") for number in row.ids.tolist()]


def attributed(objective: Objective, text: str = TEXT, pair: str | None = None) -> list[Attribution]:
    row, words, shown = read(text, pair)
    return attribute(objective, tokenizer(), row, words, shown)


def captum(outputs: Any, baseline: np.ndarray, point: np.ndarray, steps: int = 2000) -> np.ndarray:
    """Integrated gradients as captum has them, by a Riemann sum of midpoints, with gradients by central differences."""
    total = np.zeros_like(point)
    for step in range(steps):
        place = baseline + (step + 0.5) / steps * (point - baseline)
        for index in np.ndindex(*point.shape):
            moved = np.zeros_like(point)
            moved[index] = 1e-5
            total[index] += (outputs(place + moved) - outputs(place - moved)) / 2e-5 / steps
    return np.asarray((total * (point - baseline)).sum(-1))


def test_the_integral_is_that_of_the_formula_on_a_small_function() -> None:
    draw = np.random.default_rng(0)
    weight, point, baseline = draw.normal(size=(3, 2)), draw.normal(size=(3, 2)), draw.normal(size=(3, 2))
    expected = captum(lambda x: np.tanh((weight * x).sum()) + (x**2).sum() * x[0, 0], baseline, point)

    def outputs(points: torch.Tensor) -> torch.Tensor:
        points = points.double()
        sums = (torch.from_numpy(weight) * points).sum((1, 2))
        return torch.tanh(sums) + points.square().sum((1, 2)) * points[:, 0, 0]

    found = integrate(outputs, torch.from_numpy(baseline), torch.from_numpy(point), 32)
    assert found == pytest.approx(expected, abs=1e-5)
    ends = outputs(torch.from_numpy(np.stack([point, baseline])))
    assert found.sum() == pytest.approx(float(ends[0] - ends[1]), abs=1e-6)


def transformers_scores(folder: Path, row: Row, special: np.ndarray, uninformative: int, label: int) -> np.ndarray:
    """Integrated gradients through transformers' `inputs_embeds`, as captum computes them, by a trapezoid rule."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    ids = torch.from_numpy(row.ids).long()
    table = model.get_input_embeddings().weight.detach()
    point, baseline = table[ids], table[torch.where(torch.from_numpy(special), ids, uninformative)]
    steps = 200
    total = torch.zeros_like(point)
    for step in range(steps + 1):
        place = (baseline + step / steps * (point - baseline)).requires_grad_()
        segments = torch.from_numpy(row.segments).long()[None]
        logits = model(inputs_embeds=place[None], token_type_ids=segments).logits[0]
        others = torch.cat([logits[:label], logits[label + 1 :]])
        (gradient,) = torch.autograd.grad(logits[label] - others.logsumexp(0), place)
        total += gradient * (0.5 if step in (0, steps) else 1.0) / steps
    return np.asarray((total * (point - baseline)).sum(-1).numpy())


@pytest.mark.slow("200 passes of transformers' model")
@pytest.mark.parametrize("pair", [None, "a dog likes the river"])
def test_a_class_is_attributed_as_through_the_embeddings_of_transformers(tmp_path: Path, pair: str | None) -> None:
    task = CASES["class"].task()
    saved(tmp_path, "class", task)
    (found,) = attributed(task, TEXT, pair)
    row, words, _ = read(TEXT, pair)
    label = task.labels.index(found.target["label"])
    padding = tokenizer().padding_id
    expected = transformers_scores(tmp_path, row, np.array(words) < 0, padding, label)
    assert found.scores == pytest.approx(expected.tolist(), abs=2e-5)
    assert found.gap < 0.01


@pytest.mark.parametrize("name", ["class", "number", "labels", "tag", "answer", "choose"])
def test_attributions_of_every_task_sum_to_the_difference_of_the_outputs(name: str) -> None:
    task = CASES[name].task()
    pair = "the dog likes the old river" if name in ("answer", "choose") else None
    found = attributed(task, TEXT, pair)
    assert found
    row, words, _ = read(TEXT, pair)
    for one in found:
        assert sum(one.scores) == pytest.approx(one.output - one.baseline, rel=0.02)
        assert one.gap <= 0.05
        assert [score for score, word in zip(one.scores, words, strict=True) if word < 0] == [0.0] * words.count(-1)
        assert sum(score for _, score in one.words) == pytest.approx(sum(one.scores))
        assert len(one.scores) == len(row)


@torch.no_grad()
def test_outputs_are_what_the_task_says_of_the_text() -> None:
    row, _, _ = read(TEXT)
    task = CASES["number"].task()
    (found,) = attributed(task)
    assert found.name == f"number: {found.output:.4g}"
    assert found.output == pytest.approx(float(task.outputs(pack_rows([row]))[0][0]), abs=1e-5)  # type: ignore[index]
    task = CASES["class"].task()
    probabilities = task.outputs(pack_rows([row]))[0].softmax(-1)
    (found,) = attributed(task)
    best = float(probabilities.max())
    assert found.target == {
        "kind": "label",
        "label": task.labels[int(probabilities.argmax())],
        "probability": pytest.approx(best),
    }
    assert found.output == pytest.approx(np.log(best / (1 - best)), abs=1e-4)
    assert found.name == f"label: {found.target['label']} ({best:.2f})"


@torch.no_grad()
def test_an_answer_is_a_span_of_the_context_and_an_empty_context_has_none() -> None:
    task = CASES["answer"].task()
    row, _, _ = read("the cat", "a dog likes the old river")
    (found,) = attributed(task, "the cat", "a dog likes the old river")
    context = int(np.flatnonzero(row.segments)[0])
    assert context <= found.target["start"] <= found.target["end"] < len(row) - 1
    scores = task.outputs(pack_rows([row]))[0]
    start, end = found.target["start"], found.target["end"]
    assert found.output == pytest.approx(float(scores[start, 0] + scores[end, 1]), abs=1e-5)
    spans = [
        (float(scores[one, 0] + scores[other, 1]), one, other)
        for one in range(context, len(row) - 1)
        for other in range(one, min(one + task.config.max_answer_length, len(row) - 1))
    ]
    assert max(spans)[1:] == (start, end)
    assert found.target["answer"] in "a dog likes the old river"
    assert attributed(task, "the cat", "") == []


def test_tags_are_attributed_except_o_at_first_tokens_and_at_most_eight() -> None:
    task = CASES["tag"].task()
    found = attributed(task, " ".join(["unbelievable garden 1984"] * 8))
    assert 0 < len(found) <= MAX_TARGETS
    assert all(one.target["tag"] == "B-X" and one.name.startswith("tag of '") for one in found)


def test_several_labels_are_attributed_or_the_likeliest_one() -> None:
    task = CASES["labels"].task()
    task.config = replace(task.config, threshold=0.0)
    assert len(attributed(task)) == 3
    task.config = replace(task.config, threshold=1.0)
    (found,) = attributed(task)
    assert found.target["label"] == task.labels[int(np.argmax([one.output for one in _all(task)]))]


def _all(task: Any) -> list[Attribution]:
    """The attributions of all labels, in the order of the labels."""
    task.config = replace(task.config, threshold=0.0)
    return sorted(attributed(task), key=lambda one: task.labels.index(one.target["label"]))


def test_every_blank_is_attributed_and_a_text_without_one_is_not() -> None:
    objective = stirred(MaskedLM(Transformer(shape()), MaskedLM.Config(pairs="none")))
    found = attributed(objective, "the [MASK] sees the [MASK]")
    assert [one.target["position"] for one in found] == [2, 5]
    assert found[0].name.startswith("[MASK] at 2: ")
    assert found[0].gap <= 0.05
    assert found[0].scores[2] == 0  # a blank says nothing, and neither does the baseline
    assert attributed(objective, "the cat sees") == []
    assert baseline_id(objective, tokenizer()) == tokenizer().mask_id


@pytest.mark.parametrize("kind", ["gpt", "lstm"])
def test_the_next_token_of_a_causal_model_is_attributed(kind: str) -> None:
    vocabulary = tokenizer().vocabulary
    objective: Objective
    if kind == "gpt":
        small = {"width": 32, "layers": 2, "heads": 2, "feed_forward": 48, "max_length": 64}
        config = replace(FAMILY["gpt2"], vocabulary=vocabulary, **small)  # type: ignore[arg-type]
        objective = stirred(CausalLM(Transformer(config), CausalLM.Config()))
    else:
        recurrent = RecurrentConfig(vocabulary=vocabulary, width=16, layers=1)
        objective = stirred(RecurrentLM(Recurrent(recurrent), RecurrentLM.Config()))
    (found,) = attributed(objective)
    assert found.name.startswith("next token: ")
    assert found.gap <= 0.05
    assert found.target["position"] == len(read(TEXT)[0]) - 2


def test_a_network_that_reads_characters_has_no_attributions() -> None:
    sizes = ElmoConfig(vocabulary=tokenizer().vocabulary, filters=(4, 4), hidden=8, width=8, layers=1, max_characters=8)
    assert attributed(BidirectionalLM(Elmo(sizes), BidirectionalLM.Config())) == []


def test_the_gap_decides_how_many_steps_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    task = CASES["class"].task()
    monkeypatch.setattr(attributions, "MAX_GAP", -1.0)
    monkeypatch.setattr(attributions, "MIN_STEPS", 1)
    monkeypatch.setattr(attributions, "MAX_STEPS", 8)
    (exact,) = attributed(task)
    assert exact.steps == 8
    monkeypatch.setattr(attributions, "MAX_GAP", 0.5)
    (rough,) = attributed(task)
    assert rough.steps == 1
    assert rough.gap > exact.gap


def test_a_long_path_in_parts_is_the_path_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    task = CASES["class"].task()
    (whole,) = attributed(task)
    monkeypatch.setattr(attributions, "PATH_TOKENS", 1)
    (parts,) = attributed(task)
    assert parts.scores == pytest.approx(whole.scores, abs=1e-6)


def test_a_decoder_that_shares_the_table_keeps_its_own_embeddings() -> None:
    sizes = replace(FAMILY["transformer-tiny"], vocabulary=120, width=16, layers=1, decoder_layers=1, heads=2,
                    feed_forward=16, max_length=16)  # fmt: skip
    network = EncoderDecoder(sizes).eval()
    tokens, target = pack_rows([read("the cat")[0]]), pack_rows([read("a dog")[0]])
    with torch.no_grad(), replaced_embeddings(network.embedding, tokens, torch.zeros(len(tokens.ids), 16)):
        assert not network.embedding(tokens.ids).any()
        assert network.embedding(target.ids).any()
    assert network.embedding(tokens.ids).any()


def test_the_model_is_left_as_it_was_and_inference_mode_does_no_harm() -> None:
    task = CASES["class"].task().train()
    with torch.inference_mode():
        (found,) = attributed(task)
    assert task.training
    assert found.gap <= 0.05
    assert all(weight.grad is None for weight in task.parameters())
    assert not task.trunk.embedding._forward_hooks


def test_pieces_are_added_up_to_words_in_the_order_of_the_text() -> None:
    scores = word_scores([0.0, 1.0, 2.0, 4.0, 0.0], [-1, 0, 0, 1, -1], ["[CLS]", "play", "ing", "play", "[SEP]"])
    assert scores == [("playing", 3.0), ("play", 4.0)]


def test_log_odds_are_those_of_the_softmax() -> None:
    logits = torch.tensor([[1.0, 2.0, -1.0]], dtype=torch.float64)
    share = float(logits.softmax(-1)[0, 1])
    assert float(log_odds(logits, 1)) == pytest.approx(np.log(share / (1 - share)))


def test_an_attribution_shows_its_largest_words_and_is_json() -> None:
    found = Attribution("label: good (0.9)", {}, [0.0, 1.0], [("film", -0.1), ("fine", 1.1)], 2.0, 1.0, 0.001, 16)
    assert repr(found) == "Attribution('label: good (0.9)', fine +1.10, film -0.10, gap 0.1%)"
    assert found.figures()["words"] == [["film", -0.1], ["fine", 1.1]]


def test_a_tokenizer_without_special_tokens_has_a_baseline_of_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    task = CASES["class"].task()
    (usual,) = attributed(task)
    monkeypatch.setattr(Tokenizer, "roles", {})
    assert baseline_id(task, tokenizer()) is None
    (found,) = attributed(task)
    assert found.gap <= 0.05
    assert found.baseline != usual.baseline
    assert found.output == usual.output
