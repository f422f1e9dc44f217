"""The words of a text, split at white space and punctuation, as taggers are given them."""

import re
import unicodedata

from bertsmith.text.language import UNSPACED_LETTER

WORDS = re.compile(r"\w+|[^\w\s]")
JOINERS = "\u200c\u200d"  # ZWNJ and ZWJ, which stand inside words of Persian and Hindi and inside emoji
SKIN_TONES = "".join(map(chr, range(0x1F3FB, 0x1F400)))  # of the emoji before them

Span = tuple[str, int, int]  # a word, with its start and end in the text


def words_with_spans(text: str) -> list[Span]:
    """The words of a text with their bounds.

    A combining mark, a joiner or a variation selector belongs to the word before it; \\w has none of them. What follows
    such a mark without a gap goes on with the word, if it is made of letters or digits, or is joined by a ZWJ.

    >>> words_with_spans("the cat, 1984")
    [('the', 0, 3), ('cat', 4, 7), (',', 7, 8), ('1984', 9, 13)]
    """
    if text.isascii():
        return [(match[0], *match.span()) for match in WORDS.finditer(text)]
    return [(text[start:end], start, end) for start, end in _joined(text)]


def split_words(text: str) -> list[str]:
    """The same words without their bounds.

    >>> split_words("the cat, 1984")
    ['the', 'cat', ',', '1984']
    """
    return WORDS.findall(text) if text.isascii() else [text[start:end] for start, end in _joined(text)]


def is_inside_word(text: str, at: int) -> bool:
    """Whether a word goes on at a position: between two letters, unless they are of scripts without spaces.

    >>> [is_inside_word("cats", 3), is_inside_word("cat's", 3), is_inside_word("\u732b\u5f88\u5927", 1)]
    [True, False, False]
    """
    if not 0 < at < len(text):
        return False
    before, after = text[at - 1], text[at]
    if _extends(after):
        return True
    spaced = not (UNSPACED_LETTER.match(before) or UNSPACED_LETTER.match(after))
    return spaced and _is_letter(after) and (_is_letter(before) or _extends(before))


def _joined(text: str) -> list[tuple[int, int]]:
    joined = list[tuple[int, int]]()
    for start, end in (match.span() for match in WORDS.finditer(text)):
        adjacent = bool(joined) and joined[-1][1] == start
        if adjacent and (_extends(text[start]) or _goes_on(text, joined[-1], start)):
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined


def _goes_on(text: str, word: tuple[int, int], at: int) -> bool:
    """Whether a word that ends with a mark goes on: with letters or digits if it has some, or after a ZWJ."""
    if text[at - 1] == "\u200d" and not _is_letter(text[at]):
        return unicodedata.category(text[at]) == "So"  # a sequence of emoji
    return _extends(text[at - 1]) and _is_letter(text[at]) and any(map(_is_letter, text[slice(*word)]))


def _is_letter(character: str) -> bool:
    return character.isalnum() or character == "_"


def _extends(character: str) -> bool:
    """Whether a character belongs to the one before it: a mark (a variation selector is one), a joiner or a tone."""
    return character in JOINERS or character in SKIN_TONES or unicodedata.category(character) in ("Mn", "Mc", "Me")
