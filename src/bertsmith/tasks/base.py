"""A task: an objective on labelled examples, whose predictions can be scored."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.data.batch import Batch, Tokens, with_filler
from bertsmith.data.labelled.examples import Kind
from bertsmith.data.rows import BATCH_TOKENS, Row, map_rows, pack_rows
from bertsmith.models.transformer import Transformer
from bertsmith.objectives.base import Objective
from bertsmith.text.characters import boundary_characters
from bertsmith.text.tokenizer import Tokenizer

MAX_HELD_ITEMS = 65_536  # items whose outputs are held at a time


@dataclass(frozen=True, kw_only=True)
class Item:
    """One input of a batch: sequences that belong together, and their target."""

    rows: tuple[Row, ...]
    example: int  # index of its example; a long example becomes several items
    target: Any = None  # in the form of the task; None without a label
    notes: Any = None  # what `postprocess` needs besides the outputs
    truncated: int = 0  # tokens that were cut off


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """The shape of batches. On a GPU there are few shapes, so that captured CUDA graphs can be replayed."""

    batch_size: int  # items in a batch; the last of an epoch may have fewer
    max_length: int  # of a sequence
    pad_to_multiple_of: int = 0  # of the number of tokens; 0: no padding
    padding: int = 0  # id of the padding token

    def collate(self, rows: Sequence[Row], sequences: int) -> Tokens:
        """Rows as one flat batch; with a multiple, padded with filler sequences and empty ones to a fixed number."""
        if not self.pad_to_multiple_of:
            return pack_rows(rows)
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        tokens = -(-int(lengths.sum()) // self.pad_to_multiple_of) * self.pad_to_multiple_of
        # Sequences that the last batch lacks are empty ones at its end: heads use the first `sequences`.
        most = sequences + -(-self.pad_to_multiple_of // self.max_length)
        padded = with_filler(lengths, tokens=tokens, max_length=self.max_length, sequences=most)
        packed = pack_rows([*rows, *map(self._filler, padded[len(rows) :].tolist())])
        return replace(packed, max_length=self.max_length, equal_lengths=False)

    def _filler(self, length: int) -> Row:
        return Row(np.full(length, self.padding, np.int32), np.zeros(length, np.int32))


class Task(Objective):
    """A fine-tuning task: examples become items, items batches, outputs predictions, and predictions scores."""

    Config: ClassVar[Any]
    trunk: Transformer

    def __init__(self, trunk: Any, config: Any, labels: tuple[str, ...]) -> None:
        super().__init__()
        self.trunk, self.config, self.labels = trunk, config, labels

    @classmethod
    @abstractmethod
    def file_kind(cls, config: Any) -> Kind:
        """The kind of labelled file that it reads."""

    @classmethod
    def collect_labels(cls, examples: Iterable[Any]) -> tuple[str, ...]:
        """The labels of the examples, in the order of their ids; empty if the task has none."""
        return ()

    @abstractmethod
    def preprocess(self, examples: Sequence[Any], tokenizer: Tokenizer, max_length: int) -> list[Item]:
        """Tokenised items of the examples, in order."""

    @abstractmethod
    def collate(self, items: Sequence[Item], bucket: Bucket) -> Batch:
        """Items as one batch."""

    @abstractmethod
    def outputs(self, tokens: Tokens) -> list[Tensor]:
        """The network's outputs for each sequence, such as logits."""

    @abstractmethod
    def postprocess(self, example: Any, items: Sequence[Item], outputs: Sequence[NDArray[np.float32]]) -> Any:
        """The prediction for an example from the outputs of all its sequences, as JSON values."""

    def postprocess_detailed(self, example: Any, items: Sequence[Item], outputs: Sequence[NDArray[np.float32]]) -> Any:
        """The prediction with its probability, for reports."""
        return self.postprocess(example, items, outputs)

    @abstractmethod
    def score(self, examples: Sequence[Any], predictions: Sequence[Any]) -> dict[str, float]:
        """The metrics of predictions; the first is the headline."""


@torch.inference_mode()
def predict(
    task: Task,
    examples: Sequence[Any],
    items: Sequence[Item],
    *,
    device: torch.device | str,
    budget: int = BATCH_TOKENS,
    detailed: bool = False,
    progress: Callable[[float], object] = lambda _: None,
    outputs: Callable[[Tokens], list[Tensor]] | None = None,
) -> list[Any]:
    """A prediction for every example, in order; sequences are batched by length. `progress` gets the share done.

    `outputs` computes what `task.outputs` would: by another backend, for example.
    """
    compute = outputs or task.outputs
    found, done = list[Any](), 0
    for start, stop, chunk in _chunks(items, len(examples)):
        rows = [row for item in chunk for row in item.rows]
        share = partial(_report_share, progress, done / max(1, len(items)), len(chunk) / max(1, len(items)), len(rows))
        computed = map_rows(rows, lambda tokens: _to_host(compute(tokens)), device, budget, share)
        found += _postprocess(task, examples[start:stop], chunk, start, computed, detailed)
        done += len(chunk)
    return found


