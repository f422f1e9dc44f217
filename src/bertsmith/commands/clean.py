"""`clean`: text without near-duplicates, other languages, rubbish, repeated lines and evaluation sets."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bertsmith import terminal
from bertsmith.commands.progress import progress_bar
from bertsmith.data.cleaning.clean import clean as clean_corpus
from bertsmith.data.cleaning.config import CleaningConfig
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.errors import RecipeError
from bertsmith.insight import cleaning
from bertsmith.train.clock import format_duration

CONSOLE = terminal.console()
FOLDER = "cleaned"  # in the folder of a run, or of prepared text


def clean(
    texts: Sequence[str],
    out: Path,
    *,
    similarity: float = 0.75,
    skip: Sequence[str] = (),
    personal: bool = False,
    decontaminate: Sequence[str] = (),
    workers: int | None = None,
    seconds: float | None = None,
    **reading: Any,
) -> dict[str, Any]:
    """Clean text into a folder that `make` and `prepare` read, with `clean.json` and the page `clean.html`.

    With `seconds`, only as much of the text is read as can be cleaned in that time.
    """
    config = CleaningConfig(
        similarity=similarity, skip=tuple(skip), personal=personal, decontaminate=tuple(map(str, decontaminate))
    )
    corpus = Corpus(texts, **reading)
    with progress_bar("cleaning", "documents") as show:
        result = clean_corpus(corpus, out, config, workers=workers, seconds=seconds, progress=show)
    for note in corpus.new_notes():
        CONSOLE.print(f"text: {note}")
    page = cleaning.write(out / cleaning.PAGE, result)
    for line in summary_lines(result):
        CONSOLE.print(line)
    CONSOLE.print(f"page: {page}")
    return result


def clean_into(
    texts: Sequence[str],
    out: Path,
    reading: dict[str, Any],
    *,
    decontaminate: Sequence[str] = (),
    workers: int | None = None,
    seconds: float | None = None,
) -> tuple[list[str], dict[str, Any]]:
    """Clean text into the folder of a run: the files of cleaned text, each read by its own layout."""
    folder = out / FOLDER
    result = clean(texts, folder, decontaminate=decontaminate, workers=workers, seconds=seconds, **reading)
    cleaning.write(out / cleaning.PAGE, result)  # beside the report
    return [str(folder / name) for name in result["files"]], {"layout": "auto"}


def check_decontaminate(clean: bool, decontaminate: Sequence[str] | None) -> None:
    """Refuse evaluation files where the text is not cleaned: they would be read, and have no effect."""
    if decontaminate and not clean:
        raise RecipeError("--decontaminate", "is part of cleaning", "Add --clean")


def summary_lines(result: dict[str, Any]) -> Iterator[str]:
    """A result as lines of text."""
    words, documents = result["words"], result["documents"]
    yield "already cleaned" if result.get("reused") else f"cleaned in {format_duration(result['seconds'])}"
    yield (
        f"  kept: {result['kept_documents']:,} of {documents:,} documents, {result['kept_words']:,} of {words:,} words "
        f"({result['kept_words'] / max(words, 1):.1%})"
    )
    if result["share_read"] < 1:
        yield f"  read: the first {result['share_read']:.0%} of the text, for lack of time"
    for rule in result["rules"]:
        counts = {"documents": rule["documents"], "lines": rule["lines"], "words": rule["words"]}
        if rule["words"] or rule["documents"] or rule["lines"]:
            yield f"  {rule['name']}: " + ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    if result["personal"]["on"]:
        yield f"  addresses replaced: {result['personal']['replaced']:,}"
    if evaluation := result.get("evaluation"):
        short = f" ({evaluation['short_texts']:,} are too short)" if evaluation["short_texts"] else ""
        yield f"  looked for: {evaluation['texts']:,} evaluation texts{short}"
