"""Spans: what is taken out, what is asked for, and that texts can be put together again."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from prose import PADDING, START, STOP, VOCABULARY, prose

from bertsmith.data.batch import Tokens
from bertsmith.data.packing.pack import PackedBatch, Packer
from bertsmith.errors import RecipeError
from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.family import BERT_TINY, T5
from bertsmith.models.transformer import Transformer
from bertsmith.objectives.masked import MaskedLM
from bertsmith.objectives.spans import Collator, SpanBatch, SpanCorruption, _random_segmentation

pytestmark = pytest.mark.slow("draws many samples")

SENTINELS = tuple(range(VOCABULARY + 99, VOCABULARY - 1, -1))
SHAPE = replace(
    T5, vocabulary=VOCABULARY + 100, width=32, layers=2, decoder_layers=2, heads=2, feed_forward=64, max_length=64
)
LENGTHS = pytest.mark.parametrize(("length", "tokens"), [(64, 1024), (16, 512), (8, 256), (48, 500)])


def packed(position: int = 0, *, length: int = 64, tokens: int = 1024) -> PackedBatch:
    how = {"start_id": START, "stop_id": STOP, "padding_id": PADDING, "seed": 1}
    return Packer(prose(300), max_length=length, batch_tokens=tokens, pairs="none", cross_documents=True, **how)(
        position
    )


def collator(**config: float) -> Collator:
    return Collator(SpanCorruption.Config(**config), SENTINELS, PADDING, STOP)


def rows(tokens: Tokens, count: int) -> list[list[int]]:
    return [tokens.ids[start:stop].tolist() for start, stop in tokens.bounds.unfold(0, 2, 1)[:count].tolist()]


def texts(given: PackedBatch) -> list[list[int]]:
    bounds = given.bounds[: given.real_sequences + 1]
    return [given.ids[start + 1 : stop - 1].tolist() for start, stop in pairwise(bounds)]


def asked(batch: SpanBatch, count: int) -> list[list[int]]:
    return rows(replace(batch.decoder_tokens, ids=batch.targets), count)


def together(read: list[int], written: list[int]) -> list[int]:
    """A text again, from what is left of it and what was taken out."""
    spans: dict[int, list[int]] = {}
    for token in written:
        if token in SENTINELS:
            assert token not in spans
            spans[token] = []
        else:
            spans[list(spans)[-1]].append(token)
    assert list(spans) == list(SENTINELS[: len(spans)])
    assert all(spans.values())
    return [token for place in read for token in spans.get(place, [place])]


@LENGTHS
@pytest.mark.parametrize(("rate", "mean"), [(0.15, 3.0), (0.5, 3.0), (0.15, 1.0), (0.3, 8.0)])
def test_inputs_and_targets_make_up_the_text(length: int, tokens: int, rate: float, mean: float) -> None:
    collate = collator(corruption_rate=rate, mean_span_length=mean)
    for index in range(3):
        given = packed(index, length=length, tokens=tokens)
        batch = collate(given)
        parts = texts(given), rows(batch.tokens, given.real_sequences), asked(batch, given.real_sequences)
        begun = rows(batch.decoder_tokens, given.real_sequences)
        for text, read, target, prompt in zip(*parts, begun, strict=True):
            assert read[-1] == STOP
            if target == [-100]:  # too short for anything to be taken out
                assert len(text) < 2
                assert read[:-1] == text
                continue
            assert target[-1] == STOP
            assert prompt == [PADDING, *target[:-1]]
            assert together(read[:-1], target[:-1]) == text


@LENGTHS
def test_shapes_never_change_and_bounds_hold_all_tokens(length: int, tokens: int) -> None:
    collate, seen = collator(), set()
    for index in range(12):
        batch = collate(packed(index, length=length, tokens=tokens))
        for part in (batch.tokens, batch.decoder_tokens):
            assert int(part.bounds[-1]) == len(part.ids)
            assert int(part.bounds.diff().max()) <= part.max_length
        halves = ((len(part.ids), len(part.bounds), part.max_length) for part in (batch.tokens, batch.decoder_tokens))
        seen.add(tuple(halves))
    assert len(seen) == 1


def test_corruption_rate_and_mean_span_length_hold() -> None:
    taken = spans = text = 0
    for index in range(40):
        given = packed(index, length=64, tokens=2048)
        targets = collator()(given).targets
        marks = int((targets >= VOCABULARY).sum())
        spans, taken = spans + marks, taken + int((targets >= 0).sum()) - marks - given.real_sequences
        text += given.real_tokens - 2 * given.real_sequences
    assert taken / text == pytest.approx(0.15, abs=0.01)
    assert taken / spans == pytest.approx(3.0, abs=0.2)


def test_a_batch_is_a_function_of_its_text_and_key() -> None:
    given = packed()
    one, other = collator()(given), collator()(given)
    assert torch.equal(one.tokens.ids, other.tokens.ids)
    changed = collator()(replace(given, key=given.key + 1))
    assert not torch.equal(one.tokens.ids, changed.tokens.ids)


def test_every_segmentation_is_equally_likely() -> None:
    seen: dict[tuple[int, ...], int] = {}
    for key in range(3000):
        first, *rest = np.split(_random_segmentation(np.array([5, 4]), np.array([3, 1]), key, 0), [3])
        assert rest[0].tolist() == [4]
        seen[tuple(first.tolist())] = seen.get(tuple(first.tolist()), 0) + 1
    assert set(seen) == {(1, 1, 3), (1, 3, 1), (3, 1, 1), (1, 2, 2), (2, 1, 2), (2, 2, 1)}
    assert sum((count - 500) ** 2 / 500 for count in seen.values()) < 20.5  # chi-square, one in a thousand


def test_a_text_with_more_spans_than_sentinels_is_refused() -> None:
    few = Collator(SpanCorruption.Config(), SENTINELS[:2], PADDING, STOP)
    with pytest.raises(RecipeError, match=r"spans, and there are 2 sentinels\. Take shorter"):
        few(packed())


def test_networks_that_do_not_fit_are_refused() -> None:
    with pytest.raises(RecipeError, match="has no decoder"):
        SpanCorruption(Transformer(BERT_TINY), SpanCorruption.Config())
    with pytest.raises(RecipeError, match="has a decoder"):
        MaskedLM(EncoderDecoder(SHAPE), MaskedLM.Config())
