"""Personal data: e-mail, IP and street addresses, replaced by made-up ones so that sentences stay sentences.

Found by patterns, so some are missed, and some numbers that look like an address are replaced.
"""

import re

EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}\b")
# Not a version number with more parts, and no part above 255.
IP_ADDRESS = re.compile(r"(?<![\w.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\w]|\.\d)")
STREET = re.compile(
    r"\b\d{1,5}(?: (?:[NSEW]\.?|North|South|East|West))?(?: [A-Z][\w'’-]+){1,3}"
    r" (?:Street|Avenue|Road|Boulevard|Lane|Drive|Court|Square|Terrace|St|Ave|Rd|Blvd|Ln|Dr)\b"
    r"|\b[A-ZÄÖÜ][a-zäöüß]+(?:straße|strasse|str\.|gasse|weg|allee|platz) \d{1,4}[a-z]?\b"
    r"|\b\d{1,4},? (?:rue|avenue|boulevard|chemin|place)(?: (?:de|du|des|la|le|les|l'))*(?: [A-ZÀ-Þ][\w'’-]+){1,3}"
)
REPLACEMENTS = ((EMAIL, "name@example.com"), (IP_ADDRESS, "192.0.2.1"), (STREET, "1 Example Street"))


def replace_personal(text: str) -> tuple[str, int]:
    """The text with addresses replaced, and their number."""
    count = 0
    for pattern, made_up in REPLACEMENTS:
        if pattern is EMAIL and "@" not in text:
            continue  # most lines: searching for @ is far faster than the pattern
        text, found = pattern.subn(made_up, text)
        count += found
    return text, count
