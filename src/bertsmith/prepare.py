"""The composition root of text made ready to be read: `tokenizer` learns a vocabulary, `prepare` makes shards."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from rich import progress as bars

from bertsmith import terminal
from bertsmith.callable import make_callable
from bertsmith.data import files
from bertsmith.data.corpus import Corpus
from bertsmith.data.prepare import Summary
from bertsmith.data.prepare import prepare as tokenise
from bertsmith.models.folder import model_folder
from bertsmith.text import language
from bertsmith.text import tokenizer as pieces
from bertsmith.text.extend import extend as extended
from bertsmith.text.measure import Sample, measure
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig
from bertsmith.train.clock import spoken

SAY = terminal.console()
KEPT = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "tokenizer.json.writing")  # in a tokenizer's folder
QUICKLY = 300_000  # characters that a vocabulary is measured on where time is short
make_callable(__name__)  # bertsmith.prepare(...) is a call, too


def tokenizer(texts: Sequence[str], out: Path, settings: TokenizerConfig, **reading: Any) -> None:
    """Train a vocabulary and say how well it fits. What was not said of capitals and accents follows the text."""
    check_tokenizer_folder(out)
    learn(Corpus(texts, **reading), settings, out)


def check_tokenizer_folder(out: Path) -> None:
    """Refuse, before any work, a folder that holds more than a tokenizer: a model's own would be written over."""
    files.check_folder(out)
    others = [path for path in sorted(out.iterdir()) if path.name not in KEPT] if out.is_dir() else []
    if others:
        files.check_own(out, marks=(), written=[path.name for path in others])


def extend(texts: Sequence[str], out: Path, base: Path, more: int, **reading: Any) -> None:
    """A vocabulary with more pieces for a text, and how well it fits before and after."""
    check_tokenizer_folder(out)
    before = Tokenizer.load(model_folder(base))
    with SAY.status("learning new pieces"):
        corpus = Corpus(texts, **reading)
        sample = Sample(corpus.lines())
        for _ in sample:
            pass  # it keeps what it lets through
        after = extended(before, sample.kept, more)
        after.save(out)
        measures = {"before": measure(before, sample.kept), "after": measure(after, sample.kept)}
    tell(corpus)
    for name, found in measures.items():
        SAY.print(name, style="bold")
        SAY.print(str(found))
    new = [after.piece(number) for number in range(before.vocabulary, after.vocabulary)]
    SAY.print(f"new              {'  '.join(new[:24])}{' ...' if len(new) > 24 else ''}")
    if len(new) < more:
        SAY.print(f"{len(new):,} pieces are new, not {more:,}: the text repeats no more that the vocabulary lacks")


def prepare(
    texts: Sequence[str], out: Path, tokenizer: Path, *, valid: float = 0.01, workers: int | None = None, **reading: Any
) -> Summary:
    """Tokenise a text once, into shards."""
    files.check_folder(out)
    return shards(Corpus(texts, **reading), Tokenizer.load(model_folder(tokenizer)), out, valid, workers)


@dataclass(frozen=True)
class Learnt:
    """A vocabulary that was learnt, and what it took."""

    tokenizer: Tokenizer
    reason: str  # for what was done to capitals and accents
    characters: int  # that it was learnt from
    pace: float  # seconds to cut a character into pieces


def learn(corpus: Corpus, settings: TokenizerConfig, out: Path, seconds: float | None = None) -> Learnt:
    """A vocabulary of a text that is open already. `seconds`: how long text is read for it, if not all of it is."""
    with SAY.status("training the vocabulary"):
        fitted, reason, lines = _fitted(corpus, settings)
        if reason:
            SAY.print(reason)
        sample = Sample(lines if seconds is None else _for(seconds, lines))
        trained = pieces.train(sample, fitted)
        trained.save(out)
        began = time.monotonic()
        measures = measure(trained, sample.kept, None if seconds is None else QUICKLY)
        pace = (time.monotonic() - began) / max(min(sum(map(len, sample.kept)), QUICKLY), 1)
    tell(corpus)
    SAY.print(str(measures))
    if trained.vocabulary < settings.vocabulary and seconds is None:
        SAY.print(fewer(trained.vocabulary, settings.vocabulary))
    return Learnt(trained, reason, sample.taken, pace)


