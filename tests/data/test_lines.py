"""Any bytes become clean lines, or one line that says where and why not."""

import codecs
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bertsmith.data.corpus.lines import Cleaner, Policy, clean_lines, split_at_spaces
from bertsmith.errors import TextError


def read(
    data: bytes, policy: Policy = "replace", *, longest: int = 1_000_000, block: int = 1 << 20
) -> tuple[list[tuple[int, str]], Counter[str]]:
    """Numbered lines that are not blank, and the tally."""
    tally = Counter[str]()
    blocks = (data[start : start + block] for start in range(0, len(data), block))
    found = clean_lines(blocks, "a.txt", Cleaner(policy, longest, tally))
    lines = [(number, line) for first, run in found for number, line in enumerate(run, first) if line.strip()]
    return lines, tally


def test_lines_end_as_windows_unix_and_old_macs_end_them() -> None:
    expected = [(1, "one"), (2, "two"), (4, "four")]
    for end in (b"\n", b"\r\n", b"\r"):
        data = end.join([b"one", b"two", b"", b"four", b""])
        for block in (1, 2, 3, 5, 1 << 20):
            assert read(data, block=block) == (expected, Counter())


@pytest.mark.parametrize(
    ("raw", "kind", "mended", "fact"),
    [
        (b"caf\xe9 noir", "bad bytes", "caf\ufffd noir", "holds bytes that are not UTF-8"),
        (b"\xed\xa0\x80 half", "bad bytes", "\ufffd\ufffd\ufffd half", "holds bytes that are not UTF-8"),
        (b"nul\0here", "NUL characters", "nul here", "holds a NUL character"),
        (b"word " * 5, "long lines", None, "is longer than 20 characters"),
    ],
)
def test_a_bad_line_is_mended_dropped_or_refused(raw: bytes, kind: str, mended: str | None, fact: str) -> None:
    data = b"first\n" + raw + b"\nlast\n"
    kept = [(2, mended)] if mended else [(2, "word word word word"), (3, " word ")]
    assert read(data, "replace", longest=20) == ([(1, "first"), *kept, (3, "last")], Counter({kind: 1}))
    assert read(data, "skip", longest=20) == ([(1, "first"), (3, "last")], Counter({kind: 1}))
    remedy = "Mend the file, or choose to skip or replace what is bad."
    with pytest.raises(TextError) as caught:
        read(data, "fail", longest=20)
    assert str(caught.value) == f"a.txt:2: {fact}. {remedy}"


def test_byte_order_marks_are_taken_off_and_counted() -> None:
    data = codecs.BOM_UTF8 + b"one\n" + codecs.BOM_UTF8 + b"two\n"
    for policy in ("replace", "skip", "fail"):
        assert read(data, policy) == ([(1, "one"), (2, "two")], Counter({"byte-order marks": 2}))


def test_utf_16_and_utf_32_are_known_by_their_marks() -> None:
    text = "grüße 🤗\nzwei\n"
    for encoding in ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"):
        data = ("\ufeff" + text).encode(encoding)
        for block in (1 << 20, 1_000, 1):
            lines, tally = read(data, "fail", block=block)
            assert (lines, tally) == ([(1, "grüße 🤗"), (2, "zwei")], Counter({"byte-order marks": 1}))
        assert read(data[:-1], "replace")[0][-1] == (2, "zwei\ufffd")
        with pytest.raises(TextError, match=r"^a\.txt:2: holds bytes that are not UTF-8\."):
            read(data[:-1], "fail")


def test_a_very_long_line_is_returned_in_parts_and_never_held_whole() -> None:
    word, many = b"\xc3\xa9t\xc3\xa9 ", 50_000
    data = b"before\n" + word * many + b"\nafter\n"

    lines, tally = read(data, longest=1_000, block=4_096)
    middle = [line for number, line in lines[1:-1]]
    assert (lines[0], lines[-1]) == ((1, "before"), (3, "after"))
    assert " ".join(" ".join(middle).split()) == ("été " * many).strip()
    assert max(map(len, middle)) <= 1_000
    assert tally == Counter({"long lines": 1})

    assert read(data, "skip", longest=1_000, block=4_096) == (
        [(1, "before"), (3, "after")],
        Counter({"long lines": 1}),
    )
    with pytest.raises(TextError, match=r"^a\.txt:2: is longer than 1,000 characters\."):
        read(data, "fail", longest=1_000, block=4_096)


def test_a_line_without_end_and_without_spaces_is_cut_between_characters() -> None:
    text = "aé日🤗" * 3_000
    for block in (997, 4_096):
        lines, tally = read(text.encode(), longest=100, block=block)
        assert "".join(line for _, line in lines) == text
        assert tally == Counter({"long lines": 1})


def test_a_long_text_is_cut_at_spaces() -> None:
    assert split_at_spaces("aaa bbb ccc", 7) == ["aaa bbb", " ccc"]
    assert split_at_spaces("aaaaaaaaaa", 4) == ["aaaa", "aaaa", "aa"]
    assert split_at_spaces("short", 5) == ["short"]


def test_a_disk_that_fails_is_told_with_the_line(tmp_path: Path) -> None:
    def failing(error: Exception) -> Iterator[bytes]:
        yield b"one\ntwo\n"
        raise error

    for error, message in [
        (
            EOFError("Compressed file ended early"),
            "a.txt:3: cannot be read from here on (Compressed file ended early)",
        ),
        (OSError(5, "Input/output error"), "a.txt:3: cannot be read (Input/output error)."),
        (MemoryError(), "a.txt:3: cannot be read from here on (it is damaged). Get the file again."),
    ]:
        with pytest.raises(TextError) as caught:
            list(clean_lines(failing(error), "a.txt", Cleaner("replace", 100, Counter())))
        assert str(caught.value).startswith(message)


@given(
    st.lists(st.one_of(st.binary(), st.text().map(str.encode), st.sampled_from([b"\n", b"\r\n", b"\0", b"\xff\xfe"]))),
    st.sampled_from(["replace", "skip", "fail"]),
    st.integers(1, 50),
    st.integers(1, 40),
)
@example([codecs.BOM_UTF16_LE, b"\x00\xd8a"], "replace", 10, 3)
@example([codecs.BOM_UTF16_BE, b"\xdc\x00"], "skip", 10, 1)
def test_any_bytes_are_read_or_refused(pieces: list[bytes], policy: Policy, longest: int, block: int) -> None:
    data = b"".join(pieces)
    refused, lines = "", list[tuple[int, str]]()
    try:
        lines, _ = read(data, policy, longest=longest, block=block)
    except TextError as error:
        refused = str(error)
    assert not refused or refused.startswith("a.txt:")
    assert not refused or policy == "fail" or "UTF-32" in refused
    for _, line in lines:
        line.encode()
        assert len(line) <= longest
        assert not set(line) & {"\0", "\n", "\r", "\ufeff"}


@given(st.binary(), st.integers(1, 7))
def test_where_blocks_end_changes_nothing(data: bytes, block: int) -> None:
    try:
        whole = read(data)
    except TextError:  # UTF-32 is known by its first four bytes
        return
    first = max(block, 4)
    blocks = [data[:first], *(data[start : start + block] for start in range(first, len(data), block))]
    tally = Counter[str]()
    found = clean_lines(iter(blocks), "a.txt", Cleaner("replace", 1_000_000, tally))
    lines = [(number, line) for first, run in found for number, line in enumerate(run, first) if line.strip()]
    assert (lines, tally) == whole
