"""`tokenizer`: train a tokenizer or extend a vocabulary; `prepare`: tokenise text into shards."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from bertsmith import files, terminal
from bertsmith.commands import clean as cleaning
from bertsmith.commands.progress import progress_bar
from bertsmith.data.address import is_address
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.shards.prepare import Summary
from bertsmith.data.shards.prepare import prepare as tokenise
from bertsmith.errors import RecipeError
from bertsmith.models.hf.folder import model_folder
from bertsmith.text import language
from bertsmith.text import tokenizer as tokenizers
from bertsmith.text.extend import extend as extend_tokenizer
from bertsmith.text.fertility import Sample, measure_fertility
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig
from bertsmith.train.clock import format_duration

CONSOLE = terminal.console()
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "tokenizer.json.writing")
CLEAN_BEFORE = "Clean it first, with `bertsmith clean`, and prepare what that wrote"
QUICK_SAMPLE = 300_000  # characters that fertility is measured on within a time budget
READINGS = 2  # of the text by `prepare`: validation is chosen, and then all is tokenised
NEW_TOKENS = 1_000  # that `--extend` adds by default


def tokenizer(texts: Sequence[str], out: Path, settings: TokenizerConfig, **reading: Any) -> None:
    """Train a tokenizer and print its fertility. Case and accents follow the language unless they are given."""
    check_tokenizer_folder(out)
    train_tokenizer(Corpus(texts, **reading), settings, out)


def check_tokenizer_folder(out: Path) -> None:
    """Refuse a folder that holds other files than a tokenizer's: a model's tokenizer would be overwritten."""
    files.check_folder(out)
    others = [path for path in sorted(out.iterdir()) if path.name not in TOKENIZER_FILES] if out.is_dir() else []
    if others:
        files.check_not_foreign(out, markers=(), outputs=[path.name for path in others])


def new_or_extended(
    texts: Sequence[str],
    out: Path,
    settings: Mapping[str, Any],
    *,
    model: Path | None,
    new_tokens: int | None,
    **reading: Any,
) -> None:
    """A tokenizer with these settings, or a model's with new tokens. Options that would be ignored are refused."""
    given = {name: value for name, value in settings.items() if value is not None}
    if model is None:
        if new_tokens is not None:
            raise RecipeError("--new-tokens", "is how many tokens --extend adds", "Name the model: --extend MODEL")
        tokenizer(texts, out, TokenizerConfig(**given), **reading)
        return
    for name in given:
        fact = "is for a new tokenizer, and --extend adds to a model's own"
        raise RecipeError(f"--{name.replace('_', '-')}", fact, "Leave out one of them")
    extend(texts, out, model, NEW_TOKENS if new_tokens is None else new_tokens, **reading)


def extend(texts: Sequence[str], out: Path, base: Path, more: int, **reading: Any) -> None:
    """Extend a vocabulary with tokens of a text, and print its fertility before and after."""
    check_tokenizer_folder(out)
    before = Tokenizer.load(model_folder(base))
    with CONSOLE.status("learning new tokens"):
        corpus = Corpus(texts, **reading)
        sample = Sample(corpus.lines())
        for _ in sample:
            pass  # the sample keeps the lines that pass through it
        after = extend_tokenizer(before, sample.kept, more)
        after.save(out)
        fertilities = {"before": measure_fertility(before, sample.kept), "after": measure_fertility(after, sample.kept)}
    print_notes(corpus)
    for name, fertility in fertilities.items():
        CONSOLE.print(name, style="bold")
        CONSOLE.print(str(fertility))
    new = [after.piece(number) for number in range(before.vocabulary, after.vocabulary)]
    CONSOLE.print(f"new              {'  '.join(new[:24])}{' ...' if len(new) > 24 else ''}")
    if len(new) < more:
        CONSOLE.print(f"{len(new):,} new tokens, not {more:,}: the text repeats no others that the vocabulary lacks")


def prepare(
    texts: Sequence[str],
    out: Path,
    tokenizer: Path | Tokenizer,
    *,
    validation_share: float = 0.01,
    workers: int | None = None,
    on: str | None = None,
    clean: bool = False,
    decontaminate: Sequence[str] = (),
    **reading: Any,
) -> Summary:
    """Tokenise and deduplicate text into shards; with `clean`, after cleaning it; with `on`, on a cluster."""
    cleaning.check_decontaminate(clean, decontaminate)
    if not is_address(out):
        files.check_folder(out)
    elif clean:
        raise RecipeError("--clean", "writes the cleaned text next to the shards, here", CLEAN_BEFORE)
    if clean:
        texts, reading = cleaning.clean_into(texts, out, reading, decontaminate=decontaminate, workers=workers)
    loaded = tokenizer if isinstance(tokenizer, Tokenizer) else Tokenizer.load(model_folder(tokenizer))
    return prepare_shards(Corpus(texts, **reading), loaded, out, validation_share, workers, on)


