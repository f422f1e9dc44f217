"""Markup: the paragraphs of Markdown, reStructuredText and HTML, without the marks.

Headings, list items and rows of tables are paragraphs. Code blocks, scripts, styles and navigation are left out.
"""

import html
import re
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser

from bertsmith.data.corpus.lines import LineRun
from bertsmith.errors import TextError
from bertsmith.text.language import unwrap

Paragraph = tuple[int, str]  # the line where it begins, and its text

FENCE = re.compile(r"^\s{0,3}(```+|~~~+)")
HORIZONTAL_RULE = re.compile(r"^\s*([-=*_~^\"'+#`.:])(\s*\1){2,}\s*$|^\s*\|?[\s:|+=-]*-[\s:|+=-]*\|[\s:|+=-]*$")
HEADING = re.compile(r"^\s{0,3}#{1,6}\s+(.*?)\s*#*\s*$")
LIST_ITEM = re.compile(r"^\s*(?:>\s?)*(?:[-*+•]|\d{1,3}[.)]|#\.)\s+(?:\[[ xX]\]\s+)?")
QUOTE = re.compile(r"^\s*(?:>\s?)+")
DEFINITION = re.compile(r"^\s{0,3}\[[^\]]+\]:\s*\S+")
DIRECTIVE = re.compile(r"^\s*\.\.(\s|$)|^\s*:[\w -]+:(\s|$)")
INLINE = [
    (re.compile(r"!?\[([^\[\]]*)\]\([^()\s]*(?:\([^()]*\))?[^()]*\)"), r"\1"),  # links and images
    (re.compile(r"!?\[([^\[\]]+)\]\[[^\[\]]*\]"), r"\1"),
    (re.compile(r":[\w:-]+:`([^`<]*?)\s*(?:<[^`>]*>)?`"), r"\1"),  # roles of reStructuredText
    (re.compile(r"`([^`<]+?)\s*<[^`>]+>`__?"), r"\1"),
    (re.compile(r"<(?:https?://|mailto:)[^<>\s]*>|</?[a-zA-Z][^<>]{0,500}>"), ""),
    (re.compile(r"`+([^`]+)`+_{0,2}"), r"\1"),
    (re.compile(r"(\*\*\*|\*\*|\*|~~)(?=\S)(.+?)(?<=\S)\1"), r"\2"),
    (re.compile(r"(?<!\w)(__|_)(?=\S)(.+?)(?<=\S)\1(?!\w)"), r"\2"),
    (re.compile(r"\\([\\`*_{}\[\]()#+.!|<>~-])"), r"\1"),
]
MAX_INLINE_CHARACTERS = 1 << 14  # characters of a paragraph whose inline marks are removed: the patterns are slow

DROPPED_TAGS = {"script", "style", "nav", "template", "svg", "noscript", "head", "iframe", "object", "select", "button"}
INLINE_TAGS = {
    "a",
    "abbr",
    "b",
    "bdi",
    "bdo",
    "cite",
    "code",
    "data",
    "del",
    "dfn",
    "em",
    "font",
    "i",
    "ins",
    "kbd",
    "label",
}
INLINE_TAGS |= {
    "mark",
    "q",
    "s",
    "samp",
    "small",
    "span",
    "strong",
    "sub",
    "sup",
    "time",
    "tt",
    "u",
    "var",
    "wbr",
    "ruby",
}
MAX_TAG_CHARACTERS = 1 << 22  # characters of a tag or a comment, at most


