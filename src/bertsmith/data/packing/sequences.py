"""Sequences of an epoch as ranges of the corpus, before their tokens are gathered."""

from dataclasses import dataclass, fields, replace
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bertsmith.data.packing.document_order import DocumentOrder

Int64Array = NDArray[np.int64]
Int32Array = NDArray[np.int32]  # there may be a billion of them


@runtime_checkable
class TokenSource(Protocol):
    """Prepared text: the ends of its sentences and documents, and the tokens of any of its ranges."""

    @property
    def sentence_ends(self) -> Int64Array: ...  # in tokens

    @property
    def document_ends(self) -> Int64Array: ...  # in sentences

    def gather(self, starts: Int64Array, lengths: Int64Array) -> NDArray[np.int32]: ...


@dataclass(frozen=True, kw_only=True)
class Sequences:
    """Ranges of the corpus, one row a sequence: a first text and, with pairs, a second one.

    With `cross_documents` the first text is a range of the document order, separators included.
    """

    first_start: Int64Array
    first_length: Int32Array
    second_start: Int64Array
    second_length: Int32Array
    label: Int32Array  # 0: the second text follows the first; 1: it is random (NSP) or comes before (SOP); -100: none
    epoch: Int32Array

    def __len__(self) -> int:
        return len(self.label)

    @property
    def lengths(self) -> Int64Array:
        """Tokens of each sequence, [CLS] and [SEP] included."""
        return (self.first_length + self.second_length + 2 + (self.label >= 0)).astype(np.int64)

    def take(self, rows: Int64Array) -> "Sequences":
        """A copy of these rows."""
        return replace(self, **{part.name: getattr(self, part.name)[rows] for part in fields(self)})


@dataclass(frozen=True, kw_only=True)
class UnitRanges:
    """Sequences as ranges of units: the first text is [start, split), its true second text [split, stop)."""

    start: Int64Array
    split: Int64Array
    stop: Int64Array
    limit: Int64Array  # the token up to which there was room, or text
    label: Int32Array
    epoch: Int32Array
    document_order: DocumentOrder | None = None  # with `cross_documents` these are positions in it, and not units

    def take(self, rows: Int64Array) -> "UnitRanges":
        """A copy of these rows."""
        columns = (part.name for part in fields(self) if part.name != "document_order")
        return replace(self, **{name: getattr(self, name)[rows] for name in columns})
