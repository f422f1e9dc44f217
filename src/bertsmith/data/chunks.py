"""A corpus in chunks for the workers: no document twice, and some of them kept apart for validation."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

from bertsmith.data.corpus import Corpus
from bertsmith.data.crew import Documents
from bertsmith.data.journal import DIGEST
from bertsmith.data.seen import Seen

CHUNK = 1 << 19  # letters that go to a worker at a time


@dataclass(frozen=True)
class Chunk:
    """Where reading stood when some documents went off to be encoded."""

    documents: int  # read in this chunk
    duplicates: int  # of them dropped
    empty: int  # of them without a sentence
    digests: bytes  # of those that are kept
    text: dict[str, int]  # what reading has replaced or skipped so far
    share: float  # of the corpus that has been read so far


def chunks(corpus: Corpus, skip: int, seen: Seen, valid: float) -> Iterator[tuple[Chunk, list[Documents]]]:
    """All documents after the first `skip`, those for training and those for validation."""
    train, apart = Documents(), Documents()
    documents = duplicates = empty = letters = 0
    digests = bytearray()
    for document in corpus.documents(skip):
        documents += 1
        digest = blake2b("\n".join(document.sentences).encode(), digest_size=DIGEST).digest()
        if not document.sentences:
            empty += 1
        elif not seen.add(digest):
            duplicates += 1
        else:
            # The digest is as good as a die, and the same for the same text wherever it stands.
            chosen = int.from_bytes(digest[:8], "big") < valid * 2**64
            (apart if chosen else train).append(document.sentences)
            digests += digest
            letters += sum(map(len, document.sentences))
        if letters >= CHUNK:
            text, share = dict(corpus.tally), corpus.share
            yield Chunk(documents, duplicates, empty, bytes(digests), text, share), [train, apart]
            train, apart = Documents(), Documents()
            documents = duplicates = empty = letters = 0
            digests.clear()
    yield Chunk(documents, duplicates, empty, bytes(digests), dict(corpus.tally), 1.0), [train, apart]
