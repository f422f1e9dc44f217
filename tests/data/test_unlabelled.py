"""What a taught model is asked about: every kind of file that it can be taught from, without its labels."""

import gzip
import io
import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from bertsmith.data.corpus import decompression
from bertsmith.data.labelled import reader as labelled
from bertsmith.data.labelled import unlabelled
from bertsmith.data.labelled.examples import Example, Kind, Question, Sentence
from bertsmith.data.labelled.inputs import TrainedOn, make_example
from bertsmith.data.labelled.unlabelled import LiteralText, examples, is_text
from bertsmith.errors import TextError

COLUMNS = "-DOCSTART- -X- O O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\nPeter NNP B-NP B-PER\n"


def asked(path: Path | str, kind: Kind, *texts: str, **more: Any) -> list[Any]:
    return list(examples([str(path)], TrainedOn(kind=kind, texts=texts, **more)))


def texts(path: Path | str, *learnt: str) -> list[tuple[str, ...]]:
    return [one.texts for one in asked(path, "classify", *learnt)]


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


ROWS = [("a good film", "pos"), ("a bad one, really", "neg"), ("so so", "pos"), ("no", "neg")]


def test_a_table_is_read_by_the_columns_of_the_training_data_whatever_their_names(tmp_path: Path) -> None:
    cells = [f'"{text}",{label},x y' for text, label in ROWS]
    path = written(tmp_path / "a.csv", "\n".join(["Verbatim,verdict,remark", *cells]) + "\n")
    expected = [(text,) for text, _ in ROWS]
    assert texts(path, "Verbatim") == texts(path, "verbatim") == expected
    rows = [{"Verbatim": text, "verdict": label, "remark": "x y"} for text, label in ROWS]
    lines = "\n".join(map(json.dumps, rows))
    written(tmp_path / "b.jsonl", lines)
    written(tmp_path / "c.json", json.dumps(rows))
    (tmp_path / "d.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (tmp_path / "e.csv.xz").write_bytes(lzma.compress(path.read_bytes()))
    for name in ("b.jsonl", "c.json", "d.jsonl.gz", "e.csv.xz"):
        assert texts(tmp_path / name, "Verbatim") == expected, name


def test_parquet_and_zstandard_are_read(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    held = arrow.table({"Verbatim": [text for text, _ in ROWS], "verdict": [label for _, label in ROWS]})
    pyarrow.parquet.write_table(held, tmp_path / "a.parquet")
    assert texts(tmp_path / "a.parquet", "Verbatim") == [(text,) for text, _ in ROWS]
    with arrow.OSFile(str(tmp_path / "b.txt.zst"), "wb") as raw, arrow.CompressedOutputStream(raw, "zstd") as stream:
        stream.write(b"one text\r\nand another\n")
    assert texts(tmp_path / "b.txt.zst") == [("one text",), ("and another",)]


def test_columns_with_other_names_are_guessed_and_reported(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "review,label\n" + "".join(f'"{text}",{label}\n' for text, label in ROWS))
    said: list[str] = []
    found = list(examples([str(path)], TrainedOn(kind="classify", texts=("Verbatim",)), said.append))
    assert [one.texts[0] for one in found if isinstance(one, Example)] == [text for text, _ in ROWS]
    assert said == [f"{path}: texts from 'review'; the model was trained on 'Verbatim'"]
    lost = written(tmp_path / "b.csv", "one,other,label\na b,c d,x\ne f,g h,y\n")
    with pytest.raises(TextError) as caught:
        texts(lost, "Verbatim")
    fact = "which columns hold the texts cannot be guessed from one, other, label"
    assert str(caught.value) == f"{lost}: {fact}. Name them 'Verbatim', as in training."


def test_blank_lines_are_counted_once_for_each_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "the cat\n\nthe dog\n\n\nthe river\n"
    path, one = written(tmp_path / "a.txt", text), written(tmp_path / "b.txt", "the cat\n\n")
    inputs = [str(path), "-", str(one)]
    expected = [f"{path}: 3 blank lines have no row", "standard input: 3 blank lines have no row"]
    expected.append(f"{one}: 1 blank line has no row")
    read: tuple[Any, ...] = (unlabelled.texts, lambda *given: examples(given[0], TrainedOn(kind="classify"), given[1]))
    for reading in read:
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        said: list[str] = []
        assert len(list(reading(inputs, said.append))) == 7
        assert said == expected


def test_a_table_without_labels_or_with_gaps_in_them_is_read_whole(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tsv", "sentence\tlabel\na b\t1\nc d\t\n\ne\t0\n")
    assert texts(path, "sentence") == [("a b",), ("c d",), ("e",)]
    assert texts(written(tmp_path / "b.csv", "comment\nhello there\nyou\n"), "text") == [("hello there",), ("you",)]


def test_pairs_are_read_as_pairs_and_a_text_with_a_tab_stays_one_for_single_texts(tmp_path: Path) -> None:
    path = written(tmp_path / "a.txt", "first\tsecond\n")
    assert texts(path, "premise", "hypothesis") == texts(path) == [("first", "second")]
    assert texts(path, "text") == [("first\tsecond",)]
    with pytest.raises(
        TextError, match=r"a\.txt:1: has one text, and the model was trained on pairs\. Separate the two"
    ):
        texts(written(tmp_path / "a.txt", "first\n"), "premise", "hypothesis")
    table = written(tmp_path / "b.csv", "hypothesis,premise,label\nx y,v w,0\n")
    assert texts(table, "premise", "hypothesis") == [("v w", "x y")]


def test_columns_of_words_are_sentences_and_not_lines(tmp_path: Path) -> None:
    tags = frozenset({"O", "B-ORG", "B-PER"})
    words = [("EU", "rejects"), ("Peter",)]
    for name in ("test.conll", "test.txt", "test"):
        path = written(tmp_path / name, COLUMNS)
        assert [one.words for one in asked(path, "tag", tags=tags)] == words, name
    (tmp_path / "test.txt.gz").write_bytes(gzip.compress(COLUMNS.encode()))
    assert [one.words for one in asked(tmp_path / "test.txt.gz", "tag", tags=tags)] == words
    tabs = written(tmp_path / "tabs.tsv", "EU\tB-ORG\nrejects\tO\n\nPeter\tB-PER\n")
    assert [one.words for one in asked(tabs, "tag", tags=tags)] == words
    alone = written(tmp_path / "alone.txt", "EU\nrejects\n\nPeter\n")  # a test set without tags
    assert [one.words for one in asked(alone, "tag", tags=tags)] == words
    second = written(tmp_path / "second.conll", "1\tEU\tO\n2\trejects\tO\n")
    assert [one.words for one in asked(second, "tag", "1", tags=tags)] == [("EU", "rejects")]
    with pytest.raises(
        TextError, match=r"second\.conll:1: has 3 columns, and the words are in column 7\. Mend the line"
    ):
        asked(second, "tag", "7", tags=tags)


@pytest.mark.parametrize("name", ["test.conllu", "test.txt"])
def test_the_words_of_conllu_are_its_forms_and_not_their_numbers(tmp_path: Path, name: str) -> None:
    rows = ["1-2 vámonos", "1 vamos", "2 nos", "", "1 10\u00a0000", "1.1 euros"]
    lines = ["\t".join([*row.split(" "), *"_" * 8]) if row else "" for row in rows]
    path = written(tmp_path / name, "\n".join(["# sent_id = 1", *lines]) + "\n")
    assert [one.words for one in asked(path, "tag")] == [("vamos", "nos"), ("10\u00a0000",)]


def test_sentences_for_a_tagger_may_be_lines_lists_or_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = written(tmp_path / "a.txt", "EU rejects it.\n\nPeter Blackburn\n")
    assert [one.words for one in asked(lines, "tag")] == [("EU", "rejects", "it", "."), ("Peter", "Blackburn")]
    lists = written(tmp_path / "a.jsonl", json.dumps({"tokens": ["EU", "it."], "ner_tags": [0, 1]}))
    assert asked(lists, "tag")[0].words == ("EU", "it.")
    monkeypatch.setattr("sys.stdin", io.StringIO(COLUMNS))
    assert [one.words for one in asked("-", "tag")] == [("EU", "rejects"), ("Peter",)]
    monkeypatch.setattr("sys.stdin", io.StringIO("EU rejects it\n"))
    assert [one.words for one in asked("-", "tag")] == [("EU", "rejects", "it")]


def test_questions_on_the_command_line_have_numbers_for_ids() -> None:
    given = [
        "who?\tthe cat",
        '{"question": "who?", "context": "the cat"}',
        '{"id": 7, "question": "", "context": "a b"}',
    ]
    found = list(examples([LiteralText(text) for text in given], TrainedOn(kind="answer")))
    assert [one.name for one in found if isinstance(one, Question)] == ["1", "2", "7"]


@pytest.mark.parametrize(
    ("kind", "column", "other"), [("classify", "text", "txt"), ("tag", "text", "txt"), ("answer", "question", "q")]
)
def test_a_record_without_its_column_names_the_columns_that_it_has(kind: Any, column: str, other: str) -> None:
    record = {other: "x", "context": "a passage"} if kind == "answer" else {other: "x y"}
    with pytest.raises(TextError) as caught:
        list(examples([LiteralText(json.dumps(record))], TrainedOn(kind=kind)))
    assert f"has no column '{column}', but " in str(caught.value)
    assert f"'{other}'" in str(caught.value)
    with pytest.raises(TextError, match="'text' is None"):
        make_example("text 1", {"text": None}, TrainedOn(kind="classify"), {})


def test_squad_is_read_with_and_without_answers(tmp_path: Path) -> None:
    asks = [{"id": "a1", "question": "who?", "answers": []}, {"id": "a2", "question": "where?"}]
    content = {"version": "2.0", "data": [{"title": "t", "paragraphs": [{"context": "Ann is here", "qas": asks}]}]}
    for indent in (None, 2):
        path = written(tmp_path / "dev.json", json.dumps(content, indent=indent))
        found = asked(path, "answer")
        assert [(one.name, one.question, one.context) for one in found] == [
            ("a1", "who?", "Ann is here"),
            ("a2", "where?", "Ann is here"),
        ]
    table = written(tmp_path / "a.csv", "question,context,answers\nwho?,Ann is here,Ann\n")
    (one,) = asked(table, "answer")
    assert isinstance(one, Question)
    assert (one.question, one.context) == ("who?", "Ann is here")
    with pytest.raises(TextError, match=r"a\.txt:1: has no passage to look in\. Write a question, a tab and a passage"):
        asked(written(tmp_path / "a.txt", "who?\n"), "answer")
    empty = written(tmp_path / "empty.json", json.dumps({"data": [{"paragraphs": []}]}))
    with pytest.raises(TextError, match="holds no question"):
        asked(empty, "answer")


def test_endings_may_be_columns_or_a_list(tmp_path: Path) -> None:
    expected = ("She opens the door", "and leaves", "and flies")
    swag = written(tmp_path / "a.csv", "sent1,sent2,ending0,ending1\nShe opens,the door,and leaves,and flies\n")
    names = ("sent1", "sent2", "ending0", "ending1")
    assert [one.texts for one in asked(swag, "choose")] == [expected]
    assert [one.texts for one in asked(swag, "choose", *names, context_columns=2)] == [expected]
    record = {"ctx": "She opens the door", "endings": ["and leaves", "and flies"], "label": 0}
    lists = written(tmp_path / "a.jsonl", json.dumps(record))
    assert [one.texts for one in asked(lists, "choose")] == [expected]
    letters = written(tmp_path / "b.csv", "question,A,B\nShe opens the door,and leaves,and flies\n")
    assert [one.texts for one in asked(letters, "choose")] == [expected]
    header = ",".join(["ctx", *(f"ending{number}" for number in (10, *range(10)))])
    many = written(tmp_path / "c.csv", f"{header}\nShe opens,{','.join(map(str, (10, *range(10))))}\n")
    assert [one.texts for one in asked(many, "choose")] == [("She opens", *map(str, range(11)))]
    with pytest.raises(TextError, match="has no endings"):
        asked(written(tmp_path / "b.jsonl", '{"text": "She"}'), "choose")


def test_a_file_for_another_task_is_told_in_one_line(tmp_path: Path) -> None:
    columns = written(tmp_path / "a.conll", COLUMNS)
    with pytest.raises(TextError) as caught:
        asked(columns, "classify")
    fact = "holds words with tags and the model was trained to classify texts"
    assert str(caught.value) == f"{columns}: {fact}. Give it another file."
    squad = written(tmp_path / "a.json", json.dumps({"data": [{"paragraphs": [{"context": "x", "qas": []}]}]}))
    with pytest.raises(
        TextError, match="holds questions about passages, as SQuAD does, and the model was trained to tag"
    ):
        asked(squad, "tag")


def test_a_text_may_be_given_instead_of_a_file_and_a_misspelt_file_is_still_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # whose files are the only ones that might be meant
    assert texts("A film to see twice.") == [("A film to see twice.",)]
    assert [one.texts for one in examples([LiteralText("great"), LiteralText("bad")], TrainedOn(kind="classify"))] == [
        ("great",),
        ("bad",),
    ]
    assert asked("EU rejects it", "tag")[0] == Sentence(location="'EU rejects it'", words=("EU", "rejects", "it"))
    written(tmp_path / "reviews.csv", "text\na b\n")
    with pytest.raises(TextError, match=r"revews\.csv: does not exist\. Did you mean 'reviews\.csv'\?$"):
        unlabelled.check_files([str(tmp_path / "revews.csv")])
    with pytest.raises(TextError, match=r"^great: does not exist\. A text goes after --text\.$"):
        unlabelled.check_files(["great"])
    assert not is_text("my revews.csv")
    assert not is_text("my revews.csv.gz")
    assert is_text("a " * 5_000)
    there = written(tmp_path / "a file", "x")
    assert not is_text(str(there))


def test_half_a_character_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "a.txt", '{"text": "a \\ud800"}\n')
    with pytest.raises(TextError, match=r"a\.txt:1: holds half a character"):
        texts(path)


def test_every_training_file_can_be_read_as_unlabelled_input(tmp_path: Path) -> None:
    """The same file is read for both, by the columns that were taken."""
    files = {
        "a.csv": "id,Frage,Urteil\n" + "".join(f"{n},wie geht es {n},{n % 2}\n" for n in range(8)),
        "b.tsv": "".join(f"x{n}\t{n % 2}\tthe sentence {n}\n" for n in range(8)),  # without a header
        "c.csv": "premise,hypothesis,label\n" + "".join(f"a {n},b {n},{n % 2}\n" for n in range(8)),
    }
    for name, text in files.items():
        path = written(tmp_path / name, text)
        named = labelled.Columns(texts=("Frage",), label="Urteil") if name == "a.csv" else labelled.GUESSED_COLUMNS
        learnt = labelled.read(path, "classify", named)
        found = asked(path, "classify", *learnt.texts)
        assert [one.texts for one in found] == [one.texts for one in learnt.examples], name  # type: ignore[union-attr]


@pytest.mark.parametrize("line", [b"a" * 64, b"a fine day\n"])
def test_a_packed_file_that_unpacks_to_far_more_than_text_does_is_refused_by_every_reader(
    line: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line without an end, and very many short ones."""
    monkeypatch.setattr(decompression, "MAX_DECOMPRESSED_BYTES", 1 << 16)
    monkeypatch.setattr(decompression, "READ_BYTES", 1 << 14)
    path, size, given = tmp_path / "bomb.txt.xz", 1 << 22, list[object]()
    path.write_bytes(lzma.compress(line * (size // len(line)), preset=0))
    readers = {
        "predict": lambda: given.extend(examples([str(path)], TrainedOn(kind="classify"))),
        "embed": lambda: given.extend(unlabelled.texts([str(path)])),
        "score": lambda: given.extend(unlabelled.every_line(str(path))),
        "before all work": lambda: unlabelled.check_files([str(path)]),
    }
    for reader in readers.values():
        given.clear()
        with pytest.raises(TextError, match=r"bomb\.txt\.xz: unpacks to more than 100 times its size\."):
            reader()
        assert len(given) * len(line) < 1 << 18
