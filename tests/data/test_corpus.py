"""Files become documents: the right ones, in order, in bounded memory, whatever the bytes."""

import gzip
import io
import json
import lzma
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.corpus.lines import Policy
from bertsmith.data.corpus.passages import MAX_DOCUMENT_CHARACTERS, NEW_DOCUMENT_CHARACTERS, Document, passages
from bertsmith.errors import TextError

PROSE = (
    "It was a dark and stormy night. The rain fell in torrents, except at occasional intervals. Then it was "
    "checked by a violent gust of wind which swept up the streets. Mr. Clifford looked out of his window and "
    'sighed. "Shall we ever see the sun again?" he asked. Nobody in the house knew what to answer him.'
)
SENTENCES = [
    "It was a dark and stormy night.",
    "The rain fell in torrents, except at occasional intervals.",
    "Then it was checked by a violent gust of wind which swept up the streets.",
    "Mr. Clifford looked out of his window and sighed.",
    '"Shall we ever see the sun again?" he asked.',
    "Nobody in the house knew what to answer him.",
]


def written(path: Path, text: str | bytes) -> str:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def read(corpus: Corpus, skip: int = 0) -> list[list[str]]:
    return [document.sentences for document in corpus.documents(skip)]


def test_one_sentence_a_line_and_a_blank_line_between_documents(tmp_path: Path) -> None:
    name = written(tmp_path / "a.txt", "One.\n Two. \n\n\n \nThree.\nFour.\n\nFive.")
    corpus = Corpus([name])
    found = list(corpus.documents())
    assert [document.sentences for document in found] == [["One.", "Two."], ["Three.", "Four."], ["Five."]]
    assert [(document.file, document.line) for document in found] == [(name, 1), (name, 6), (name, 9)]
    assert list(corpus.lines()) == ["One.", "Two.", "Three.", "Four.", "Five."]
    assert corpus.layouts == {name: "lines"}
    assert corpus.tally == Counter()


def test_a_new_file_begins_a_new_document(tmp_path: Path) -> None:
    written(tmp_path / "b.txt", "Two.")
    written(tmp_path / "a.txt", "One.\n")
    assert read(Corpus([str(tmp_path)])) == [["One."], ["Two."]]


@pytest.mark.parametrize("laid", ["paragraphs", "wrapped", "windows"])
def test_running_text_is_split_into_sentences(laid: str, tmp_path: Path) -> None:
    lines = [PROSE] if laid == "paragraphs" else textwrap.wrap(PROSE, 72)
    text = "\n".join([*lines, "", *lines, "", "", *lines, ""])
    name = written(tmp_path / "a.txt", text.replace("\n", "\r\n") if laid == "windows" else text)
    corpus = Corpus([name])
    assert read(corpus) == [SENTENCES * 2, SENTENCES]
    assert corpus.layouts == {name: "running"}
    assert list(corpus.lines()) == [PROSE] * 3


def test_wrapped_lines_of_a_script_without_spaces_are_joined_without_them(tmp_path: Path) -> None:
    prose = "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。"
    lines = textwrap.wrap(prose * 9, 40)
    name = written(tmp_path / "a.txt", "\n".join(lines))
    assert list(Corpus([name]).lines()) == [prose * 9]
    page = written(tmp_path / "b.html", f"<p>{lines[0]}\n{lines[1]}</p>")
    notes = written(tmp_path / "c.md", f"{lines[0]}\n{lines[1]}\n")
    assert list(Corpus([page, notes]).lines()) == [lines[0] + lines[1]] * 2


def test_the_layout_can_be_told(tmp_path: Path) -> None:
    name = written(tmp_path / "a.txt", f"{PROSE}\n\n{PROSE}\n")
    assert read(Corpus([name], layout="lines")) == [[PROSE], [PROSE]]
    assert read(Corpus([name], layout="running")) == [SENTENCES * 2]


def test_every_file_has_its_own_layout(tmp_path: Path) -> None:
    first = written(tmp_path / "a.txt", "\n".join(SENTENCES))
    second = written(tmp_path / "b.txt", PROSE)
    corpus = Corpus([str(tmp_path)])
    assert read(corpus) == [SENTENCES, SENTENCES]
    assert corpus.layouts == {first: "lines", second: "running"}


