"""Sentence splitting of running text, and a guess whether a file has one sentence per line."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import groupby
from typing import Literal

from bertsmith.errors import TextError
from bertsmith.text.library_errors import wrap_library_errors

Layout = Literal["lines", "running"]

SPLIT_WINDOW = 1_000  # characters split at a time: with more, a stray quotation mark swallows many sentences
MIN_PARAGRAPHS = 8  # lines between blank ones, from which they are taken for paragraphs
MAX_WRAPPED_LINE = 120  # characters of a line that is wrapped by hand
OPENING_QUOTE = re.compile(r'(?<![^\s(\[—-])"')
WIDE_SPACE = re.compile(r"[^\S\x00-\x7f]")
ENDS = ".!?…؟۔։"  # they end a sentence where white space follows; those below need none
FULL_STOPS = "。！？।॥።။។"  # of scripts that have no other use for them
SENTENCE_END = re.compile(rf"""[{ENDS}{FULL_STOPS}]["'”’»」』)\]]*$""")
CASELESS = (
    "\u0590-\u08ff\u0900-\u109f\u10d0-\u10ff\u1200-\u137f\uac00-\ud7af"  # Hebrew, Arabic, Indic, Georgian, Korean
)
# A sentence that ends inside of a line: two letters, a full stop, a capital or a letter of a script without capitals.
ENDS_WITHIN = re.compile(
    rf"""[^\W\d]{{2}} ?["'”’)\]]*[{ENDS}]["'”’»)\]]*\s+["'“‘«(\[]*[A-ZÀ-ÞΑ-ΩА-Я{CASELESS}]|[{FULL_STOPS}][」』]*\s*\w"""
)

RULES_NOTE = "sentences are split by simple rules; sentencex (pip install sentencex) knows more abbreviations"
# For these rules: end marks and closing quotes, then white space and a beginning; East Asian marks need no white space.
RULED_END = re.compile(
    rf"""([{ENDS}]+)["'”’»)\]]*\s+(?=["'“‘«„(\[¿¡—–-]*([^\W_]))|[{FULL_STOPS}]+[」』”’）"»)\]]*\s*"""
)
# A full stop after the first does not end a sentence; after the others it does not where a number follows.
TITLES = re.compile("mr|mrs|ms|dr|prof|rev|hon|gen|col|capt|lt|maj|sgt|st|mt|sr|sra|mme|mlle|hr|vs|cf|bzw")
BEFORE_NUMBERS = re.compile("no|nos|nr|fig|figs|vol|ch|sec|eq|p|pp|art|ca|jan|feb|apr|aug|sept|oct|nov|dec")


def split_sentences(text: str, language: str = "en") -> Iterator[str]:
    """The sentences of a paragraph, in order, in linear time: by the `sentencex` library, or by simple rules.

    `language` is a code, by whose abbreviations the library splits.
    """
    # The library fails at straight quotation marks, and panics at spaces of more than one byte.
    # So it gets typographic marks and plain spaces; lengths stay the same.
    plain = OPENING_QUOTE.sub("“", text).replace('"', "”") if '"' in text else text
    plain = plain if plain.isascii() else WIDE_SPACE.sub(" ", plain)
    segment = _segment()
    start = stop = 0
    while start < len(text):
        before, stop = stop, stop + SPLIT_WINDOW
        if stop < len(text):
            stop = plain.rfind(" ", before, stop) + 1 or stop
        try:
            with wrap_library_errors("sentences", TextError):
                found = segment(language, plain[start:stop])
        except TextError:
            found = [plain[start:stop]]  # not split
        if stop < len(text) and len(found) > 1:
            found.pop()  # it may continue after the window
        for sentence in found:
            end = start + len(sentence)
            if stripped := text[start:end].strip():
                yield stripped
            start = end


def guess_layout(lines: Sequence[str]) -> Layout:
    """The layout of a text, from its first lines: one sentence per line, or running text.

    It is running text if sentences end inside of many lines, or if lines are wrapped by hand. Where blank lines stand
    between all lines, a few such lines will do: they are paragraphs, many of one sentence, and no documents of a line.
    """
    blocks = [len(list(block)) for text, block in groupby(lines, lambda line: bool(line.strip())) if text]
    apart = len(blocks) >= MIN_PARAGRAPHS and blocks.count(1) > 0.8 * len(blocks)
    lines = [line for line in map(str.strip, lines) if line]
    inside = sum(bool(ENDS_WITHIN.search(line)) for line in lines)
    return "running" if inside > (0.1 if apart else 0.4) * len(lines) or is_wrapped(lines) else "lines"


def is_wrapped(lines: Sequence[str]) -> bool:
    """Whether lines are wrapped by hand: most do not end a sentence, and most of those are about equally long."""
    lines = [line for line in map(str.strip, lines) if line]
    open_ended = sorted(len(line) for line in lines if not SENTENCE_END.search(line))
    if len(open_ended) <= len(lines) / 2:
        return False
    full = open_ended[int(0.95 * len(open_ended))]
    return full <= MAX_WRAPPED_LINE and sum(length > 0.75 * full for length in open_ended) > len(open_ended) / 2


def has_sentencex() -> bool:
    """Whether the library is installed; without it sentences are split by simple rules."""
    return _segment() is not split_by_rules


@cache
def _segment() -> Callable[[str, str], list[str]]:
    try:
        from sentencex import segment
    except ImportError:
        return split_by_rules
    return segment  # type: ignore[no-any-return]


def split_by_rules(language: str, text: str) -> list[str]:
    """The parts of a text that end with a full stop or another end mark; together they are the text.

    A part ends where white space and a capital, a number or a letter of a script without case follow, except after an
    abbreviation or an initial. The rules are the same for all languages.
    """
    parts, start = list[str](), 0
    for found in RULED_END.finditer(text):
        mark, following = found[1], found[2]
        if mark and (following.islower() or (mark == "." and _abbreviated(text[start : found.start()], following))):
            continue
        parts.append(text[start : found.end()])
        start = found.end()
    return [*parts, text[start:]] if start < len(text) else parts


def _abbreviated(before: str, following: str) -> bool:
    """Whether the word before a full stop is an abbreviation (Dr), an initial (J) or has full stops in it (U.S)."""
    last = before[-20:].rsplit(maxsplit=1)[-1:]
    word = last[0].lstrip("\"'“‘«„([—–-").lower() if last else ""
    initial = len(word) == 1 and before[-1:].isupper()
    known = TITLES.fullmatch(word) or (following.isdigit() and BEFORE_NUMBERS.fullmatch(word))
    return initial or "." in word or bool(known)
