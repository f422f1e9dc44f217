"""Text that is not UTF-8 is read as what it is, and bad bytes in UTF-8 stay bad bytes."""

import io
import random
import sys
from pathlib import Path

import pytest

from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.corpus.encoding import decode_lines, guess, to_utf8, wide
from bertsmith.data.labelled import reader
from bertsmith.data.labelled.examples import Example
from bertsmith.data.labelled.inputs import TrainedOn
from bertsmith.data.labelled.unlabelled import examples
from bertsmith.errors import TextError

TEXTS = {
    "German": ("cp1252", "Das Geschäft für Sicherheitsausrüstung – „größer“ als früher."),
    "French": ("cp1252", "été à la façon naïve où ça déjà."),
    "English": ("cp1252", "It’s a café – with “quotes”."),
    "Turkish": ("cp1254", "Öğle güneşi çok sıcak, ışık."),
    "Polish": ("cp1250", "Zażółć gęślą jaźń."),
    "Czech": ("cp1250", "Příliš žluťoučký kůň úpěl ďábelské ódy."),
    "Latvian": ("cp1257", "Šodien ir ļoti jauka diena, vējš pūš lēnām."),
    "Russian": ("cp1251", "Привет, мир. Это текст на русском языке. " * 3),
    "Chinese": ("gb18030", "这是一个中文文本，用于测试。今天天气很好。" * 3),
    "Japanese": ("cp932", "これは日本語のテキストです。今日は天気がいい。" * 3),
    "Arabic": ("cp1256", "هذا نص باللغة العربية للاختبار. " * 3),
}


@pytest.mark.parametrize("language", TEXTS)
def test_the_encoding_of_a_text_is_guessed_from_its_letters(language: str) -> None:
    encoding, text = TEXTS[language]
    assert text.encode(encoding).decode(guess(text.encode(encoding))) == text


def test_bad_bytes_in_utf_8_and_junk_are_no_other_encoding() -> None:
    assert guess("grüße, größer".encode() + b" \xff \xe9") == "utf-8"
    assert guess(b"\xed\xa0\x80 half a character") == "utf-8"
    assert {guess(random.Random(seed).randbytes(400)) for seed in range(5)} == {"utf-8"}


def test_without_the_library_western_text_is_read_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "charset_normalizer", None)
    assert guess("Geschäft".encode("cp1252")) == "cp1252"
    assert guess("Привет, мир".encode("cp1251")) == "utf-8"  # counted and mended as before


def test_a_corpus_says_which_file_was_read_in_which_encoding(tmp_path: Path) -> None:
    text = "Sicherheitsausrüstung für das Geschäft.\n"
    (tmp_path / "a.txt").write_bytes(text.encode("cp1252"))
    (tmp_path / "b.txt").write_bytes(text.encode("utf-16"))
    (tmp_path / "c.txt").write_bytes(text.encode())
    (tmp_path / "d.txt").write_bytes((text * 3).encode() + b"br\xffken\n")
    (tmp_path / "e.csv").write_bytes(f"text,label\n{text.strip()},1\n".encode("cp1252"))
    (tmp_path / "f.jsonl").write_bytes(f'{{"text": "{text.strip()}"}}\n'.encode("cp1252"))
    corpus = Corpus([str(tmp_path)], layout="lines")
    found = [document.sentences for document in corpus.documents()]
    assert found == [[text.strip()]] * 3 + [[text.strip()] * 3 + ["br\ufffdken"]] + [[text.strip()]] * 2
    assert corpus.tally["bad bytes"] == 1
    assert corpus.new_notes() == [
        f"{tmp_path / 'a.txt'}: read as cp1252, not UTF-8",
        f"{tmp_path / 'b.txt'}: read as utf-16, not UTF-8",
        f"{tmp_path / 'e.csv'}: read as cp1252, not UTF-8",
        f"{tmp_path / 'f.jsonl'}: read as cp1252, not UTF-8",
    ]
    assert corpus.new_notes() == []  # each is reported once