def _report_share(progress: Callable[[float], object], before: float, part: float, rows: int, done: int) -> None:
    progress(before + part * done / rows)


def _postprocess(
    task: Task,
    examples: Sequence[Any],
    items: Sequence[Item],
    start: int,
    outputs: Sequence[NDArray[np.float32]],
    detailed: bool,
) -> list[Any]:
    """The predictions of a chunk of examples, from the outputs of all its sequences."""
    found = iter(outputs)
    items_of: list[list[Item]] = [[] for _ in examples]
    outputs_of: list[list[NDArray[np.float32]]] = [[] for _ in examples]
    for item in items:
        items_of[item.example - start].append(item)
        outputs_of[item.example - start] += [next(found) for _ in item.rows]
    postprocess = task.postprocess_detailed if detailed else task.postprocess
    return [postprocess(*arguments) for arguments in zip(examples, items_of, outputs_of, strict=True)]


def _chunks(items: Sequence[Item], count: int) -> Iterator[tuple[int, int, Sequence[Item]]]:
    """Items in chunks that fit in memory, each with the range of its examples."""
    if len(items) <= MAX_HELD_ITEMS:
        yield 0, count, items
        return
    start, held = 0, list[Item]()
    for item in items:
        if len(held) >= MAX_HELD_ITEMS and item.example != held[-1].example:
            yield start, item.example, held
            start, held = item.example, []
        held.append(item)
    yield start, count, held


def _to_host(outputs: list[Tensor]) -> list[NDArray[np.float32]]:
    """All outputs of a pass as numpy arrays, by a single copy from the device."""
    if not outputs:
        return []
    shapes = [output.shape for output in outputs]
    flat = torch.cat([output.reshape(-1) for output in outputs]).float().cpu().numpy()
    ends = np.cumsum([shape.numel() for shape in shapes])
    return [part.reshape(shape) for part, shape in zip(np.split(flat, ends[:-1]), shapes, strict=True)]


def with_special_tokens(tokenizer: Tokenizer, first: Sequence[int], second: Sequence[int] | None = None) -> Row:
    """[CLS] first [SEP], or [CLS] first [SEP] second [SEP], with the tokenizer's special tokens."""
    before, between, after, segment = tokenizer.template
    if second is None or not (len(second) or after):  # a separator is no last token to pool
        # An empty text has one token at least.
        ids = np.array([*before, *first, *after] or [tokenizer.start_id], np.int32)
        return Row(ids, np.zeros(len(ids), np.int32))
    sizes = len(before) + len(first) + len(between), len(second) + len(after)
    ids = np.array([*before, *first, *between, *second, *after], np.int32)
    return Row(ids, np.repeat(np.array([0, segment], np.int32), sizes))


def with_characters(tokenizer: Tokenizer, ids: Sequence[int], letters: NDArray[np.int16]) -> Row:
    """The same for one text of a network that reads characters: start, words, end."""
    begin, end = boundary_characters(letters.shape[1])
    framed_ids = np.array([tokenizer.start_id, *ids, tokenizer.stop_id], np.int32)
    return Row(framed_ids, np.zeros(len(framed_ids), np.int32), np.concatenate([[begin], letters, [end]]))


def truncate(first: list[int], second: list[int] | None, max_tokens: int) -> tuple[list[int], list[int] | None, int]:
    """Two texts cut to `max_tokens` together, the longer one first; and the number of tokens cut off."""
    if second is None:
        return first[:max_tokens], None, max(0, len(first) - max_tokens)
    half = (max_tokens + (len(first) > len(second))) // 2  # the odd one goes to the longer text, as in `tokenizers`
    keep = min(len(first), max(half, max_tokens - len(second)))
    return first[:keep], second[: max_tokens - keep], max(0, len(first) + len(second) - max_tokens)


def count_tokens(items: Sequence[Item]) -> dict[str, int]:
    """The tokens of a batch, and the sum of squared lengths (attended positions), for measuring speed."""
    lengths = [len(row) for item in items for row in item.rows]
    return {"tokens": sum(lengths), "squares": sum(length * length for length in lengths)}
