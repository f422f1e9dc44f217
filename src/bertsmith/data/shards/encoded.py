"""Encoded documents: their token ids, on the way from a worker to the disk."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int32, Int64
from numpy import ndarray


@dataclass(frozen=True)
class EncodedDocuments:
    """All tokens, the length of each sentence, and the size of each document."""

    tokens: bytes
    lengths: Int32[ndarray, "sentences"]
    documents: Int64[ndarray, "documents 3"]  # sentences, bytes of text, words
    dropped: int = 0  # sentences that had no tokens
    empty: int = 0  # documents that had no tokens

    def pack(self) -> tuple[tuple[bytes, bytes, bytes], tuple[int, int]]:
        """The documents as plain bytes and numbers, for a pipe."""
        return (self.tokens, self.lengths.tobytes(), self.documents.tobytes()), (self.dropped, self.empty)

    @staticmethod
    def unpack(buffers: tuple[bytes, bytes, bytes], counts: tuple[int, int]) -> "EncodedDocuments":
        tokens, lengths, documents = buffers
        rows = np.frombuffer(documents, np.int64).reshape(-1, 3)
        return EncodedDocuments(tokens, np.frombuffer(lengths, np.int32), rows, *counts)

    def split_last(self) -> tuple["EncodedDocuments", "EncodedDocuments"]:
        """All documents except the last, and the last."""
        sentences = len(self.lengths) - int(self.documents[-1, 0])
        size = len(self.tokens) // int(self.lengths.sum()) * int(self.lengths[:sentences].sum())
        return (
            EncodedDocuments(self.tokens[:size], self.lengths[:sentences], self.documents[:-1]),
            EncodedDocuments(self.tokens[size:], self.lengths[sentences:], self.documents[-1:]),
        )
