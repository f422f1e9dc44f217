"""What every task is: an objective that can also be scored, since people have said what is right."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.data.batch import Batch, Tokens
from bertsmith.data.labelled.examples import Kind
from bertsmith.data.rows import BATCH_TOKENS, Row, map_rows, pack_rows
from bertsmith.models.transformer import Transformer
from bertsmith.objectives.base import Objective
from bertsmith.text.characters import boundary_characters
from bertsmith.text.tokenizer import Tokenizer

MAX_HELD_ITEMS = 65_536  # items whose outputs are held at a time


@dataclass(frozen=True, kw_only=True)
class Item:
    """What is learnt at once: sequences that belong together, and their target."""

    rows: tuple[Row, ...]
    example: int  # the number of the example it is made from; a long one becomes several items
    target: Any = None  # as the task wants it; None where nobody has said
    notes: Any = None  # what the task needs to read its own outputs
    truncated: int = 0  # tokens that did not fit


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """The shape that batches are poured into. On a GPU few shapes, so that a recorded step can be played again."""

    batch_size: int  # in every batch; the last of an epoch may lack some
    max_length: int  # no sequence is longer
    pad_to_multiple_of: int = 0  # the number of tokens is a multiple of this; 0: as many as there are
    padding: int = 0  # the token that fills up

    def collate(self, rows: Sequence[Row], sequences: int) -> Tokens:
        """Rows end to end; with buckets also empty sequences up to their usual number, and filler behind them."""
        if not self.pad_to_multiple_of:
            return pack_rows(rows)
        tokens = sum(map(len, rows))
        gap = -tokens % self.pad_to_multiple_of
        filler = [self._filler(min(self.max_length, gap - begin)) for begin in range(0, gap, self.max_length)]
        laid = pack_rows([*rows, *filler])
        most = sequences + -(-self.pad_to_multiple_of // self.max_length)
        bounds = torch.full((most + 1,), int(laid.bounds[-1]), dtype=torch.int32)
        # Sequences that are missing from the last batch are empty ones at its end: heads read the first `sequences`.
        bounds[: len(laid.bounds)] = laid.bounds
        return Tokens(
            ids=laid.ids,
            bounds=bounds,
            positions=laid.positions,
            max_length=self.max_length,
            segments=laid.segments,
            character_ids=laid.character_ids,
        )

    def _filler(self, length: int) -> Row:
        return Row(np.full(length, self.padding, np.int32), np.zeros(length, np.int32))


class Task(Objective):
    """Learning with labels: examples become items, items batches, and outputs predictions that can be scored."""

    Config: ClassVar[Any]
    trunk: Transformer
    labels: tuple[str, ...]  # the classes by number

    def __init__(self, trunk: Any, config: Any, labels: tuple[str, ...]) -> None:
        super().__init__()
        self.trunk, self.config, self.labels = trunk, config, labels

    @classmethod
    @abstractmethod
    def file_kind(cls, config: Any) -> Kind:
        """The kind of file that its examples come from."""

    @classmethod
    def collect_labels(cls, examples: Iterable[Any]) -> tuple[str, ...]:
        """The labels that examples name, in the order of their numbers; none where the task has none."""
        return ()

    @abstractmethod
    def preprocess(self, examples: Sequence[Any], tokenizer: Tokenizer, max_length: int) -> list[Item]:
        """Examples as the network sees them, in order."""

    @abstractmethod
    def collate(self, items: Sequence[Item], bucket: Bucket) -> Batch:
        """Items as one batch."""

    @abstractmethod
    def outputs(self, tokens: Tokens) -> list[Tensor]:
        """What the network says of each sequence."""

    @abstractmethod
    def postprocess(self, example: Any, items: Sequence[Item], outputs: Sequence[NDArray[np.float32]]) -> Any:
        """The prediction for an example, from the outputs of all its sequences: a value that JSON can hold."""

    def postprocess_detailed(self, example: Any, items: Sequence[Item], outputs: Sequence[NDArray[np.float32]]) -> Any:
        """The same prediction, with how sure the network is where `read` does not say it: for reports."""
        return self.postprocess(example, items, outputs)

    @abstractmethod
    def score(self, examples: Sequence[Any], predictions: Sequence[Any]) -> dict[str, float]:
        """How good predictions are, by the measures the field uses; the first is the headline."""


@torch.inference_mode()
def predict(
    task: Task,
    examples: Sequence[Any],
    items: Sequence[Item],
    *,
    device: torch.device | str,
    budget: int = BATCH_TOKENS,
    detailed: bool = False,
) -> list[Any]:
    """A prediction for every example, in order, whatever the lengths."""
    found = list[Any]()
    for start, stop, some in _chunks(items, len(examples)):
        found += _predict_chunk(task, examples[start:stop], some, start, device, budget, detailed)
    return found


def _predict_chunk(
    task: Task,
    examples: Sequence[Any],
    items: Sequence[Item],
    start: int,
    device: torch.device | str,
    budget: int,
    detailed: bool,
) -> list[Any]:
    rows = [row for item in items for row in item.rows]
    found = iter(map_rows(rows, lambda tokens: _to_host(task.outputs(tokens)), device, budget))
    own: list[list[Item]] = [[] for _ in examples]
    said: list[list[NDArray[np.float32]]] = [[] for _ in examples]
    for item in items:
        own[item.example - start].append(item)
        said[item.example - start] += [next(found) for _ in item.rows]
    read = task.postprocess_detailed if detailed else task.postprocess
    return [read(*whole) for whole in zip(examples, own, said, strict=True)]


def _chunks(items: Sequence[Item], count: int) -> Iterator[tuple[int, int, Sequence[Item]]]:
    """Items in parts that memory can hold, each with the range of its examples; a few items are one part."""
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
    """All outputs of a pass on the host, brought there in one go."""
    if not outputs:
        return []
    shapes = [output.shape for output in outputs]
    flat = torch.cat([output.reshape(-1) for output in outputs]).float().cpu().numpy()
    ends = np.cumsum([shape.numel() for shape in shapes])
    return [part.reshape(shape) for part, shape in zip(np.split(flat, ends[:-1]), shapes, strict=True)]


def with_special_tokens(tokenizer: Tokenizer, first: Sequence[int], second: Sequence[int] | None = None) -> Row:
    """[CLS] first [SEP], or [CLS] first [SEP] second [SEP], with the special pieces that the tokenizer has for it."""
    before, between, after = tokenizer.template
    if second is None or not (len(second) or after):  # what only parts texts is no last token to read from
        ids = np.array([*before, *first, *after] or [tokenizer.start_id], np.int32)  # no text at all begins, at least
        return Row(ids, np.zeros(len(ids), np.int32))
    sizes = len(before) + len(first) + len(between), len(second) + len(after)
    ids = np.array([*before, *first, *between, *second, *after], np.int32)
    return Row(ids, np.repeat(np.array([0, 1], np.int32), sizes))


def with_characters(tokenizer: Tokenizer, ids: Sequence[int], letters: NDArray[np.int16]) -> Row:
    """The same of one text for a network that reads letters: what begins it, its words, and always what ends it."""
    begin, end = boundary_characters(letters.shape[1])
    framed_ids = np.array([tokenizer.start_id, *ids, tokenizer.stop_id], np.int32)
    return Row(framed_ids, np.zeros(len(framed_ids), np.int32), np.concatenate([[begin], letters, [end]]))


def truncate(first: list[int], second: list[int] | None, max_tokens: int) -> tuple[list[int], list[int] | None, int]:
    """Texts cut to the room there is, the longer one first; and how many tokens were cut."""
    if second is None:
        return first[:max_tokens], None, max(0, len(first) - max_tokens)
    half = (max_tokens + (len(first) > len(second))) // 2  # the odd one goes to the longer text, as in `tokenizers`
    keep = min(len(first), max(half, max_tokens - len(second)))
    return first[:keep], second[: max_tokens - keep], max(0, len(first) + len(second) - max_tokens)


def count_tokens(items: Sequence[Item]) -> dict[str, int]:
    """How many tokens a batch has, and how many each of them looks at, for measuring speed."""
    lengths = [len(row) for item in items for row in item.rows]
    return {"tokens": sum(lengths), "squares": sum(length * length for length in lengths)}
