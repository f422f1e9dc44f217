"""Chunks of a corpus for the workers: deduplicated, and split into training and validation text."""

from collections.abc import Iterator
from dataclasses import dataclass

from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.shards.duplicates import DigestSet
from bertsmith.data.shards.validation import Validation, digest, document_key
from bertsmith.data.shards.workers import Documents

CHUNK_CHARACTERS = 1 << 19  # characters that go to a worker at a time


@dataclass(frozen=True)
class Chunk:
    """The counts of a chunk, and how far the corpus had been read."""

    documents: int  # read in this chunk
    duplicates: int  # of them dropped
    empty: int  # of them without a sentence
    digests: bytes  # of the other documents
    corrections: dict[str, int]  # bad lines replaced or skipped so far, by kind
    progress: float  # share of the corpus read so far


def chunks(
    corpus: Corpus, skip: int, seen: DigestSet, validation: Validation
) -> Iterator[tuple[Chunk, list[Documents]]]:
    """All documents after the first `skip`, those for training and those for validation."""
    train, valid = Documents(), Documents()
    documents = duplicates = empty = characters = 0
    digests = bytearray()
    for passage in corpus.passages(skip):
        documents += 1
        text_digest, size = digest(passage.texts)
        sentences = corpus.sentences(passage)
        sentences_digest = text_digest if passage.layout == "lines" else digest(sentences)[0]
        if not sentences:
            empty += 1
        elif not seen.add(sentences_digest):
            duplicates += 1
        else:
            for held_out, part in validation.split_document(document_key(text_digest), size, sentences):
                (valid if held_out else train).append(part)
            digests += sentences_digest
            characters += sum(map(len, sentences))
        if characters >= CHUNK_CHARACTERS:
            corrections, progress = dict(corpus.tally), corpus.progress
            yield Chunk(documents, duplicates, empty, bytes(digests), corrections, progress), [train, valid]
            train, valid = Documents(), Documents()
            documents = duplicates = empty = characters = 0
            digests.clear()
    yield Chunk(documents, duplicates, empty, bytes(digests), dict(corpus.tally), 1.0), [train, valid]