def test_a_record_is_a_document_whatever_its_blank_lines(tmp_path: Path) -> None:
    lines = "\n".join([*SENTENCES, "", "", *SENTENCES])
    records = [json.dumps({"body": text}) for text in (lines, "  ", "One line.\r\nAnother.")]
    name = written(tmp_path / "a.jsonl", "\n".join(records))
    corpus = Corpus([name], field="body")
    assert read(corpus) == [SENTENCES * 2, ["One line.", "Another."]]
    assert [document.line for document in corpus.documents()] == [1, 3]
    assert corpus.layouts == {name: "lines"}

    parquet = pytest.importorskip("pyarrow.parquet")
    table = pytest.importorskip("pyarrow").table({"text": [f"{PROSE}\n\n\n{PROSE}", PROSE]})
    parquet.write_table(table, tmp_path / "b.parquet")
    corpus = Corpus([str(tmp_path / "b.parquet")])
    assert read(corpus) == [SENTENCES * 2, SENTENCES]
    assert corpus.layouts == {str(tmp_path / "b.parquet"): "running"}


def test_long_lines_of_a_record_go_by_the_policy(tmp_path: Path) -> None:
    name = written(tmp_path / "a.jsonl", json.dumps({"text": "Short.\n" + "word " * 30 + "\nEnd."}))
    corpus = Corpus([name], max_line_length=60)
    assert read(corpus) == [["Short.", *[("word " * 12).strip()] * 2, ("word " * 6).strip(), "End."]]
    assert corpus.tally == Counter({"long lines": 1})
    assert read(Corpus([name], max_line_length=60, on_bad_line="skip")) == [["Short.", "End."]]
    with pytest.raises(TextError, match=r"a\.jsonl:1: is longer than 60 characters\."):
        read(Corpus([name], max_line_length=60, on_bad_line="fail"))


def test_a_document_is_never_larger_than_memory_likes() -> None:
    lines = ["x" * 99] * 50_000
    for blanks, enough, broken in [
        (1, MAX_DOCUMENT_CHARACTERS, False),
        (2, NEW_DOCUMENT_CHARACTERS, False),
        (2, NEW_DOCUMENT_CHARACTERS, True),
    ]:
        found = list(passages([(1, lines)], blanks=blanks, max_characters=enough, join_lines=broken))
        sizes = [sum(map(len, one.texts)) for one in found]
        assert sum(sizes) >= 99 * 50_000
        assert max(sizes) < 1.1 * (MAX_DOCUMENT_CHARACTERS if broken or blanks == 1 else NEW_DOCUMENT_CHARACTERS)
        assert found[1].line == len(found[0].texts) + 1 or broken


def test_running_text_continues_in_a_new_document_at_the_end_of_a_paragraph() -> None:
    lines = [*["word " * 14] * 20, ""] * 100
    found = list(passages([(1, lines)], blanks=2, max_characters=NEW_DOCUMENT_CHARACTERS, join_lines=True))
    assert [one.line for one in found] == [1, 1009, 2017]  # 48 paragraphs of 21 lines
    assert {len(text) for one in found for text in one.texts} == {20 * 70 - 1}


@pytest.mark.parametrize("name", ["cp1251", "utf-16", "utf-16-le", "utf-8", "cp1252"])
def test_words_are_estimated_in_any_encoding(tmp_path: Path, name: str) -> None:
    text = "Das Geschäft schließt für heute um fünf.\n" if name == "cp1252" else "Привет, мир и все города на реке.\n"
    written(tmp_path / "a.txt", (text * 5_000).encode(name))
    assert Corpus([str(tmp_path)]).estimated_words == pytest.approx(7 * 5_000, rel=0.01)


def test_words_of_scripts_and_tags_are_not_estimated(tmp_path: Path) -> None:
    line = '<p class="a b c">One two three.</p><script>a b c</script>\n'
    page = "<head><style>p { margin: 0 }</style></head>" + line * 999
    written(tmp_path / "a.html", page.encode())
    assert Corpus([str(tmp_path)]).estimated_words == pytest.approx(3 * 999, rel=0.01)


