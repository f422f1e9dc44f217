"""Markup: the paragraphs of Markdown and reStructuredText, without the marks.

Headings, list items and rows of tables are paragraphs. Code blocks and comments are left out.
"""

import html
import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from bertsmith.data.corpus.lines import LineRun
from bertsmith.text.language import unwrap

Paragraph = tuple[int, str]  # the line where it begins, and its text

Line = tuple[int, str]  # its number, and its text


def word_set(words: str) -> frozenset[str]:
    """Names in one string as a set."""
    return frozenset(words.split())


FENCE = re.compile(r"^\s{0,3}(?:(```+)[^`]*|(~~~+).*)$")  # code within a line has backticks at its end, too
FENCE_END = re.compile(r"^\s{0,3}(```+|~~~+)\s*$")
MAX_FRONT_MATTER_LINES = 100
HORIZONTAL_RULE = re.compile(r"^\s*([-=*_~^\"'+#`.:])(\s*\1){2,}\s*$|^\s*\|?[\s:|+=-]*-[\s:|+=-]*\|[\s:|+=-]*$")
HEADING = re.compile(r"^\s{0,3}#{1,6}\s+(.*?)\s*#*\s*$")
LIST_ITEM = re.compile(r"^\s*(?:>\s?)*(?:[-*+•]|\d{1,3}[.)]|#\.)\s+(?:\[[ xX]\]\s+)?")
QUOTE = re.compile(r"^\s*(?:>\s?)+")
DEFINITION = re.compile(r"^\s{0,3}\[[^\]]+\]:\s*\S+")
HIDDEN = re.compile(r"^\s*\.\.(\s|$)|^\s*:[\w -]+:(\s|$)")  # comments, targets, options: the indented text too
DIRECTIVE = re.compile(r"^\s*\.\.\s+(?:[\w+.-]+:)?([\w+.-]+)::(?:\s+(.*))?$")
ADMONITIONS = word_set("attention caution danger error hint important note seealso tip todo warning")
TECHNICAL = word_set(  # directives without prose
    "code code-block sourcecode highlight literalinclude parsed-literal prompt math raw image figure plot graphviz "
    "graph digraph mermaid uml doctest testcode testoutput testsetup testcleanup ipython jupyter-execute "
    "productionlist index toctree contents csv-table list-table table include meta role default-role bibliography"
)
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


def markdown(found: Iterable[LineRun], *, rst: bool = False) -> Iterator[Paragraph]:
    """The paragraphs of Markdown, or of reStructuredText."""
    held, first = list[str](), 0
    numbered = ((number, line) for start, lines in found for number, line in enumerate(lines, start))
    for number, line in _without_directives(numbered) if rst else _without_code(_without_front_matter(numbered)):
        ends, text = _line(line, rst)
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


def _without_front_matter(lines: Iterator[Line]) -> Iterator[Line]:
    """The lines after the settings between two rules at the beginning; a rule that none follows is only a rule."""
    head = list(islice(lines, MAX_FRONT_MATTER_LINES))
    if head and head[0][0] == 1 and head[0][1].rstrip() == "---":
        end = next((row for row, (_, line) in enumerate(head[1:], 1) if line.rstrip() in ("---", "...")), -1)
        head = head[end + 1 :]
    return chain(head, lines)


def _without_code(lines: Iterator[Line]) -> Iterator[Line]:
    """The lines of Markdown, blank ones in the place of code blocks."""
    fence = ""
    for number, line in lines:
        opening = None if fence else FENCE.match(line)
        if fence:
            end = FENCE_END.match(line)
            fence = "" if end and end[1].startswith(fence) else fence
        elif opening:
            fence = opening[1] or opening[2]
        else:
            yield number, line
            continue
        yield number, ""


def _without_directives(lines: Iterator[Line]) -> Iterator[Line]:
    """The lines of reStructuredText, blank ones in the place of code, comments and directives.

    Of directives with prose (a note, the description of a function) only the first line and the options are left out.
    """
    hidden, doctest = -1, False  # the indent of what hides the lines that are indented further
    for number, line in lines:
        indent = len(line) - len(line.lstrip())
        doctest = line.lstrip().startswith(">>>") or (doctest and bool(line.strip()))
        if doctest or (hidden >= 0 and (not line.strip() or indent > hidden)):
            yield number, ""
            continue
        hidden = -1
        directive = DIRECTIVE.match(line)
        if directive and directive[1].lower() not in TECHNICAL:
            yield number, ""
            line = directive[2] if directive[2] and directive[1].lower() in ADMONITIONS else ""
        elif HIDDEN.match(line):
            hidden, line = indent, ""
        if line.rstrip().endswith("::"):
            hidden, line = indent, line.rstrip()[:-1].rstrip(": ") + ":" * bool(line.strip(" :"))
        yield number, line


def _line(line: str, rst: bool) -> tuple[bool, str]:
    """Whether a line ends the paragraph before it, and the line's text."""
    if not line.strip() or HORIZONTAL_RULE.match(line) or (not rst and DEFINITION.match(line)):
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
