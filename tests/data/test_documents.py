"""PDF and Word files, and tables, as documents of a corpus."""

import io
import zipfile
from pathlib import Path

import pytest

from bertsmith.data.corpus import decompression
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.errors import TextError

STREAM = b"BT /F1 12 Tf 72 720 Td (A first sentence that was bro-) Tj 0 -14 Td (ken here. A second one.) Tj ET"


def pdf() -> bytes:
    """A page of two lines, as small as a PDF can be."""
    parts = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 99 99] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(STREAM), STREAM),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    out, places = bytearray(b"%PDF-1.4\n"), list[int]()
    for number, part in enumerate(parts, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, part)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(parts) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    out += b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(parts) + 1, start)
    return bytes(out)


def test_a_pdf_is_a_document_of_sentences(tmp_path: Path) -> None:
    pytest.importorskip("pypdf")
    (tmp_path / "a.pdf").write_bytes(pdf())
    corpus = Corpus([str(tmp_path)])
    assert [document.sentences for document in corpus.documents()] == [
        ["A first sentence that was broken here.", "A second one."]
    ]
    assert corpus.estimated_words == 10


def test_a_damaged_pdf_is_left_out_and_told_or_refused(tmp_path: Path) -> None:
    pytest.importorskip("pypdf")
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.4 and then nothing")
    (tmp_path / "b.txt").write_text("A text.\n")
    corpus = Corpus([str(tmp_path)])
    assert [document.sentences for document in corpus.documents()] == [["A text."]]
    assert corpus.tally["unreadable files"] == 1
    (line,) = corpus.new_notes()
    assert line.startswith(f"{tmp_path / 'a.pdf'}: cannot be read (")
    with pytest.raises(TextError, match=r"a\.pdf: cannot be read\."):
        list(Corpus([str(tmp_path)], on_bad_line="fail").documents())


def test_a_word_document_gives_its_paragraphs_and_tables(tmp_path: Path) -> None:
    docx = pytest.importorskip("docx")
    made = docx.Document()
    made.add_heading("A heading", 1)
    made.add_paragraph("A first sentence. A second one.")
    table = made.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "one", "two"
    made.save(str(tmp_path / "a.docx"))
    corpus = Corpus([str(tmp_path / "a.docx")])
    (document,) = corpus.documents()
    assert document.sentences == ["A heading", "A first sentence.", "A second one.", "one two"]


def test_a_word_document_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("docx")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", b" " * (decompression.MAX_DECOMPRESSED_BYTES + 1))
    (tmp_path / "a.docx").write_bytes(packed.getvalue())
    with pytest.raises(TextError, match=r"a\.docx: unpacks to 33,554,433 bytes, 1,024 times its size\. Do not trust"):
        list(Corpus([str(tmp_path)]).documents())


@pytest.mark.parametrize(("name", "library"), [("a.pdf", "pypdf"), ("a.docx", "python-docx")])
def test_without_the_library_the_remedy_is_named(
    name: str, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, {"python-docx": "docx"}.get(library, library), None)
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(TextError, match=rf"needs {library}\. Install it with: pip install 'bertsmith\[documents\]'"):
        list(Corpus([str(tmp_path / name)]).documents())


def test_the_longest_column_of_a_table_is_its_text_unless_one_is_named(tmp_path: Path) -> None:
    rows = "id,review,stars\n" + "".join(f"{at},This is review number {at}.,{at % 5}\n" for at in range(9))
    (tmp_path / "a.csv").write_text(rows)
    corpus = Corpus([str(tmp_path / "a.csv")])
    assert [document.sentences for document in corpus.documents()][:2] == [
        ["This is review number 0."],
        ["This is review number 1."],
    ]
    name = tmp_path / "a.csv"
    assert corpus.new_notes() == [
        f"{name}: text from column 'review', the one with the longest texts; --field names another"
    ]
    assert next(Corpus([str(name)], field="stars").documents()).sentences == ["0"]
    with pytest.raises(TextError, match=r"a\.csv: has no column 'reviews'\. Did you mean 'review'\?"):
        list(Corpus([str(name)], field="reviews").documents())
    (tmp_path / "b.tsv").write_text("label\ttext\n" + "1\tshort\n" * 5)
    assert [document.sentences for document in Corpus([str(tmp_path / "b.tsv")]).documents()] == [["short"]] * 5


def test_markup_is_running_text_of_one_document(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# Heading\n\nOne sentence. Another\none.\n\n\n\nMore.\n")
    (tmp_path / "b.html").write_text("<h1>Heading</h1><p>One sentence. Another one.</p>")
    corpus = Corpus([str(tmp_path)])
    assert [document.sentences for document in corpus.documents()] == [
        ["Heading", "One sentence.", "Another one.", "More."],
        ["Heading", "One sentence.", "Another one."],
    ]
    plain = Corpus([str(tmp_path / "b.html")], plain=True)
    assert next(plain.documents()).sentences[0].startswith("<h1>")