def fewer(made: int, asked: int) -> str:
    """Why a vocabulary is smaller than was asked for."""
    return f"{made:,} pieces, not {asked:,}: the text has no more that occur at least twice"


def _fitted(corpus: Corpus, settings: TokenizerConfig) -> tuple[TokenizerConfig, str, Iterable[str]]:
    """The settings that suit the text's language, a line that says so, and the lines of the text.

    What was said stays as it was said; byte-level BPE and T5 keep capitals and accents in any case.
    """
    lines: Iterable[str] = corpus.lines()
    if settings.kind in ("bpe", "t5") or None not in (settings.lowercase, settings.strip_accents):
        return settings, "", lines
    some = corpus.sample(language.SAMPLE)
    if not some:  # standard input can be read but once
        rest = iter(lines)
        some = list(islice(rest, 1_000))
        lines = chain(some, rest)
    found = language.writing(some)
    lower = found.lowercase if settings.lowercase is None else settings.lowercase
    strip = found.strip_accents and lower if settings.strip_accents is None else settings.strip_accents
    return replace(settings, lowercase=lower, strip_accents=strip), language.said(lower, strip, found.reason), lines


def _for(seconds: float, lines: Iterable[str]) -> Iterator[str]:
    """The lines that can be read in a time."""
    end = time.monotonic() + seconds
    for line in lines:
        yield line
        if time.monotonic() > end:
            return


def tell(corpus: Corpus) -> None:
    """Say what was skipped, and how files were read that are not plain UTF-8 text."""
    for line in corpus.news():
        SAY.print(f"text: {line}")


def shards(corpus: Corpus, tokenizer: Tokenizer, out: Path, valid: float = 0.01, workers: int | None = None) -> Summary:
    """Shards of a text that is open already."""
    with _bar("preparing") as show:
        summary = tokenise(corpus, tokenizer, out, valid=valid, workers=workers, progress=show)
    tell(corpus)
    for line in _lines(summary, language.writing(corpus.sample(language.SAMPLE // 10)).units):
        SAY.print(line)
    return summary


def _lines(summary: Summary, units: str = "words") -> Iterator[str]:
    """A summary as a person reads it; in which units its words are counted."""
    yield "already prepared" if summary.already else f"prepared in {spoken(summary.seconds)}"
    for name, split in (("training", summary.train), ("validation", summary.valid)):
        parts = {"documents": "documents", "sentences": "sentences", "words": units, "tokens": "tokens"}
        counts = ", ".join(f"{split[part]:,} {name}" for part, name in parts.items())
        share = split["bytes"] / max(summary.train["bytes"] + summary.valid["bytes"], 1)
        yield f"  {name}: {counts} ({share:.1%} of the text)"
    left_out = {
        "duplicate documents": summary.duplicates,
        "empty documents": summary.empty,
        "empty sentences": summary.dropped,
    }
    told = [f"{count:,} {name}" for name, count in (left_out | summary.text).items() if count]
    if told:
        yield "  replaced or left out: " + ", ".join(told)


@contextmanager
def _bar(title: str) -> Iterator[Callable[[float, int], None]]:
    """A bar with the time left on a terminal, a line at every tenth elsewhere."""
    if SAY.is_terminal:
        columns = ("{task.description}", bars.BarColumn(), bars.TaskProgressColumn(), bars.TimeRemainingColumn())
        with bars.Progress(*columns, console=SAY) as bar:
            task = bar.add_task(title, total=1.0)
            yield lambda share, tokens: bar.update(task, completed=share, description=f"{title}, {tokens:,} tokens")
        return
    shown = 0

    def line(share: float, tokens: int) -> None:
        nonlocal shown
        if int(share * 10) > shown:
            shown = int(share * 10)
            SAY.print(f"{title} {share:.0%}, {tokens:,} tokens")

    yield line
