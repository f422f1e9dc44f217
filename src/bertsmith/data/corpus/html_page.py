"""HTML pages: their paragraphs, without scripts, styles and navigation.

A tag that is not an inline one ends a paragraph. End tags may be missing, as HTML allows and browsers forgive.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser

from bertsmith.data.corpus.lines import LineRun
from bertsmith.data.corpus.markup import Paragraph, word_set
from bertsmith.text.language import unwrap

DROPPED_TAGS = word_set("script style nav template svg noscript head iframe object select button rt rp rtc")
INLINE_TAGS = word_set(
    "a abbr acronym b bdi bdo big cite code data del dfn em font i ins kbd label mark nobr q rb ruby s samp small span "
    "strike strong sub sup time tt u var wbr"
)
VOID_TAGS = word_set("area base br col embed hr img input link meta param source track wbr")
OPEN_ENDED_TAGS = word_set("p li dt dd tr td th option optgroup")  # whose end tags are often left out
HEAD_TAGS = word_set("base link meta noscript object script style template title")
RUBY_TAGS = word_set("rb rt rp rtc")  # a word, and its reading
MAIN_TAGS = word_set("article body main")  # the page itself, which is in no menu
BLOCK_TAGS = MAIN_TAGS | word_set("h1 h2 h3 h4 h5 h6 p section table")
MAX_TAG_CHARACTERS = 1 << 22  # characters of a tag or a comment, at most
LONG_TAG_CHARACTERS = 1 << 14  # characters of a tag from which lines without its end are gathered first
BASE64 = re.compile(r"\s*[A-Za-z0-9+/=%_-]{40,}\s*")  # a line of an image within a tag


def html_page(found: Iterable[LineRun]) -> Iterator[Paragraph]:
    """The paragraphs of an HTML page, one after the other."""
    parser, held, size = _HTMLPage(), list[str](), 0
    for start, lines in found:
        for number, line in enumerate(lines, start):
            if len(parser.rawdata) > LONG_TAG_CHARACTERS and ">" not in line:
                # The parser would search the tag again from its beginning.
                if not BASE64.fullmatch(line):
                    held.append(line + "\n")
                    size += len(held[-1])
            else:
                parser.number = number
                parser.feed("".join([*held, line, "\n"]))
                held, size = [], 0
                yield from parser.pop_paragraphs()
            if len(parser.rawdata) + size > MAX_TAG_CHARACTERS:
                parser.end()
                yield from parser.pop_paragraphs()
                raise ValueError(f"line {number} is in a tag that never ends")
    parser.feed("".join(held))
    parser.close()
    parser.end()
    yield from parser.pop_paragraphs()


class _HTMLPage(HTMLParser):
    """Gathers the text between tags; a tag that is not an inline one ends the paragraph."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.number, self.first = 1, 1
        self._held, self._done = list[str](), list[Paragraph]()
        self._dropped = ""  # the element that is left out
        self._inside, self._outside = Counter[str](), Counter[str]()  # open tags in that element, and those around it

    def pop_paragraphs(self) -> list[Paragraph]:
        """The paragraphs that have ended since the last call."""
        done, self._done = self._done, []
        return done

    def end(self) -> None:
        if text := " ".join(unwrap("".join(self._held)).split()):
            self._done.append((self.first, text))
        self._held = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if self._ends_dropped(tag):
            self._dropped = ""
        if self._dropped:
            self._inside[tag] += tag not in VOID_TAGS
        elif tag in DROPPED_TAGS:
            self._dropped, self._inside = tag, Counter()
        elif tag == "img":
            self.handle_data(" ")
        else:
            self._outside[tag] += tag not in VOID_TAGS | OPEN_ENDED_TAGS
            if tag not in INLINE_TAGS:
                self.end()

    def handle_endtag(self, tag: str) -> None:
        if self._dropped:
            if self._inside[tag]:
                self._inside[tag] -= 1
                return
            if tag == self._dropped:
                self._dropped = ""
                return
            if not self._outside[tag]:
                return
            self._dropped = ""  # it ends with the element around it
        self._outside[tag] -= bool(self._outside[tag])
        if tag not in INLINE_TAGS:
            self.end()

    def handle_data(self, data: str) -> None:
        if not self._dropped:
            self.first = self.first if self._held else self.number
            self._held.append(data)

    def _ends_dropped(self, tag: str) -> bool:
        """Whether a tag begins after the element that is left out, whose end tag is missing."""
        match self._dropped:
            case "head":
                return tag not in HEAD_TAGS and not self._inside["noscript"] and not self._inside["template"]
            case "rt" | "rp" | "rtc":
                return tag in RUBY_TAGS
            case "select" | "button":
                return tag in BLOCK_TAGS or tag == self._dropped
            case "nav":
                return tag in MAIN_TAGS
        return False