@dataclass(frozen=True)
class TrainedTokenizer:
    """A tokenizer that was just trained, with the pace of preparing text by it."""

    tokenizer: Tokenizer
    reason: str  # for its settings of case and accents
    characters: int  # that it was trained on
    seconds_per_character: float  # of reading and tokenising


def train_tokenizer(
    corpus: Corpus, settings: TokenizerConfig, out: Path, seconds: float | None = None
) -> TrainedTokenizer:
    """Train a tokenizer on a corpus; with `seconds`, on as much text as can be read in that time."""
    with CONSOLE.status("training the tokenizer"):
        fitted, reason, lines = _fit_to_language(corpus, settings)
        if reason:
            CONSOLE.print(reason)
        read = TimedLines(lines)
        sample = Sample(read if seconds is None else read_for(seconds, read))
        trained = tokenizers.train(sample, fitted)
        trained.save(out)
        began = time.monotonic()
        fertility = measure_fertility(trained, sample.kept, None if seconds is None else QUICK_SAMPLE)
        pace = (time.monotonic() - began) / max(min(sum(map(len, sample.kept)), QUICK_SAMPLE), 1)
        pace += READINGS * read.seconds / max(sample.characters, 1)  # documents take longer to read than to tokenise
    print_notes(corpus)
    CONSOLE.print(str(fertility))
    if trained.vocabulary < settings.vocabulary and seconds is None:
        CONSOLE.print(smaller_vocabulary(trained.vocabulary, settings.vocabulary))
    return TrainedTokenizer(trained, reason, sample.characters, pace)


class TimedLines:
    """Lines, and the seconds that it took to read them."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines, self.seconds = iter(lines), 0.0

    def __iter__(self) -> "TimedLines":
        return self

    def __next__(self) -> str:
        began = time.perf_counter()
        try:
            return next(self._lines)
        finally:
            self.seconds += time.perf_counter() - began


def smaller_vocabulary(size: int, wanted: int) -> str:
    """The reason why a vocabulary is smaller than requested."""
    return f"{size:,} tokens, not {wanted:,}: the text has no others that occur at least twice"


def _fit_to_language(corpus: Corpus, settings: TokenizerConfig) -> tuple[TokenizerConfig, str, Iterable[str]]:
    """The settings for the language of the text, a line with the reason, and the lines of the text.

    Given settings are kept; byte-level BPE and T5's tokenizer always keep case and accents.
    """
    if settings.kind == "bpe" and (settings.lowercase or settings.strip_accents):
        option = "--lowercase" if settings.lowercase else "--strip-accents"
        raise RecipeError(option, "byte-level BPE keeps case and accents", "Leave it out, or choose another tokenizer")
    lines: Iterable[str] = corpus.lines()
    if settings.kind in ("bpe", "t5") or None not in (settings.lowercase, settings.strip_accents):
        return settings, "", lines
    some = corpus.sample(language.LANGUAGE_CHARACTERS)
    if not some:  # standard input can be read only once
        rest = iter(lines)
        some = list(islice(rest, 1_000))
        lines = chain(some, rest)
    writing = language.detect_writing(some)
    lower = writing.lowercase if settings.lowercase is None else settings.lowercase
    strip = settings.strip_accents
    if strip is None:
        strip = (writing.strip_accents and lower) or writing.strip_vowels
    reason = language.describe(lower, strip, writing.reason)
    return replace(settings, lowercase=lower, strip_accents=strip), reason, lines


def read_for(seconds: float, lines: Iterable[str]) -> Iterator[str]:
    """As many lines as can be read in a number of seconds."""
    end = time.monotonic() + seconds
    for line in lines:
        yield line
        if time.monotonic() > end:
            return


def print_notes(corpus: Corpus) -> None:
    """Print which files were skipped, and how files were read that are not plain UTF-8 text."""
    for line in corpus.new_notes():
        CONSOLE.print(f"text: {line}")


def prepare_shards(
    corpus: Corpus,
    tokenizer: Tokenizer,
    out: Path,
    validation_share: float = 0.01,
    workers: int | None = None,
    on: str | None = None,
) -> Summary:
    """Tokenise a corpus into shards, with a progress bar and a summary."""
    with progress_bar("preparing", "tokens") as show:
        share = validation_share
        summary = tokenise(corpus, tokenizer, out, validation_share=share, workers=workers, on=on, progress=show)
    print_notes(corpus)
    for line in _summary_lines(
        summary, language.detect_writing(corpus.sample(language.LANGUAGE_CHARACTERS // 10)).units
    ):
        CONSOLE.print(line)
    return summary


def _summary_lines(summary: Summary, units: str = "words") -> Iterator[str]:
    """A summary as lines of text. `units`: words, or characters in scripts without spaces."""
    yield "already prepared" if summary.reused else f"prepared in {format_duration(summary.seconds)}"
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
    counts_left_out = [f"{count:,} {name}" for name, count in (left_out | summary.corrections).items() if count]
    if counts_left_out:
        yield "  replaced or left out: " + ", ".join(counts_left_out)
