"""Span corruption: spans of a text become sentinels, and the decoder generates them. The objective of T5."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int32, Int64
from torch import Tensor

from bertsmith.data.batch import DecoderBatch, Tokens, end_to_end, with_filler
from bertsmith.data.packing.pack import PackedBatch
from bertsmith.errors import RecipeError
from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.objectives.base import Pretraining, Term
from bertsmith.random_bits import mix
from bertsmith.text.tokenizer import Tokenizer

SPANS_KEY = -2  # keeps random bits of spans apart from those of other objectives

Integers = Int64[np.ndarray, "_"]
Flags = Bool[np.ndarray, "_"]


@dataclass(frozen=True, kw_only=True)
class SpanBatch(DecoderBatch):
    """Texts with corrupted spans, and the spans for the decoder."""

    text_mask: Bool[Tensor, "N"]  # which targets are text, and no sentinels


class SpanCorruption(Pretraining):
    """Spans of a text become sentinels, and the decoder generates the spans, each after its sentinel.

    Raffel et al. 2020, section 3.1.4: "Thank you <X> me to your party <Y> week" gives "<X> for inviting <Y> last".
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        corruption_rate: float = 0.15  # share of the tokens that are replaced (T5: noise_density)
        mean_span_length: float = 3.0  # mean number of tokens in a span

        def __post_init__(self) -> None:
            if not 0 < self.corruption_rate < 1:
                raise ValueError(
                    f"corruption_rate is {self.corruption_rate}. Give a share above 0 and below 1, usually 0.15"
                )
            if self.mean_span_length < 1:
                raise ValueError(f"mean_span_length is {self.mean_span_length}. Give at least 1, usually 3")

    needs = "encoder_decoder"
    generates = True
    trunk: EncoderDecoder
    config: Config

    def forward(self, batch: SpanBatch) -> dict[str, Term]:
        logits = self.trunk.logits(self.trunk(batch.tokens, batch.decoder_tokens))  # N V
        losses = F.cross_entropy(logits.float(), batch.targets, reduction="none", ignore_index=-100)
        correct = None if self.training else logits.argmax(-1) == batch.targets
        # Two terms, since sentinels are soon predicted perfectly. With these weights their sum is the mean over all
        # targets, up to a factor.
        weights = {"spans": (batch.text_mask, 1.0), "sentinels": (~batch.text_mask, 1 / self.config.mean_span_length)}
        return {
            name: Term(
                torch.where(mask, losses, 0.0).sum(), None if correct is None else (correct & mask).sum(), weight
            )
            for name, (mask, weight) in weights.items()
        }

    def collator(self, tokenizer: Tokenizer) -> Callable[[PackedBatch], SpanBatch]:
        if not tokenizer.sentinels:
            remedy = "Train the tokenizer with --kind t5, and prepare the text again"
            raise RecipeError("objective.kind", "the vocabulary has no sentinels such as <extra_id_0>", remedy)
        return Collator(self.config, tokenizer.sentinels, tokenizer.padding_id, tokenizer.stop_id)

    @property
    def prediction_share(self) -> float:
        return self.config.corruption_rate * (1 + 1 / self.config.mean_span_length)

    def flops(self, attended: float) -> float:
        """Most tokens of a text go through the encoder, and the spans through the decoder, with cross-attention."""
        encoder, decoder = self.trunk.encoder.config, self.trunk.decoder.config
        written, read = self.prediction_share, 1 - self.config.corruption_rate * (1 - 1 / self.config.mean_span_length)
        # Cross-attention computes keys and values of the tokens read, not of those written, which attend to the former.
        keys = 2 * decoder.width * decoder.inner * (read - written) + 2 * decoder.inner * written * attended * read
        layers = read * encoder.flops(attended * read, 0.0) + written * decoder.flops(attended * written, 0.0)
        return layers + 6 * (decoder.layers * keys + written * decoder.vocabulary * decoder.table)