def markdown(found: Iterable[LineRun], *, rst: bool = False) -> Iterator[Paragraph]:
    """The paragraphs of Markdown, or of reStructuredText."""
    held, first, fence, hidden = list[str](), 0, "", -1  # hidden: the indent of a directive, whose text is left out
    front = False  # inside the front matter
    for start, lines in found:
        for number, line in enumerate(lines, start):
            if number == 1 and not rst and line.rstrip() == "---":
                front = True
                continue
            if front:
                front = line.rstrip() not in ("---", "...")
                continue
            opening = None if rst else FENCE.match(line)
            if fence or opening:
                mark = opening[1] if opening else ""
                fence = (mark if not fence else "" if mark.startswith(fence) else fence) if opening else fence
                ends, text = True, ""
            elif hidden >= 0 and (not line.strip() or len(line) - len(line.lstrip()) > hidden):
                ends, text = True, ""  # the text of a directive is indented
            else:
                hidden = -1
                if rst and DIRECTIVE.match(line):
                    hidden = len(line) - len(line.lstrip())
                ends, text = _line(line, rst)
                if rst and text.endswith("::"):
                    text, hidden = text[:-1], len(line) - len(line.lstrip())
            if ends and held:
                yield first, _inline(unwrap("\n".join(held)))
                held = []
            if text:
                first = first if held else number
                held.append(text)
                if HEADING.match(line) or line.lstrip().startswith("|"):
                    yield first, _inline(text)
                    held = []
    if held:
        yield first, _inline(unwrap("\n".join(held)))


def _line(line: str, rst: bool) -> tuple[bool, str]:
    """Whether a line ends the paragraph before it, and the line's text."""
    if not line.strip() or HORIZONTAL_RULE.match(line) or (DIRECTIVE.match(line) if rst else DEFINITION.match(line)):
        return True, ""
    if not rst and (heading := HEADING.match(line)):
        return True, heading[1]
    if line.lstrip().startswith("|"):
        return True, " ".join(cell.strip() for cell in line.strip().strip("|").split("|") if cell.strip())
    if item := LIST_ITEM.match(line):
        return True, line[item.end() :].strip()
    return False, QUOTE.sub("", line).strip() if not rst else line.strip()


def _inline(text: str) -> str:
    """A paragraph without inline marks; of links only their text."""
    if len(text) <= MAX_INLINE_CHARACTERS:
        for pattern, replacement in INLINE:
            text = pattern.sub(replacement, text)
    return " ".join(html.unescape(text).split())


def html_page(found: Iterable[LineRun], name: str) -> Iterator[Paragraph]:
    """The paragraphs of an HTML page, one after the other."""
    parser = _HTMLPage()
    for start, lines in found:
        for number, line in enumerate(lines, start):
            parser.number = number
            parser.feed(line + "\n")
            if len(parser.rawdata) > MAX_TAG_CHARACTERS:
                raise TextError(f"{name}:{number}", "has a tag that never ends", "Mend the file, or add --as text")
            yield from parser.pop_paragraphs()
    parser.close()
    parser.end()
    yield from parser.pop_paragraphs()


class _HTMLPage(HTMLParser):
    """Gathers the text between tags; a tag that is not an inline one ends the paragraph."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.number, self.first = 1, 1
        self._held, self._done = list[str](), list[Paragraph]()
        self._dropped, self._depth = "", 0

    def pop_paragraphs(self) -> list[Paragraph]:
        """The paragraphs that have ended since the last call."""
        done, self._done = self._done, []
        return done

    def end(self) -> None:
        if text := " ".join(unwrap("".join(self._held)).split()):
            self._done.append((self.first, text))
        self._held = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if self._dropped:
            self._depth += tag == self._dropped
        elif tag == "body":
            self.end()
        elif tag in DROPPED_TAGS:
            self._dropped, self._depth = tag, 1
        elif tag not in INLINE_TAGS:
            self.end()
        if self._dropped == "head" and tag == "body":  # a head without an end tag
            self._dropped = ""

    def handle_endtag(self, tag: str) -> None:
        if tag == self._dropped:
            self._depth -= 1
            self._dropped = self._dropped if self._depth else ""
        elif tag not in INLINE_TAGS:
            self.end()

    def handle_data(self, data: str) -> None:
        if not self._dropped:
            self.first = self.first if self._held else self.number
            self._held.append(data)
