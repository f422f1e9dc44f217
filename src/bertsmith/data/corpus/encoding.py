"""The encoding of a text that is not UTF-8, guessed from its first bytes that are not ASCII.

Western, Central European, Turkish and Baltic encodings differ in a few letters only, so they are distinguished by the
alphabets of their languages; other scripts by the library `charset_normalizer`. A few bad bytes in a UTF-8 text are no
sign of another encoding, and neither are bytes that are text in none.
"""

import codecs
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator

UTF8 = "utf-8"
SURROGATE_BYTES = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")  # surrogates, which some programs write into UTF-8
ENCODING_SAMPLE_BYTES = 1 << 16  # bytes that are looked at
MIN_UTF16_BYTES = 16  # bytes from which UTF-16 can be recognised without a byte-order mark
MIN_UTF16_BLANKS = 4  # two-byte line ends and spaces, in scripts such as Chinese with few control bytes
MIN_UTF16_CONTROLS = 0.6  # share of control bytes, 0 among them, in the upper bytes of other scripts
MAX_UNPRINTABLE = 0.01  # share of unprintable characters in a text; and the least of ASCII, such as line ends
MIN_IN_ALPHABET = 0.9  # the least share of letters beyond ASCII that belong to the language's alphabet
MAX_HELD_BYTES = 1 << 22  # bytes without a line end that are held in memory
MIN_UTF8_LETTERS = 4  # letters beyond ASCII in a line that are UTF-8 by no chance
THREE_BYTES = "\u0800"  # the first letter that has three bytes in UTF-8, which are hardly ever right by chance
MAX_NOT_LATIN = 0.5  # the share of letters beyond ASCII above which the script is not Latin
PUNCTUATION_MARKS = frozenset("„“”‘’‚–—…«»‹›€£§°©®™·•¿¡ªº½¼¾²³×±µ¢†‡\u00a0\u00ad´`¨")
ALPHABETS = {
    "cp1252": [
        "äöüß",
        "àâæçéèêëîïôœùûüÿ",
        "áéíóúñü",
        "ãõáàâéêíóôúç",
        "àèéìíîòóùú",
        "åäöæøéü",
        "áðéíóúýþæö",
        "éëïöüèê",
    ],
    "cp1250": ["ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áäčďéíĺľňóôŕšťúýž", "áéíóöőúüű", "čćđšž", "ăâîşţ"],
    "cp1254": ["çğıiöşüâîû"],
    "cp1257": ["āčēģīķļņšūž", "ąčęėįšųūž", "äõöüšž"],
}
# Encodings that are accepted from the library: it also knows some that have not been in use for decades.
KNOWN = {
    *("cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "cp866", "cp874"),
    *("big5", "big5hkscs", "cp932", "cp949", "cp950", "euc_jp", "euc_kr", "gb18030", "gb2312", "gbk", "johab"),
    *("iso8859_5", "iso8859_6", "iso8859_7", "iso8859_8", "koi8_r", "koi8_u", "mac_cyrillic", "shift_jis", "tis_620"),
    *("shift_jis_2004", "shift_jisx0213", "euc_jis_2004", "euc_jisx0213"),
}
BOM_ENCODINGS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def bom_encoding(first: bytes) -> str:
    """UTF-16 or UTF-32 by a byte-order mark; else empty. The longer marks are tried first."""
    return next((name for mark, name in BOM_ENCODINGS.items() if first.startswith(mark)), "")


def wide(first: bytes) -> str:
    """UTF-16 or UTF-32 by a byte-order mark, or UTF-16 by its bytes; else empty.

    In most scripts every second byte is 0 or another control character; in Chinese, only in line ends and spaces.
    """
    if found := bom_encoding(first):
        return found
    head = first[: min(ENCODING_SAMPLE_BYTES, len(first)) & ~1]
    if b"\0" not in head or len(head) < MIN_UTF16_BYTES:
        return ""
    halves = head[::2], head[1::2]  # one of them is the upper bytes of all characters
    controls = max(sum(half.count(bytes([byte])) for byte in range(32) if byte not in b"\n\r") for half in halves)
    try:
        head.decode()
        is_utf8 = True
    except UnicodeDecodeError:
        is_utf8 = False
    texts = {name: head.decode(name, "replace") for name in ("utf-16-le", "utf-16-be")}
    blanks = max(text.count("\n") + text.count(" ") for text in texts.values())
    if controls < MIN_UTF16_CONTROLS * len(halves[0]) and (is_utf8 or blanks < MIN_UTF16_BLANKS):
        return ""  # stray NULs are bad characters, and no sign of another encoding
    ascii_share = {name: sum(map(str.isascii, text)) / len(text) for name, text in texts.items()}
    best = max(texts, key=lambda name: ascii_share[name])
    odd = sum(not (letter.isprintable() or letter.isspace()) for letter in texts[best])
    return best if ascii_share[best] >= MAX_UNPRINTABLE and odd <= MAX_UNPRINTABLE * len(texts[best]) else ""


def guess(raw: bytes) -> str:
    """The encoding of some lines that are not all UTF-8; UTF-8 where it is still the best guess."""
    sample = _sample(SURROGATE_BYTES.sub(b"", raw))
    text = sample.decode(errors="replace")
    bad = text.count("\ufffd")
    good = sum(not letter.isascii() for letter in text) - bad
    if not bad or good > bad:
        return UTF8
    return _latin(sample) or _other(sample) or UTF8


def looks_like_text(first: bytes) -> bool:
    """Whether the first bytes of a file may be text: no NUL, unless the encoding is UTF-16 or UTF-32."""
    return bool(wide(first)) or (b"\0" not in first and not first.startswith((b"%PDF-", b"\x1f\x8b", b"PK\x03\x04")))


def to_utf8(blocks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """The same text in UTF-8."""
    held = b""
    for block in blocks:
        held += block
        cut = max(held.rfind(b"\n"), held.rfind(b" ") if len(held) > MAX_HELD_BYTES else -1) + 1
        cut = len(held) if not cut and len(held) > MAX_HELD_BYTES else cut
        yield decode_lines(held[:cut], encoding, "replace")[0].encode()
        held = held[cut:]
    yield decode_lines(held, encoding, "replace")[0].encode()


def decode_lines(raw: bytes, encoding: str, errors: str = "strict") -> tuple[str, bool]:
    """The text of lines in an encoding, and whether some of them are UTF-8 all the same.

    Files are appended to each other, and one line in cp1252 is enough for the guess: so each is UTF-8 where it can be.
    """
    try:
        text = raw.decode()
        if text.isascii() or _is_utf8(text, encoding):
            return text, not text.isascii()
    except UnicodeDecodeError:
        pass
    lines = raw.split(b"\n")
    if len(lines) == 1:
        return raw.decode(encoding, errors), False
    found = [decode_lines(line, encoding, errors) for line in lines]
    return "\n".join(line for line, _ in found), any(utf8 for _, utf8 in found)


def _is_utf8(text: str, encoding: str) -> bool:
    """Whether a text that can be decoded as UTF-8 is so by no chance: in cp1252, the end of `Spaß…` can be, too."""
    letters = [letter for letter in text if not letter.isascii()]
    if len(letters) >= MIN_UTF8_LETTERS or max(letters) >= THREE_BYTES:
        return True
    one_byte_each = len(bytes(range(128, 256)).decode(encoding, "replace")) == 128
    return one_byte_each and "?" not in "".join(letters).encode(encoding, "replace").decode("latin-1")


def _sample(raw: bytes) -> bytes:
    """The first lines that are not ASCII, since the others do not differ between encodings."""
    lines, size = list[bytes](), 0
    for line in raw.split(b"\n"):
        if not line.isascii():
            lines.append(line[:ENCODING_SAMPLE_BYTES])
            size += len(lines[-1])
            if size >= ENCODING_SAMPLE_BYTES:
                break
    return b"\n".join(lines)


def _latin(sample: bytes) -> str:
    """The encoding in which nearly all letters are those of one language; of equals the first, cp1252 foremost."""
    best, found = 0.0, ""
    for encoding, alphabets in ALPHABETS.items():
        text = sample.decode(encoding, errors="replace")
        letters = Counter(letter for letter in text if not letter.isascii() and letter not in PUNCTUATION_MARKS)
        plain = sum(letter.isascii() and letter.isalpha() for letter in text)
        count = letters.total()
        if count > MAX_NOT_LATIN * (count + plain):
            return ""
        for alphabet in alphabets:
            fitting = sum(number for letter, number in letters.items() if letter.lower() in alphabet) / max(count, 1)
            fitting = fitting if count else 1.0
            if fitting > best:
                best, found = fitting, encoding
    return found if best >= MIN_IN_ALPHABET else ""


def _other(sample: bytes) -> str:
    try:
        from charset_normalizer import from_bytes
    except ImportError:
        return ""
    logging.getLogger("charset_normalizer").setLevel(logging.ERROR)
    names = (match.encoding for match in from_bytes(sample, enable_fallback=False))
    return next((name for name in names if name in KNOWN), "")
