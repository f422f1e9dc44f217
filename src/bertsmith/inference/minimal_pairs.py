"""Minimal pairs: two sentences that differ in little, one of them ungrammatical. Does the model prefer the good one?

BLiMP (Warstadt et al. 2020) has 67 phenomena of English with 1,000 pairs each.
"""

import json
import lzma
import tarfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import torch

from bertsmith.data.corpus.decompression import READ_BYTES, open_decompressed
from bertsmith.data.corpus.lines import Cleaner, clean_lines
from bertsmith.data.corpus.sources import find_sources
from bertsmith.data.rows import BATCH_TOKENS
from bertsmith.errors import RecipeError, TextError
from bertsmith.inference.likelihood import score
from bertsmith.inference.masked_copies import PllForm
from bertsmith.objectives.base import LanguageModel
from bertsmith.text.tokenizer import Tokenizer

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".txz")
MAX_LINE_CHARACTERS = 1 << 16  # characters a line may have
MAX_FILE_BYTES = 1 << 28  # bytes a file in an archive may unpack to
MAX_ARCHIVE_FILES = 10_000  # files and folders an archive may hold: BLiMP has 67
ARCHIVE_ERRORS = (tarfile.TarError, EOFError, OSError, lzma.LZMAError, zlib.error)


@dataclass(frozen=True, kw_only=True)
class MinimalPair:
    """A grammatical and an ungrammatical sentence that differ in one phenomenon."""

    phenomenon: str  # BLiMP's UID; without one, the name of the file
    field: str = ""  # of linguistics: morphology, syntax, semantics, syntax_semantics
    term: str = ""  # of linguistics: binding, ellipsis, ...
    good: str
    bad: str


@dataclass(frozen=True, kw_only=True)
class MinimalPairScores:
    """Accuracy on minimal pairs: the share of pairs whose good sentence has the higher likelihood.

    A tie counts as wrong, as BLiMP has it: the good sentence must be strictly more probable.
    """

    accuracy: float  # the mean over phenomena, as BLiMP reports it; so are those of fields and terms
    phenomena: dict[str, float]
    fields: dict[str, float]
    terms: dict[str, float]
    pairs: int
    ties: int

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self)


def read_minimal_pairs(path: str | Path, limit: int | None = None) -> list[MinimalPair]:
    """The pairs in a .jsonl file, a folder of them, or a tar archive; of each phenomenon the first `limit`."""
    if limit is not None and limit < 1:
        raise RecipeError("limit", f"{limit} pairs of each phenomenon are none", "Give at least 1")
    taken: Counter[str] = Counter()
    pairs = []
    for place, name, blocks in _files(Path(path)):
        for pair in _read(blocks, place, name.partition(".")[0]):
            taken[pair.phenomenon] += 1
            if limit is None or taken[pair.phenomenon] <= limit:
                pairs.append(pair)
    if not pairs:
        raise TextError(path, "holds no pair", "Every line is a JSON object with sentence_good and sentence_bad")
    return pairs


def evaluate(
    objective: LanguageModel,
    tokenizer: Tokenizer,
    pairs: Sequence[MinimalPair],
    *,
    pll_form: PllForm = "within_word",
    device: torch.device | str | None = None,
    batch_tokens: int = BATCH_TOKENS,
) -> MinimalPairScores:
    """Score the pairs by the (pseudo-)log-likelihood of the whole sentences."""
    texts = [text for pair in pairs for text in (pair.good, pair.bad)]
    totals = [
        scored.log_likelihood
        for scored in score(objective, tokenizer, texts, pll_form=pll_form, device=device, batch_tokens=batch_tokens)
    ]
    return accuracies(pairs, list(zip(totals[::2], totals[1::2], strict=True)))