def test_documents_can_be_skipped(tmp_path: Path) -> None:
    written(tmp_path / "a.txt", "One.\n\nTwo.\n\nThree.\n")
    written(tmp_path / "b.txt", f"{PROSE}\n\n\n{PROSE}\0\n")
    written(tmp_path / "c.jsonl", '{"text": "Four."}\n{"text": " "}\n{"text": "Five."}\n')
    corpus = Corpus([str(tmp_path)])
    everything, tally = read(corpus), Counter(corpus.tally)
    assert len(everything) == 7
    for skip in range(9):
        assert read(corpus, skip) == everything[skip:]
        assert corpus.tally == tally


def test_packing_changes_nothing(tmp_path: Path) -> None:
    text = "".join(f"Sentence number {number}.\n" + "\n" * (number % 99 == 0) for number in range(99_000)).encode()
    whole = read(Corpus([written(tmp_path / "a.txt", text)]))
    assert sum(map(len, whole)) == 99_000
    assert read(Corpus([written(tmp_path / "a.txt.gz", gzip.compress(text, 1))])) == whole
    assert read(Corpus([written(tmp_path / "a.txt.xz", lzma.compress(text, preset=0))])) == whole


def test_progress_is_known_and_the_number_of_words_estimated(tmp_path: Path) -> None:
    text = "".join(f"Sentence number {number} has seven words.\n\n" for number in range(6_000)).encode()
    written(tmp_path / "a.txt", text)
    written(tmp_path / "b.jsonl", "".join(json.dumps({"text": f"Only {n} words."}) + "\n" for n in range(900)))
    written(tmp_path / "c.txt.xz", lzma.compress(text, preset=0))
    written(tmp_path / "d.txt.gz", b"broken")
    corpus = Corpus([str(tmp_path)])
    assert corpus.bytes == sum(path.stat().st_size for path in corpus.files)
    assert corpus.estimated_words == pytest.approx(6_000 * 6 * 2 + 900 * 4, rel=0.15)

    (tmp_path / "d.txt.gz").unlink()
    corpus = Corpus([str(tmp_path)])
    shares = [corpus.progress for _ in corpus.documents()]
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1]
    assert corpus.progress == 1.0


def test_standard_input_is_read_once_as_text_or_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    def typed(data: bytes) -> Corpus:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        return Corpus(["-"])

    corpus = typed(b"One.\n\nTwo.\n")
    assert [(document.sentences, document.file) for document in corpus.documents()] == [
        (["One."], "standard input"),
        (["Two."], "standard input"),
    ]
    assert corpus.estimated_words == 0
    with pytest.raises(TextError, match=r"^standard input: can be read only once\. Write it to a file first\.$"):
        read(corpus)
    assert read(typed(b'\n{"text": "One."}\n{"text": "Two."}\n')) == [["One."], ["Two."]]


def test_standard_input_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: object) -> int:
            raise IsADirectoryError(21, "Is a directory")

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Broken())))
    with pytest.raises(TextError, match=r"^standard input: cannot be read \(Is a directory\)\.$"):
        read(Corpus(["-"]))


def test_files_without_text_are_counted_and_a_corpus_without_text_refused(tmp_path: Path) -> None:
    empty = written(tmp_path / "a.txt", b"")
    written(tmp_path / "b.txt", b"\xef\xbb\xbf \r\n\t\n")
    with pytest.raises(TextError, match=r"a\.txt: there is no text in it\. Give it files with text\.$"):
        read(Corpus([empty]))
    with pytest.raises(TextError, match=r"^2 files: there is no text in it\."):
        list(Corpus([str(tmp_path)]).lines())
    written(tmp_path / "c.txt", "One.")
    corpus = Corpus([str(tmp_path)])
    assert read(corpus) == [["One."]]
    assert corpus.tally == Counter({"files without text": 2, "byte-order marks": 1})


