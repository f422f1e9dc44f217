"""Text that is not UTF-8 is read as what it is, and bad bytes in UTF-8 stay bad bytes."""

import random
import sys
from pathlib import Path

import pytest

from bertsmith.data.corpus import Corpus
from bertsmith.data.encoding import guess

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
    assert corpus.news() == [
        f"{tmp_path / 'a.txt'}: read as cp1252, not UTF-8",
        f"{tmp_path / 'b.txt'}: read as utf-16, not UTF-8",
        f"{tmp_path / 'e.csv'}: read as cp1252, not UTF-8",
        f"{tmp_path / 'f.jsonl'}: read as cp1252, not UTF-8",
    ]
    assert corpus.news() == []  # each is told once


def test_a_text_that_was_utf_8_so_far_stays_so(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("größer\n".encode() * 300_000 + b"caf\xe9\n")
    corpus = Corpus([str(tmp_path)], layout="lines")
    assert list(corpus.lines())[-1] == "caf\ufffd"
    assert corpus.news() == []
