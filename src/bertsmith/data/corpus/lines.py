"""Lines: bytes decoded into clean lines of text. Any bytes are read, or refused with file and line.

A bad line is refused (`fail`), dropped (`skip`) or repaired (`replace`), and always counted. Clean text takes the fast
path, a block at a time; a very long line is never held in memory whole.
"""

import codecs
import lzma
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Literal

from bertsmith.data.corpus import encoding
from bertsmith.errors import TextError

Policy = Literal["skip", "replace", "fail"]
LineRun = tuple[int, list[str]]  # the number of the first line, and consecutive lines

SURROGATE = re.compile("[\ud800-\udfff]")
BAD_LINE_FACTS = {
    "bad bytes": "holds bytes that are not UTF-8",
    "NUL characters": "holds a NUL character",
    "half characters": "holds half a character (a lone surrogate)",
    "long lines": "is longer than {longest:,} characters",
    "broken records": "is no JSON object",
    "records without text": "has no text in its field",
    "unreadable files": "cannot be read",
}
READ_ERRORS = (EOFError, MemoryError, OSError, lzma.LZMAError, zlib.error)
BAD_LINE_REMEDY = "Mend the file, or choose to skip or replace what is bad"


class Cleaner:
    """The policy for bad lines, and the count of each kind."""

    def __init__(self, policy: Policy, max_length: int, tally: Counter[str], *, guess_encoding: bool = False) -> None:
        self.policy, self.max_length, self.tally = policy, max_length, tally
        self.guess_encoding = guess_encoding  # the encoding is not known yet, and may be another than UTF-8
        self.encoding = encoding.UTF8
        self.bom_encoding = ""  # UTF-16 or UTF-32, recognised by a byte-order mark or by its bytes
        self.mixed = False  # some lines are in this encoding, and others UTF-8

    @property
    def read_as(self) -> str:
        """The encoding in words, if it is not UTF-8."""
        found = self.bom_encoding or ("" if self.encoding == encoding.UTF8 else self.encoding)
        return f"{found} where it is not UTF-8" if self.mixed else f"{found}, not UTF-8" if found else ""

    def should_repair(self, kind: str, location: str) -> bool:
        """Count a bad line: True to repair it, False to drop it. Refuses it if the policy is to fail."""
        self.tally[kind] += 1
        if self.policy == "fail":
            raise TextError(location, BAD_LINE_FACTS[kind].format(longest=self.max_length), BAD_LINE_REMEDY)
        return self.policy == "replace"

    def decode(self, raw: bytes, location: str) -> str | None:
        """A raw line as clean text; None if it is dropped."""
        try:
            text = self.decode_lines(raw)
        except UnicodeDecodeError:
            if not self.should_repair("bad bytes", location):
                return None
            text = raw.decode(self.encoding, errors="replace")
        return self.clean(text, location)

    def decode_lines(self, raw: bytes) -> str:
        """The text of some raw lines."""
        if self.encoding == encoding.UTF8:
            return raw.decode()
        text, any_utf8 = encoding.decode_lines(raw, self.encoding)
        self.mixed |= any_utf8
        return text

    def settle_encoding(self, raw: bytes) -> None:
        """Guess the encoding from lines that are not UTF-8, if it is not known yet."""
        if self.guess_encoding:
            self.encoding, self.guess_encoding = encoding.guess(raw), False

    def clean(self, text: str, location: str) -> str | None:
        """A line without NUL, byte-order marks and lone surrogates; None if it is dropped."""
        if "\0" in text:
            if not self.should_repair("NUL characters", location):
                return None
            text = text.replace("\0", " ")
        if "\ufeff" in text:
            self.tally["byte-order marks"] += 1
            text = text.replace("\ufeff", "")
        if not text.isascii() and SURROGATE.search(text):
            if not self.should_repair("half characters", location):
                return None
            text = SURROGATE.sub("\ufffd", text)
        return text

    def split_long(self, text: str | None, location: str) -> list[str]:
        """A clean line; a long one as its parts, or empty if it is dropped."""
        if text is None:
            return []
        if len(text) <= self.max_length:
            return [text]
        return split_at_spaces(text, self.max_length) if self.should_repair("long lines", location) else []


def clean_lines(blocks: Iterable[bytes], name: str, cleaner: Cleaner) -> Iterator[LineRun]:
    """Runs of clean lines. A line that was repaired or split is a run by itself, so that the numbers stay right."""
    max_bytes = 4 * cleaner.max_length  # no character takes more than four
    number, pending, size = 1, list[bytes](), 0
    repair: bool | None = None  # of a very long line, while its parts are returned
    try:
        for block in _unify_newlines(blocks, name, cleaner):
            end = block.rfind(b"\n")
            pending.append(block if end < 0 else block[:end])
            size += len(pending[-1])
            if end < 0 and size <= max_bytes:
                continue
            body, pending, size = b"".join(pending), [], 0
            if end < 0:
                if repair is None:
                    repair = cleaner.should_repair("long lines", f"{name}:{number}")
                cut = _last_space(body)
                yield number, _decode_part(body[:cut], f"{name}:{number}", cleaner) if repair else []
                pending, size = [body[cut:]], len(body) - cut
                continue
            pending, size = [block[end + 1 :]], len(block) - end - 1
            if repair is not None:
                line, more, body = body.partition(b"\n")
                yield number, _decode_part(line, f"{name}:{number}", cleaner) if repair else []
                number, repair = number + 1, None
                if not more:
                    continue
            yield from _lines(body, number, name, cleaner)
            number += body.count(b"\n") + 1
    except READ_ERRORS as error:
        raise read_error(f"{name}:{number}", error) from None


