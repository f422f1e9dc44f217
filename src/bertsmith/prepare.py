"""The composition root of text made ready to be read: `tokenizer` learns a vocabulary, `prepare` makes shards."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich import progress as bars

from bertsmith import terminal
from bertsmith.data.corpus import Corpus
from bertsmith.data.prepare import Summary
from bertsmith.data.prepare import prepare as tokenise
from bertsmith.models.folder import model_folder
from bertsmith.text import tokenizer as pieces
from bertsmith.text.extend import extend as extended
from bertsmith.text.measure import Sample, measure
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig
from bertsmith.train.clock import spoken

SAY = terminal.console()


def tokenizer(texts: Sequence[str], out: Path, settings: TokenizerConfig, **reading: Any) -> None:
    """Train a vocabulary and say how well it fits."""
    learn(Corpus(texts, **reading), settings, out)


def extend(texts: Sequence[str], out: Path, base: Path, more: int, **reading: Any) -> None:
    """A vocabulary with more pieces for a text, and how well it fits before and after."""
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
    return shards(Corpus(texts, **reading), Tokenizer.load(model_folder(tokenizer)), out, valid, workers)


def learn(corpus: Corpus, settings: TokenizerConfig, out: Path) -> None:
    """A vocabulary of a text that is open already."""
    with SAY.status("training the vocabulary"):
        sample = Sample(corpus.lines())
        trained = pieces.train(sample, settings)
        trained.save(out)
        measures = measure(trained, sample.kept)
    tell(corpus)
    SAY.print(str(measures))


def tell(corpus: Corpus) -> None:
    """Say what was skipped, and how files were read that are not plain UTF-8 text."""
    for line in corpus.news():
        SAY.print(f"text: {line}")


def shards(corpus: Corpus, tokenizer: Tokenizer, out: Path, valid: float = 0.01, workers: int | None = None) -> Summary:
    """Shards of a text that is open already."""
    with _bar("preparing") as show:
        summary = tokenise(corpus, tokenizer, out, valid=valid, workers=workers, progress=show)
    tell(corpus)
    for line in _lines(summary):
        SAY.print(line)
    return summary


def _lines(summary: Summary) -> Iterator[str]:
    """A summary as a person reads it."""
    yield "already prepared" if summary.already else f"prepared in {spoken(summary.seconds)}"
    for name, split in (("training", summary.train), ("validation", summary.valid)):
        counts = ", ".join(f"{split[part]:,} {part}" for part in ("documents", "sentences", "words", "tokens"))
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