def test_a_text_that_was_utf_8_so_far_stays_so(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("größer\n".encode() * 300_000 + b"caf\xe9\n")
    corpus = Corpus([str(tmp_path)], layout="lines")
    assert list(corpus.lines())[-1] == "caf\ufffd"
    assert corpus.new_notes() == []


@pytest.mark.slow("reads a large file")
def test_one_line_in_another_encoding_does_not_spoil_the_lines_in_utf_8(tmp_path: Path) -> None:
    stray, plain, text = "He sat in the café.", "Then he left.", "“It’s a façade,” she said."
    rest = [text, "Crème brûlée for all.", "One café more.", "Привет", "日本"] * 9
    many = [plain] * 80_000  # more than a block
    raw = "\n".join([stray, *many]).encode("cp1252") + "\n".join(["", *rest]).encode()
    (tmp_path / "a.txt").write_bytes(raw)
    (tmp_path / "b.tsv").write_bytes(b"text\n" + raw)
    corpus = Corpus([str(tmp_path)], layout="lines")
    assert [line for line in corpus.lines() if line != plain] == [stray, *rest] * 2
    assert not corpus.tally
    assert corpus.new_notes()[0] == f"{tmp_path / 'a.txt'}: read as cp1252 where it is not UTF-8"


@pytest.mark.parametrize("language", TEXTS)
def test_a_line_that_is_utf_8_by_chance_stays_in_its_encoding(language: str) -> None:
    encoding, text = TEXTS[language]
    lines = [text] * 3 + {"cp1252": ["Spaß…", "QUALITÉ…"], "cp1251": ["Её"], "gb18030": ["论"]}.get(encoding, [])
    assert decode_lines("\n".join(lines).encode(encoding), encoding) == ("\n".join(lines), False)
    assert b"".join(to_utf8(["\n".join(lines).encode(encoding)], encoding)).decode() == "\n".join(lines)


def test_a_text_without_line_ends_becomes_utf_8_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertsmith.data.corpus.encoding.MAX_HELD_BYTES", 1 << 12)
    for text in ("für alle " * 3_000, "ü" * 30_000):
        raw = text.encode("cp1252")
        found = list(to_utf8((raw[start : start + 999] for start in range(0, len(raw), 999)), "cp1252"))
        assert b"".join(found).decode() == text
        assert max(map(len, found)) < 1 << 14


WIDE = {
    "English": "The old man looked out to the sea.\r\nThere was no ship to be seen.\r\n",
    "Russian": "Старик смотрел на море.\nКорабля не было видно.\n",
    "Greek": "Ο γέρος κοίταζε τη θάλασσα.\nΔεν φαινόταν κανένα πλοίο.\n",
    "Hindi": "बूढ़ा आदमी समुद्र को देख रहा था।\nकोई जहाज नहीं दिख रहा था।\n",
    "Chinese": "老人望着大海，一直没有说话。\n海上没有一艘船，只有一片蓝色。\n天空也是蓝色的，没有云。\n他等了很久。\n",
}


@pytest.mark.parametrize("order", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("language", list(WIDE))
def test_utf_16_without_a_byte_order_mark_is_read_and_said(language: str, order: str, tmp_path: Path) -> None:
    text, path = 3 * WIDE[language], tmp_path / "wide.txt"
    path.write_bytes(text.encode(order))
    assert wide(path.read_bytes()) == order
    corpus = Corpus([str(path)], layout="lines")
    assert list(corpus.lines()) == text.split("\r\n" if "\r" in text else "\n")[:-1]
    assert any(f"read as {order}, not UTF-8" in note for note in corpus.new_notes())
    assert [one.texts[0] for one in examples([str(path)], TrainedOn(kind="classify"))] == text.splitlines()
    table = tmp_path / "wide.csv"
    table.write_bytes("".join(["text,label\n", *(f"{line},no\n" for line in text.splitlines())]).encode(order))
    read = reader.read(table, "classify").examples
    assert [one.texts[0] for one in read if isinstance(one, Example)] == text.splitlines()


def test_a_stray_nul_and_binary_data_are_no_utf_16() -> None:
    assert wide(b"a plain text with one stray\0 character in it\n" * 20) == ""
    assert wide(b"text\tlabel\n.aa\tx\none\tx\ty\nn\0l\tx") == ""  # tabs may be every tenth byte
    assert wide("naïve café\0 and a few more words that are Latin-1\n".encode("latin-1") * 20) == ""
    assert wide(b"a\0\nb\0") == ""
    assert wide(bytes(range(256)) * 8) == ""
    assert wide(b"".join(number.to_bytes(2, "little") for number in range(512))) == ""
    assert wide(b"\x7fELF\2\1\1\0\0\0\0\0\0\0\0\0\3\0\xb7\0\1\0\0\0\0\0\0\0" * 20) == ""


def test_utf_16_on_standard_input_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    wide_text = io.TextIOWrapper(io.BytesIO(WIDE["English"].encode("utf-16-le")), encoding="utf-8")
    monkeypatch.setattr("sys.stdin", wide_text)
    with pytest.raises(TextError, match=r"^standard input: is UTF-16 text\. Save it as UTF-8, or pipe it"):
        list(examples(["-"], TrainedOn(kind="classify")))