@dataclass(frozen=True)
class Collator:
    """The pure function from packed text to a batch with corrupted spans."""

    config: SpanCorruption.Config
    sentinels: tuple[int, ...]
    padding: int  # also the first token of the decoder
    stop: int

    def __call__(self, packed: PackedBatch) -> SpanBatch:
        starts, ends = (packed.bounds[side : packed.real_sequences + side].astype(np.int64) for side in (0, 1))
        lengths = ends - starts - 2  # of texts without their special tokens
        taken, spans = self.span_counts(lengths)
        if spans.max(initial=0) > len(self.sentinels):
            most = f"{spans.max()} spans, and there are {len(self.sentinels)} sentinels"
            remedy = "Take shorter sequences, or a larger objective.mean_span_length"
            raise RecipeError("data.max_length", f"a text of {lengths.max()} tokens has {most}", remedy)
        positions = np.repeat(starts + 1 - _starts(lengths), lengths) + np.arange(lengths.sum())
        inputs, outputs = self._inputs_and_targets(
            packed.ids[positions], lengths, _noise_mask(lengths, taken, spans, packed.key)
        )
        capacities, longest = self.capacities(packed), self.max_lengths(packed.max_length)
        encoder = self._pack(inputs, lengths - taken + spans, packed, capacities[0], longest[0])
        decoder = self._pack(outputs, taken + spans, packed, capacities[1], longest[1])
        decoder_ids, targets = self._shift_right(decoder.ids.numpy(), taken + spans)
        text = ~np.isin(targets, np.append(self.sentinels, (self.stop, -100)))
        counts = {"spans": int(text.sum()), "sentinels": int((targets != -100).sum() - text.sum())}
        counts |= {"tokens": packed.real_tokens, "squares": int(((lengths + 2) * (lengths + 2)).sum())}
        return SpanBatch(
            tokens=encoder,
            decoder_tokens=replace(decoder, ids=torch.from_numpy(decoder_ids)),
            targets=torch.from_numpy(targets),
            text_mask=torch.from_numpy(text),
            counts=counts,
        )

    def span_counts(self, lengths: Integers) -> tuple[Integers, Integers]:
        """For texts of these lengths, the number of corrupted tokens and of spans; some of every text stays."""
        wanted = np.maximum(np.rint(lengths * self.config.corruption_rate), 1).astype(np.int64)
        taken = np.minimum(wanted, np.maximum(lengths - 1, 0))
        spans = np.maximum(np.rint(taken / self.config.mean_span_length), 1).astype(np.int64)
        return taken, np.minimum(np.minimum(spans, taken), lengths - taken)

    def max_lengths(self, max_length: int) -> tuple[int, int]:
        """The longest encoder input and decoder output of a sequence of at most `max_length` tokens."""
        lengths = np.arange(max(1, max_length - 1))
        taken, spans = self.span_counts(lengths)
        return int((lengths - taken + spans).max()) + 1, int((taken + spans).max()) + 1

    def capacities(self, packed: PackedBatch) -> tuple[int, int]:
        """The most encoder and decoder tokens of a batch, to which it is padded, so that shapes never change.

        A text of n tokens has at most (rate n + 1/2)(1 + 1/mean) + 3/2 decoder tokens, and keeps the rest.
        """
        rate, share = self.config.corruption_rate, 1 / self.config.mean_span_length
        size = len(packed.ids)
        rows = len(packed.bounds) - 1 + (-size // packed.max_length)  # without those reserved for padding
        kept = 1 - rate * (1 - share)
        read = kept * size + 2 * (1 - kept) * rows
        written = rate * (1 + share) * size + (0.5 * (1 + share) + 1.5) * rows
        return math.ceil(read), math.ceil(written)

    def _inputs_and_targets(
        self, ids: Int32[np.ndarray, "T"], lengths: Integers, noise_mask: Flags
    ) -> tuple[Integers, Integers]:
        """The texts with a sentinel for each span; and the spans, each after its sentinel."""
        owner = np.repeat(np.arange(len(lengths)), lengths)
        first = noise_mask.copy()  # of its span
        first[1:] &= ~(noise_mask[:-1] & (owner[1:] == owner[:-1]))
        before = np.concatenate([[0], np.cumsum(first)])
        number = before[:-1] - before[_starts(lengths)][owner]  # of a span in its text
        sentinels = np.asarray(self.sentinels)[number[first]]
        inputs = ids.astype(np.int64)
        inputs[first] = sentinels
        repeats = 1 + first[noise_mask]  # the first token of a span is doubled, to make room for its sentinel
        outputs = np.repeat(ids[noise_mask], repeats).astype(np.int64)
        outputs[_starts(repeats)[first[noise_mask]]] = sentinels
        return inputs[~noise_mask | first], outputs

    def _pack(self, ids: Integers, sizes: Integers, packed: PackedBatch, capacity: int, max_length: int) -> Tokens:
        """Texts with a stop token after each, then padding up to the capacity, then empty sequences."""
        ends = np.cumsum(sizes + 1)
        real = int(ends[-1]) if len(ends) else 0
        packed_ids = np.full(capacity, self.padding, np.int32)
        text = np.ones(real, np.bool_)
        text[ends - 1] = False
        packed_ids[:real][text], packed_ids[ends - 1] = ids, self.stop
        shape = {"tokens": capacity, "max_length": max_length, "sequences": len(packed.bounds) - 1}
        bounds, positions = end_to_end(with_filler(sizes + 1, **shape))
        return Tokens(
            ids=torch.from_numpy(packed_ids),
            bounds=torch.from_numpy(bounds),
            positions=torch.from_numpy(positions),
            max_length=max_length,
        )

    def _shift_right(self, ids: Int32[np.ndarray, "T"], sizes: Integers) -> tuple[Int32[np.ndarray, "T"], Integers]:
        """Teacher forcing: the decoder input is its target shifted right by one, after a padding token."""
        begins, real = _starts(sizes + 1), int((sizes + 1).sum())
        shifted, targets = np.full_like(ids, self.padding), np.full(len(ids), -100)
        shifted[1:real], targets[:real] = ids[: max(real - 1, 0)], ids[:real]
        shifted[begins] = self.padding
        targets[begins[sizes == 0]] = -100  # a text too short for a span has no target
        return shifted, targets


def _starts(lengths: Integers) -> Integers:
    """The start of each of these lengths, laid end to end."""
    begins: Integers = np.cumsum(lengths) - lengths
    return begins


def _noise_mask(lengths: Integers, taken: Integers, spans: Integers, key: int) -> Flags:
    """Which tokens are corrupted: each text alternates between a segment that stays and a span, cut at random."""
    parts = np.maximum(spans, 1)
    stay, go = _random_segmentation(lengths - taken, parts, key, 0), _random_segmentation(taken, parts, key, 1)
    return np.repeat(np.tile([False, True], len(stay)), np.stack([stay, go], 1).ravel())


def _random_segmentation(sizes: Integers, parts: Integers, key: int, which: int) -> Integers:
    """Each size as a sum of `parts` positive numbers if possible, every such partition equally likely."""
    inner = np.maximum(sizes - 1, 0)  # positions of possible cuts
    owner, begins = np.repeat(np.arange(len(sizes)), inner), _starts(inner)
    order = np.lexsort((mix(key, SPANS_KEY, which, np.arange(len(owner))), owner))
    rank = np.arange(len(owner)) - begins[owner]  # in that order
    chosen = np.sort(order[rank < (parts - 1)[owner]])
    sums = np.empty(int(parts.sum()), np.int64)
    last = np.zeros(len(sums), np.bool_)
    last[np.cumsum(parts) - 1] = True
    sums[last], sums[~last] = sizes, chosen - begins[owner[chosen]] + 1
    before = np.concatenate([[0], np.where(last, 0, sums)[:-1]])  # each running sum begins at zero
    return np.asarray(sums - before)
