"""Words that stood for a term of the field are gone from the package: zero, after, predicted, randomly initialised."""

import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "bertsmith"
# Also inside of names, such as `_told`, but not inside of longer words.
WORDS = re.compile(r"(?<![a-z])(nought|noughts|from\s+(?:#\s*)?chance|behind|told)(?![a-z])", re.IGNORECASE)
ALLOWED = re.compile(
    r"behind a proxy|(lags?|lagging|falls?|falling|left|leaves?|leaving) behind|told apart", re.IGNORECASE
)
# Files that still have one of them, by room: they leave these sets, and none is added.
TO_SWEEP: dict[str, set[str]] = {
    "data": set(),
    "metrics": set(),
    "root": set(),
}


def found(text: str) -> list[str]:
    """The words in a text, after the phrases in which they mean what they say everywhere."""
    return [match[0] for match in WORDS.finditer(ALLOWED.sub("", text))]


def files() -> dict[str, list[str]]:
    """The words by file, of files that have any."""
    texts = {
        path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8")
        for ending in ("py", "toml", "js", "css", "html")
        for path in SOURCE.rglob(f"*.{ending}")
    }
    return {file: words for file, text in texts.items() if (words := found(text))}


def test_no_private_words_are_left() -> None:
    left = {file: words for file, words in files().items() if not any(file in room for room in TO_SWEEP.values())}
    assert not left, left


@pytest.mark.exhaustive(suite=1)
@pytest.mark.parametrize("room", TO_SWEEP)
def test_a_file_that_is_swept_is_struck_out(room: str) -> None:
    swept = TO_SWEEP[room] - files().keys()
    assert not swept, f"none of the words is left, strike it out of TO_SWEEP: {swept}"


@pytest.mark.parametrize(
    "line",
    [
        "a loss of nought",
        "# weights drawn from\n    # chance",
        "Weights from chance",
        "one behind the other",
        "Behind the sequence",
        "what is told",
        "self._told(hidden)",
        "before: int, behind: int",
    ],
)
def test_a_private_word_is_seen(line: str) -> None:
    assert found(line)


@pytest.mark.parametrize("line", ["a server behind a proxy", "left behind", "texts are told apart", "untold", "chance"])
def test_plain_english_is_allowed(line: str) -> None:
    assert not found(line)