def accuracies(pairs: Sequence[MinimalPair], log_likelihoods: Sequence[tuple[float, float]]) -> MinimalPairScores:
    """Accuracies from the log-likelihoods of the good and the bad sentence of each pair."""
    right = [good > bad for good, bad in log_likelihoods]

    def by(group: Callable[[MinimalPair], str]) -> dict[str, float]:
        """The mean over the phenomena of each group that has a name."""
        marks: dict[str, dict[str, list[bool]]] = {}
        for pair, mark in zip(pairs, right, strict=True):
            marks.setdefault(group(pair), {}).setdefault(pair.phenomenon, []).append(mark)
        return {name: _mean([_mean(part) for part in parts.values()]) for name, parts in marks.items() if name}

    phenomena = by(lambda pair: pair.phenomenon)
    return MinimalPairScores(
        accuracy=_mean(list(phenomena.values())),
        phenomena=phenomena,
        fields=by(lambda pair: pair.field),
        terms=by(lambda pair: pair.term),
        pairs=len(pairs),
        ties=sum(good == bad for good, bad in log_likelihoods),
    )


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers) if numbers else 0.0


def _files(path: Path) -> Iterator[tuple[str, str, Iterator[bytes]]]:
    """The JSON-lines files of a path: the location, the name and the bytes of each."""
    if path.is_file() and path.name.lower().endswith(ARCHIVES):
        yield from _members(path)
        return
    for source in find_sources([str(path)]):
        if source.kind == ".jsonl":
            yield source.name, source.path.name, source.blocks(lambda reached: None)
        elif not path.is_dir():
            raise TextError(path, f"has the unknown ending '{source.kind}'", f"Known: .jsonl {' '.join(ARCHIVES)}")


def _members(path: Path) -> Iterator[tuple[str, str, Iterator[bytes]]]:
    """The files of an archive, read as a stream; nothing is written to disk."""
    with _explained(path), open_decompressed(path) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        for number, member in enumerate(archive):
            if number >= MAX_ARCHIVE_FILES:
                raise TextError(path, f"holds more than {MAX_ARCHIVE_FILES:,} files", "These are no minimal pairs")
            inner = PurePosixPath(member.name)
            place = f"{path}:{inner}"
            if inner.is_absolute() or ".." in inner.parts:
                raise TextError(path, f"names '{member.name[:80]}', outside of itself", "Do not trust this archive")
            if not member.isfile() or inner.suffix != ".jsonl" or inner.name.startswith("."):
                continue
            if member.size > MAX_FILE_BYTES:
                raise TextError(place, f"is larger than {MAX_FILE_BYTES:,} bytes", "These are no minimal pairs")
            yield place, inner.name, _blocks(archive, member, place)


def _blocks(archive: tarfile.TarFile, member: tarfile.TarInfo, place: str) -> Iterator[bytes]:
    stream = archive.extractfile(member)
    assert stream is not None  # it is a file
    with _explained(place):
        while block := stream.read(READ_BYTES):
            yield block


@contextmanager
def _explained(place: object) -> Iterator[None]:
    """Turn the errors of the decompressors into one line."""
    try:
        yield
    except ARCHIVE_ERRORS as error:
        reason = str(error).splitlines() or ["it is damaged"]
        raise TextError(place, f"cannot be read ({reason[0].rstrip('.')})", "Get the archive again") from None


def _read(blocks: Iterator[bytes], place: str, stem: str) -> Iterator[MinimalPair]:
    """The pairs of one file; a line without a pair is refused."""
    cleaner = Cleaner("fail", MAX_LINE_CHARACTERS, Counter())
    for first, lines in clean_lines(blocks, place, cleaner):
        for number, line in enumerate(lines, first):
            if line and not line.isspace():
                yield _pair(line, f"{place}:{number}", stem, cleaner)


def _pair(line: str, place: str, stem: str, cleaner: Cleaner) -> MinimalPair:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise TextError(place, "is no JSON object")
    defaults = {"UID": stem, "field": "", "linguistics_term": ""}
    words = {}
    for key in ("sentence_good", "sentence_bad", *defaults):
        word = record.get(key, defaults.get(key))
        if not isinstance(word, str) or (key not in defaults and not word.strip()):
            raise TextError(place, f"has no text in '{key}'")
        # The line is clean: only what JSON spells out can be something else.
        words[key] = word if "\\" not in line else cleaner.clean(word, place) or ""
    return MinimalPair(
        phenomenon=words["UID"] or stem,
        field=words["field"].replace("/", "_"),  # BLiMP writes syntax_semantics once in another way
        term=words["linguistics_term"],
        good=words["sentence_good"],
        bad=words["sentence_bad"],
    )