def read_error(location: str, error: BaseException) -> TextError:
    """The error for a file that the disk or the decompressor cannot read."""
    if isinstance(error, OSError) and error.errno:
        return TextError(location, f"cannot be read ({error.strerror})")
    reason = str(error).splitlines() or ["it is damaged"]
    return TextError(location, f"cannot be read from here on ({reason[0].rstrip('.')})", "Get the file again")


def split_at_spaces(text: str, max_length: int) -> list[str]:
    """A long text in parts of at most `max_length`, split at spaces where there are any."""
    parts, start = [], 0
    while len(text) - start > max_length:
        space = text.rfind(" ", start + 1, start + max_length + 1)
        stop = space if space > start else start + max_length
        parts.append(text[start:stop])
        start = stop
    return [*parts, text[start:]]


def _lines(body: bytes, number: int, name: str, cleaner: Cleaner) -> Iterator[LineRun]:
    try:
        text = cleaner.decode_lines(body)
        if cleaner.guess_encoding and not text.isascii():
            cleaner.guess_encoding = False  # it is UTF-8
        lines = text.split("\n")
        clean = "\0" not in text and "\ufeff" not in text and max(map(len, lines)) <= cleaner.max_length
    except UnicodeDecodeError:
        clean = False
        if cleaner.guess_encoding:
            cleaner.settle_encoding(body)
            if cleaner.encoding != encoding.UTF8:
                yield from _lines(body, number, name, cleaner)
                return
    if clean:
        yield number, lines
        return
    for at, raw in enumerate(body.split(b"\n"), number):
        location = f"{name}:{at}"
        if parts := cleaner.split_long(cleaner.decode(raw, location), location):
            yield at, parts


def _decode_part(raw: bytes, location: str, cleaner: Cleaner) -> list[str]:
    if cleaner.guess_encoding and not raw.isascii():
        cleaner.settle_encoding(raw)
    text = cleaner.decode(raw, location)
    return [] if text is None else split_at_spaces(text, cleaner.max_length)


def _last_space(raw: bytes) -> int:
    """Where to cut an unfinished line: after its last space, or at least not inside a character."""
    if space := raw.rfind(b" ") + 1:
        return space
    begins = (len(raw) - back for back in range(1, 5) if raw[-back] & 0xC0 != 0x80)
    return next(begins, len(raw))


def _unify_newlines(blocks: Iterable[bytes], name: str, cleaner: Cleaner) -> Iterator[bytes]:
    """The same text with every line ended by a line feed, the last one too."""
    last = b""
    for block in _strip_bom(iter(blocks), name, cleaner):
        block, last = last + block, b""
        if b"\r" in block:
            if block.endswith(b"\r"):  # perhaps the first half of CR LF
                block, last = block[:-1], b"\r"
            block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        yield block
    yield b"\n"


def _strip_bom(blocks: Iterator[bytes], name: str, cleaner: Cleaner) -> Iterator[bytes]:
    """The same text without a byte-order mark; UTF-16, as Windows writes it, and UTF-32 become UTF-8."""
    first, blocks = _peek(blocks)
    if found := encoding.wide(first):
        cleaner.tally["byte-order marks"] += bool(encoding.bom_encoding(first))
        cleaner.guess_encoding = False
        cleaner.bom_encoding = found
        # Lone surrogates are found later; UTF-32 can hold further numbers that are no character.
        decoder = codecs.getincrementaldecoder(found)("surrogatepass" if found.startswith("utf-16") else "replace")
        for block in chain([first], blocks):
            yield decoder.decode(block).encode("utf-8", "surrogatepass")
        if decoder.getstate()[0]:
            yield b"\xff"  # half a character at the end: a bad byte in UTF-8, too
        return
    if first.startswith(codecs.BOM_UTF8):
        cleaner.tally["byte-order marks"] += 1
        cleaner.guess_encoding = False
    yield first.removeprefix(codecs.BOM_UTF8)
    yield from blocks


def _peek(blocks: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """The first bytes, as many whatever the blocks, and the other blocks; an error of reading is raised after them."""
    first, failure = b"", None  # type: bytes, BaseException | None
    try:
        while len(first) < encoding.ENCODING_SAMPLE_BYTES and (more := next(blocks, b"")):
            first += more
    except READ_ERRORS as error:
        failure = error

    def rest() -> Iterator[bytes]:
        if failure is not None:
            raise failure
        yield from blocks

    return first, rest()
