"""A corpus in chunks for the workers: no document twice, and a part of the text kept apart for validation."""

from collections.abc import Iterator
from dataclasses import dataclass

from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.shards.duplicates import DigestSet
from bertsmith.data.shards.validation import Validation, digest, document_key
from bertsmith.data.shards.workers import Documents

CHUNK = 1 << 19  # letters that go to a worker at a time


@dataclass(frozen=True)
class Chunk:
    """Where reading stood when some documents went off to be encoded."""

    documents: int  # read in this chunk
    duplicates: int  # of them dropped
    empty: int  # of them without a sentence
    digests: bytes  # of those that are kept
    text: dict[str, int]  # what reading has replaced or skipped so far
    progress: float  # of the corpus that has been read so far


def chunks(corpus: Corpus, skip: int, seen: DigestSet, valid: Validation) -> Iterator[tuple[Chunk, list[Documents]]]:
    """All documents after the first `skip`, those for training and those for validation."""
    train, apart = Documents(), Documents()
    documents = duplicates = empty = letters = 0
    digests = bytearray()
    for passage in corpus.passages(skip):
        documents += 1
        found, size = digest(passage.texts)
        sentences = passage.sentences()
        same = found if passage.layout == "lines" else digest(sentences)[0]
        if not sentences:
            empty += 1
        elif not seen.add(same):
            duplicates += 1
        else:
            for kept, part in valid.split_document(document_key(found), size, sentences):
                (apart if kept else train).append(part)
            digests += same
            letters += sum(map(len, sentences))
        if letters >= CHUNK:
            text, share = dict(corpus.tally), corpus.progress
            yield Chunk(documents, duplicates, empty, bytes(digests), text, share), [train, apart]
            train, apart = Documents(), Documents()
            documents = duplicates = empty = letters = 0
            digests.clear()
    yield Chunk(documents, duplicates, empty, bytes(digests), dict(corpus.tally), 1.0), [train, apart]
