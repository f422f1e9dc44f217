"""Sentences: running text cut into them, and a guess at how a text is laid out."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Literal

from bertsmith.errors import TextError
from bertsmith.text.library_errors import wrap_library_errors

Layout = Literal["lines", "running"]

WINDOW = 1_000  # characters split at a time: in more, a stray quotation mark swallows many sentences
WIDEST = 120  # characters: nobody breaks lines by hand at more
OPENING = re.compile(r'(?<![^\s(\[—-])"')
WIDE_SPACE = re.compile(r"[^\S\x00-\x7f]")
END = re.compile(r"""[.!?…。！？।]["'”’»」』)\]]*$""")
# A sentence that ends before its line does: two letters, a full stop, a capital; or a full stop of the East.
ENDS_WITHIN = re.compile(r"""[^\W\d]{2} ?["'”’)\]]*[.!?…]["'”’»)\]]*\s+["'“‘«(\[]*[A-ZÀ-ÞΑ-ΩА-Я]|[。！？][」』]*\w""")


def split_sentences(text: str) -> Iterator[str]:
    """The sentences of a paragraph, in order, by the `sentencex` library. Time grows linearly."""
    # The library loses its way among straight quotation marks, and panics at spaces of more than one byte.
    # So it is shown turned marks and plain spaces; lengths stay the same.
    turned = OPENING.sub("“", text).replace('"', "”") if '"' in text else text
    turned = turned if turned.isascii() else WIDE_SPACE.sub(" ", turned)
    segment = _segment()
    start = stop = 0
    while start < len(text):
        before, stop = stop, stop + WINDOW
        if stop < len(text):
            stop = turned.rfind(" ", before, stop) + 1 or stop
        try:
            with wrap_library_errors("sentences", TextError):
                found = segment("en", turned[start:stop])
        except TextError:
            found = [turned[start:stop]]  # what it cannot split stays whole
        if stop < len(text) and len(found) > 1:
            found.pop()  # it may go on behind the window
        for sentence in found:
            end = start + len(sentence)
            if whole := text[start:end].strip():
                yield whole
            start = end


def guess_layout(lines: Sequence[str]) -> Layout:
    """How a text is laid out, from its first lines: one sentence a line, or running text.

    It runs if sentences end within many lines, or if lines are broken by hand wherever they are full.
    """
    lines = [line for line in map(str.strip, lines) if line]
    within = sum(bool(ENDS_WITHIN.search(line)) for line in lines)
    return "running" if within > 0.4 * len(lines) or is_wrapped(lines) else "lines"


def is_wrapped(lines: Sequence[str]) -> bool:
    """Whether lines were broken by hand: most end no sentence, and most of those are about equally long."""
    lines = [line for line in map(str.strip, lines) if line]
    open_ended = sorted(len(line) for line in lines if not END.search(line))
    if len(open_ended) <= len(lines) / 2:
        return False
    full = open_ended[int(0.95 * len(open_ended))]
    return full <= WIDEST and sum(length > 0.75 * full for length in open_ended) > len(open_ended) / 2


@cache
def _segment() -> Callable[[str, str], list[str]]:
    try:
        from sentencex import segment
    except ImportError:
        remedy = "Install it with: pip install 'bertsmith[sentences]'"
        raise TextError("sentences", "running text needs sentencex to be split", remedy) from None
    return segment  # type: ignore[no-any-return]