@pytest.mark.parametrize("packing", [".gz", ".xz", ".zst"])
def test_a_damaged_packed_file_is_told_with_the_line(packing: str, tmp_path: Path) -> None:
    text = "".join(f"This is line {number}.\n" for number in range(400_000)).encode()
    if packing == ".zst":
        arrow = pytest.importorskip("pyarrow")
        whole = arrow.Codec("zstd").compress(text, asbytes=True)
    else:
        whole = gzip.compress(text, 1) if packing == ".gz" else lzma.compress(text, preset=0)
    cut = Corpus([written(tmp_path / f"cut.txt{packing}", whole[: len(whole) // 2])])
    with pytest.raises(TextError) as caught:
        read(cut)
    place, fact = str(caught.value).split(": ", 1)
    assert int(place.rpartition(":")[2]) > 1
    assert fact.startswith("cannot be read from here on (")
    assert fact.endswith("). Get the file again.")
    junk = Corpus([written(tmp_path / f"junk.txt{packing}", b"this was never packed")])
    with pytest.raises(TextError, match=rf"junk\.txt\{packing}:1: cannot be read from here on \(.+\)\. Get the"):
        read(junk)


def test_a_file_that_may_not_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = Corpus([written(tmp_path / "a.txt", "One.")])

    def refuse(path: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(TextError, match=r"a\.txt:1: cannot be read \(Permission denied\)\.$"):
        read(corpus)


def test_unknown_choices_are_refused() -> None:
    # In a process of its own: here the types are checked first.
    script = "from bertsmith.data.corpus.corpus import Corpus; Corpus(['-'], {})"
    for choice, message in {
        "on_bad_line='repalce'": "RecipeError: on_bad_line: unknown choice 'repalce'. Did you mean 'replace'?",
        "layout='prose'": "RecipeError: layout: unknown choice 'prose'. Known: auto, lines, running.",
    }.items():
        done = subprocess.run([sys.executable, "-c", script.format(choice)], capture_output=True, text=True)
        assert done.stderr.strip().endswith(message)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    pieces=st.lists(
        st.one_of(st.binary(), st.text(max_size=30).map(str.encode), st.just(PROSE.encode()), st.just(b"\n"))
    ),
    ending=st.sampled_from([".txt", ".jsonl", ".txt.gz", ".txt.xz", ".txt.zst", ".parquet"]),
    policy=st.sampled_from(["replace", "skip", "fail"]),
    layout=st.sampled_from(["auto", "lines", "running"]),
)
def test_any_bytes_in_any_file_are_read_or_refused_in_one_line(
    pieces: list[bytes], ending: str, policy: Policy, layout: str, tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow")
    data = b"".join(pieces)
    name = written(tmp_path / f"a{ending}", gzip.compress(data) if ending.endswith("gz") else data)
    refused, found = "", list[Document]()
    try:
        found += Corpus([name], on_bad_line=policy, layout=layout, max_line_length=40).documents()  # type: ignore[arg-type]
    except TextError as error:
        refused = str(error)
    assert bool(refused) != bool(found)
    assert refused.startswith(name) or found
    assert "\n" not in refused
    for document in found:
        assert document.sentences
        for sentence in document.sentences:
            assert sentence.strip() == sentence != ""
            assert not set(sentence) & {"\0", "\n", "\ufeff"}
            sentence.encode()


MEASURE = """
import sys
from pathlib import Path
from bertsmith.data.corpus.corpus import Corpus
def peak():
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
before = peak()
sentences = sum(len(document.sentences) for document in Corpus(sys.argv[1:]).documents())
print(sentences, peak() - before)
"""


def measured(script: str, *arguments: str) -> list[float]:
    """The numbers that a fresh process prints, among them kilobytes of memory."""
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


@pytest.mark.exhaustive(suite=1)
@pytest.mark.slow
@pytest.mark.parametrize("laid", ["lines", "one document", "one line", "records", "blank lines"])
def test_memory_does_not_grow_with_the_file(laid: str, tmp_path: Path) -> None:
    unit = "".join(f"The quick brown fox number {number} jumps over the lazy dog.\n" for number in range(1_000))
    unit = {
        "lines": unit + "\n",
        "one document": unit,
        "one line": unit.replace("\n", " "),
        "records": json.dumps({"text": unit}) + "\n",
        "blank lines": "One.\n" + "\n" * 100_000,
    }[laid]
    figures = []
    for megabytes in (5, 15) if laid == "blank lines" else (20, 60):
        path = tmp_path / f"{megabytes}.{'jsonl' if laid == 'records' else 'txt'}.gz"
        with gzip.open(path, "wt", compresslevel=1) as stream:
            for _ in range(megabytes * 1_000_000 // len(unit)):
                stream.write(unit)
        figures.append(measured(MEASURE, str(path)))
    (few, small), (many, large) = figures
    assert many > 2.5 * few
    assert large < 60_000  # kilobytes
    assert large < small + 8_000
