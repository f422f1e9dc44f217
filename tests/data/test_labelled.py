"""Labelled examples are read from files of any format; every guess is reported, every bad row counted."""

import csv
import hashlib
import io
import json
import lzma
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.data.labelled.bad_rows import Policy
from bertsmith.data.labelled.columns import Columns
from bertsmith.data.labelled.examples import Kind
from bertsmith.data.labelled.reader import LabelledData, read
from bertsmith.errors import BertsmithError, RecipeError, TextError


def of(path: Path, data: Any, kind: Kind, policy: Policy = "skip", **columns: Any) -> LabelledData:
    """What is read of a file with this text, these bytes, or these records."""
    if isinstance(data, list):
        data = "\n".join(map(json.dumps, data))
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return read(path, kind, Columns(**columns), policy)


def pairs(labelled: LabelledData) -> list[tuple[Any, Any]]:
    return [(example.texts, example.label) for example in labelled.examples]


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("sentence,label", "texts from 'sentence', label from 'label'"),
        ("id,Text,Category", "texts from 'Text', label from 'Category'"),
        ("premise,hypothesis,gold_label", "texts from 'premise' and 'hypothesis', label from 'gold_label'"),
        ("question,passage,answer", "texts from 'question' and 'passage', label from 'answer'"),
        ("idx,question1,question2,is_duplicate", "texts from 'question1' and 'question2', label from 'is_duplicate'"),
        ("text,odd", "texts from 'text', label from 'odd'"),
    ],
)
def test_columns_are_guessed_from_their_names_and_reported(tmp_path: Path, header: str, found: str) -> None:
    width = header.count(",") + 1
    rows = "\n".join(",".join([f"a word {row}"] * (width - 1) + ["xy"[row % 2]]) for row in range(4))
    labelled = of(tmp_path / "a.csv", f"{header}\n{rows}\n", "classify")
    assert labelled.description == found
    assert [example.label for example in labelled.examples] == ["x", "y", "x", "y"]


def test_columns_without_names_are_guessed_from_their_values(tmp_path: Path) -> None:
    data = "a film\tgood\nb film\tgood\nc film\tbad\nd film\tbad\n"
    labelled = of(tmp_path / "a.tsv", data, "classify")
    assert labelled.description == "texts from '0', label from '1' (there is no header)"
    assert pairs(labelled)[0] == (("a film",), "good")
    labelled = of(tmp_path / "a.tsv", "a b\tc d\t3.5\ne f\tg h\t2\ni j\tk l\tnan\n", "number")
    assert pairs(labelled) == [(("a b", "c d"), 3.5), (("e f", "g h"), 2.0)]
    assert labelled.dropped == {"rows without a label": 1}


def test_a_delimiter_that_the_ending_does_not_say_is_reported(tmp_path: Path) -> None:
    found = of(tmp_path / "a.csv", "text;label\na, b;x\nc, d;y\n", "classify")
    assert found.description == "texts from 'text', label from 'label' (cells separated by ';')"
    found = of(tmp_path / "a.csv", "a film, so\tgood\nb film, so\tgood\nc film, so\tbad\nd film, so\tbad\n", "classify")
    assert found.description == "texts from '0', label from '1' (there is no header, cells separated by tabs)"
    rows = "\n".join(f"a b{row}|c d{row}|e f{row}" for row in range(9))
    with pytest.raises(
        TextError, match=r"cannot be guessed from 0, 1, 2 \(there is no header, cells separated by '\|'\)"
    ):
        of(tmp_path / "a.csv", rows, "classify")


def test_numbers_of_classes_are_the_same_with_and_without_a_zero(tmp_path: Path) -> None:
    """As pandas writes a column of whole numbers without gaps, and with one."""
    found = of(tmp_path / "a.csv", "text,label\na b,1\nc d,1.0\ne f,-2.0\ng h,\ni j,2.5\n", "classify")
    assert [example.label for example in found.examples] == ["1", "1", "-2", "2.5"]
    found = of(tmp_path / "a.csv", "text,label\na b,1.0\nc d,beta\n", "classify")
    assert [example.label for example in found.examples] == ["1.0", "beta"]  # versions are names
    rows = "text,choice0,choice1,label\n" + "a b,c,d,1.0\ne f,g,h,2.0\n"
    assert [example.label for example in of(tmp_path / "a.csv", rows, "choose").examples] == ["0", "1"]


def test_columns_with_odd_names_are_guessed_from_their_values(tmp_path: Path) -> None:
    rows = [f"{number},ein Satz mit der Zahl {number},{('sehr gut', 'schlecht')[number % 2]}" for number in range(20)]
    found = of(tmp_path / "odd.csv", "\n".join(["Nr.,Kommentar,Urteil", *rows]), "classify")
    assert found.description == "texts from 'Kommentar', label from 'Urteil'"
    assert pairs(found)[1] == (("ein Satz mit der Zahl 1",), "schlecht")
    named = of(tmp_path / "odd.csv", (tmp_path / "odd.csv").read_bytes(), "number", label="Nr.")
    assert named.description == "texts from 'Kommentar', label from 'Nr.'"  # and not the verdict as a second text
    rows = [f"{number},ein Satz mit der Zahl {number},{number * number / 7:.2f}" for number in range(20)]
    found = of(tmp_path / "prices.csv", "\n".join(["Nr.,Kommentar,Preis", *rows]), "number")
    assert found.description == "texts from 'Kommentar', label from 'Preis'"  # and not the number of the row


@pytest.mark.parametrize(
    ("name", "kind"), [("a.csv", "classify"), ("a.tsv", "classify"), ("a.jsonl", "classify"), ("a.conll", "tag")]
)
def test_a_file_that_is_not_utf8_is_read_and_said_so(name: str, kind: Kind, tmp_path: Path) -> None:
    texts = [f"schöne Straße {number}" for number in range(10)]
    match Path(name).suffix:
        case ".conll":
            data = "\n\n".join(text.replace(" ", " B-X\n") + " O" for text in texts)
        case ".jsonl":
            records = [{"text": text, "label": number % 2} for number, text in enumerate(texts)]
            data = "\n".join(json.dumps(record, ensure_ascii=False) for record in records)
        case ending:
            mark = "," if ending == ".csv" else "\t"
            data = f"text{mark}label\n" + "\n".join(f"{text}{mark}{at % 2}" for at, text in enumerate(texts))
    found = of(tmp_path / name, data.encode("latin-1"), kind)
    assert found.description.endswith("; read as cp1252, not UTF-8")
    assert len(found.examples) == 10
    assert "Straße" in str(found.examples[0])


def test_one_letter_that_most_rows_have_shows_another_encoding(tmp_path: Path) -> None:
    """Else all rows were bad, and a header over none of them is no header."""
    rows = [
        f"Das Gerät {number} ist {('gut', 'schlecht')[number % 2]};{('ja', 'nein')[number % 2]}" for number in range(12)
    ]
    found = of(tmp_path / "a.csv", "\n".join(["Stimme;Urteil", *rows]).encode("latin-1"), "classify")
    assert (
        found.description
        == "texts from 'Stimme', label from 'Urteil' (cells separated by ';'); read as cp1252, not UTF-8"
    )
    assert len(found.examples) == 12
    assert "Gerät" in str(found.examples[0])


@pytest.mark.parametrize("text", ["ein Text", "schöne Straße"])
def test_a_header_with_one_letter_that_is_not_utf8_is_decoded_and_its_rows_are(text: str, tmp_path: Path) -> None:
    rows = "\n".join(f"{text} {number};{('gut', 'schlecht')[number % 2]}" for number in range(12))
    found = of(tmp_path / "a.csv", "Erzählung;Urteil\n".encode("latin-1") + rows.encode(), "classify")
    columns = "texts from 'Erzählung', label from 'Urteil' (cells separated by ';')"
    assert found.description == f"{columns}; read as cp1252, not UTF-8"
    assert len(found.examples) == 12
    assert text in str(found.examples[0])


def test_a_file_of_bytes_without_sense_is_to_be_saved_as_utf8(tmp_path: Path) -> None:
    with pytest.raises(TextError, match=r"3 rows with bad bytes. Save the file as UTF-8.$"):
        of(tmp_path / "a.csv", b"text,label\n" + b"b\xffd,x\n" * 3, "classify")


def test_named_columns_are_taken(tmp_path: Path) -> None:
    data = "one,two,text,label\na,b,c,d\n"
    labelled = of(tmp_path / "a.csv", data, "classify", texts=("two", "one"), label="text")
    assert (pairs(labelled), labelled.description) == (
        [(("b", "a"), "c")],
        "texts from 'two' and 'one', label from 'text'",
    )
    assert pairs(of(tmp_path / "a.tsv", "0\tx\ty\n", "classify", texts=("2",), label="1")) == [(("y",), "x")]
    data = "a b\tpositive\nc d\tx\ne f\tx\ng h\ty\n"  # the first row names nothing
    assert len(of(tmp_path / "a.tsv", data, "classify", label="1").examples) == 4


def test_a_named_column_that_is_missing_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(TextError, match=r"a\.csv: has no column 'txt'\. Did you mean 'text'\?$"):
        of(tmp_path / "a.csv", "text,label\na,b\n", "classify", texts=("txt",))
    with pytest.raises(TextError, match=r"a\.csv: has no column 'klass'\. Known: label, text\.$"):
        of(tmp_path / "a.csv", "text,label\na,b\n", "classify", label="klass")


@pytest.mark.parametrize(
    ("kind", "data", "what"),
    [
        ("classify", "foo,bar,baz\n1,2,3\n4,5,6\n", "the texts and the label cannot be guessed from foo, bar, baz"),
        ("classify", "text,foo,bar\na,b,c\n", "the label cannot be guessed from text, foo, bar"),
        ("choose", "text,label\na,b\n", "a context and its endings cannot be guessed from text, label"),
        ("choose", "text,ending0,ending1\na,b,c\n", "the label cannot be guessed from text, ending0, ending1"),
        ("number", "some words,x\n", r"the texts and the label cannot be guessed from 0, 1 \(there is no header\)"),
    ],
)
def test_columns_that_cannot_be_guessed_are_listed_with_the_remedy(
    tmp_path: Path, kind: Kind, data: str, what: str
) -> None:
    what = what.replace("the texts and the label cannot", "the (texts and the )?label cannot")
    with pytest.raises(TextError, match=rf"a\.csv: which columns hold {what}\. Name them with data\.texts="):
        of(tmp_path / "a.csv", data, kind)


def test_classes_are_names_whatever_they_are_written_as(tmp_path: Path) -> None:
    labels = ["a", 1, True, 2.0, 2.5, " b ", None, "", float("nan"), "NaN", "nan", " null", "<NA>", ["a"], {"a": 1}]
    labelled = of(tmp_path / "a.jsonl", [{"text": "x", "label": label} for label in labels], "classify")
    assert [example.label for example in labelled.examples] == ["a", "1", "True", "2", "2.5", "b"]
    assert labelled.dropped == {"rows without a label": 7, "rows with a wrong label": 2}


def test_numbers_are_finite(tmp_path: Path) -> None:
    labels = [1, 2.5, "3", "-1e3", None, "", "x", True, float("nan"), float("inf"), "nan", "-Infinity", [1], 10**400]
    labelled = of(tmp_path / "a.jsonl", [{"text": "x", "score": label} for label in labels], "number")
    assert [example.label for example in labelled.examples] == [1.0, 2.5, 3.0, -1000.0]
    assert labelled.dropped == {"rows without a label": 4, "rows with a wrong label": 6}
    with pytest.raises(TextError, match=r"a\.jsonl:1: has the label 'x', which is no number\. Mend the file"):
        of(tmp_path / "a.jsonl", [{"text": "x", "score": "x"}], "number", "fail")


def test_several_labels_are_listed_or_separated(tmp_path: Path) -> None:
    rows = [{"text": "x", "labels": labels} for labels in (["a", "b", "a"], [], None, [1], [["a"]], "c")]
    labelled = of(tmp_path / "a.jsonl", rows, "labels")
    assert [example.label for example in labelled.examples] == [("a", "b"), (), ("1",), ("c",)]
    assert labelled.dropped == {"rows without a label": 1, "rows with a wrong label": 1}
    labelled = of(tmp_path / "a.csv", "text,labels\nx,a | b\ny,\nz,c\n", "labels")
    assert [example.label for example in labelled.examples] == [("a", "b"), (), ("c",)]
    assert labelled.description == "texts from 'text', label from 'labels' separated by '|'"
    labelled = of(tmp_path / "a.csv", "text,labels\nx,a|b+c\n", "labels", separator="+")
    assert [example.label for example in labelled.examples] == [("a|b", "c")]


def test_swag_is_a_beginning_and_its_endings(tmp_path: Path) -> None:
    header = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label"
    data = f"{header}\n0,v,1,A man sits. He,A man sits.,He,gold,runs.,eats.,sings.,falls.,2\n"
    labelled = of(tmp_path / "a.csv", data, "choose")
    assert pairs(labelled) == [(("A man sits. He", "runs.", "eats.", "sings.", "falls."), "2")]


def test_endings_may_be_a_list_and_the_right_one_a_letter(tmp_path: Path) -> None:
    rows = [
        {"ctx": "A man", "endings": ["runs", "eats"], "label": label} for label in (1, "0", "B", "c", 2, -1, "x", [])
    ]
    labelled = of(tmp_path / "a.jsonl", [*rows, {"ctx": "A", "endings": ["b"], "label": 0}], "choose")
    assert pairs(labelled) == [(("A man", "runs", "eats"), number) for number in "101"]
    assert labelled.dropped == {"rows with a wrong label": 5, "rows without text": 1}
    row = {"question": "Why?", "choices": {"label": ["A", "B"], "text": ["so", "no"]}, "answerKey": "B"}
    assert pairs(of(tmp_path / "a.jsonl", [row], "choose")) == [(("Why?", "so", "no"), "1")]


def test_endings_beyond_ten_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    names = [f"ending{number}" for number in range(12)]
    data = ",".join(["ctx", *names[::-1], "label"]) + "\n" + ",".join(["A man", *map(str, range(11, -1, -1)), "11"])
    assert pairs(of(tmp_path / "a.csv", data, "choose")) == [(("A man", *map(str, range(12))), "11")]


def test_endings_may_be_columns_of_letters_as_in_mmlu(tmp_path: Path) -> None:
    data = "question,A,B,C,D,answer\n" + "\n".join(f"What is {row}?,w,x,y,z,{'ABCD'[row % 4]}" for row in range(8))
    found = of(tmp_path / "a.csv", data, "choose")
    assert pairs(found)[1] == (("What is 1?", "w", "x", "y", "z"), "1")
    assert found.description == "texts from 'question', 'A', 'B', 'C' and 'D', label from 'answer'"


def test_endings_may_be_numbered_from_one_as_in_winogrande(tmp_path: Path) -> None:
    rows = [{"sentence": "A _ runs.", "option1": "man", "option2": "cup", "answer": answer} for answer in "1221"]
    texts = ("A _ runs.", "man", "cup")
    found = of(tmp_path / "a.jsonl", rows, "choose")
    assert pairs(found) == [(texts, number) for number in "0110"]
    assert found.dropped == {}
    assert found.description.endswith("label from 'answer' numbered from 1")
    found = of(tmp_path / "a.jsonl", [*rows, rows[0] | {"answer": "9"}], "choose")
    assert found.dropped == {"rows with a wrong label": 1}
    found = of(tmp_path / "a.jsonl", [rows[0] | {"answer": letter} for letter in ("A", "b", "ab")], "choose")
    assert [example.label for example in found.examples] == ["0", "1"]


@pytest.mark.parametrize(("first", "later", "start"), [("1", "2", 0), ("2", "0", 1)])
def test_a_file_that_changes_the_numbers_of_its_endings_is_refused(
    first: str, later: str, start: int, tmp_path: Path
) -> None:
    rows = [f"A _ runs.,man,cup,{first}"] * 200 + [f"A _ runs.,man,cup,{later}"]
    remedy = "Number the endings of all rows from 0, or all from 1."
    fact = f":202: has the label '{later}', and the first rows number their endings from {start}. {remedy}"
    with pytest.raises(TextError, match=re.escape(fact)):
        of(tmp_path / "a.csv", "\n".join(["sentence,option1,option2,answer", *rows]), "choose")


@pytest.mark.parametrize("kind", ["classify", "number", "labels"])
def test_a_third_column_of_text_is_refused(kind: Kind, tmp_path: Path) -> None:
    data = "title,body,note,label\na b,c d,e f,1\ng h,i j,k l,2\n"
    assert len(of(tmp_path / "a.csv", data, kind, texts=("title", "body"), label="label").examples) == 2
    with pytest.raises(TextError, match=r"a\.csv: 3 columns of text\. Name one, or two for pairs\.$"):
        of(tmp_path / "a.csv", data, kind, texts=("title", "body", "note"), label="label")


def test_texts_to_be_drawn_together_are_one_two_or_three_with_a_score_or_without(tmp_path: Path) -> None:
    row = {"anchor": "a", "positive": "b", "negative": "c"}
    assert pairs(of(tmp_path / "a.jsonl", [row], "pairs")) == [(("a", "b", "c"), None)]
    labelled = of(tmp_path / "a.tsv", "sentence1\tsentence2\tscore\na\tb\t0.5\nc\td\t\ne\t \t1\n", "pairs")
    assert pairs(labelled) == [(("a", "b"), 0.5)]
    assert labelled.dropped == {"rows without a label": 1, "rows without text": 1}
    labelled = of(tmp_path / "a.jsonl", [{"premise": "a", "hypothesis": "b", "label": 0}], "pairs")
    assert (pairs(labelled), labelled.description) == (
        [(("a", "b"), None)],
        "texts from 'premise' and 'hypothesis', no label",
    )
    assert pairs(of(tmp_path / "a.txt", "one text\n\nlabel\n", "pairs")) == [(("one text",), None), (("label",), None)]
    with pytest.raises(TextError, match=r"a\.csv: 4 columns of text\. Contrastive learning takes one, two or three\.$"):
        of(tmp_path / "a.csv", "a,b,c,d\n1,2,3,4\n", "pairs", texts=("0", "1", "2", "3"))


def test_words_and_tags_come_from_columns_or_lists(tmp_path: Path) -> None:
    for name, data in (
        ("a.conll", "EU I-ORG\nsays O\n"),
        ("a.jsonl", [{"tokens": ["EU", "says"], "ner_tags": ["I-ORG", "O"]}]),
    ):
        (one,) = of(tmp_path / name, data, "tag").examples
        assert (one.words, one.tags, one.location) == (("EU", "says"), ("B-ORG", "O"), f"{tmp_path / name}:1")
    rows = [
        {"words": words, "pos": tags} for words, tags in ((["a"], ["X"]), (["a"], []), ([], []), (["a"], None), (7, 7))
    ]
    rows += [{"words": ["a", 7], "pos": ["X", "X"]}, {"words": ["a"], "pos": "X"}, {"words": ["b"], "pos": [3]}]
    labelled = of(tmp_path / "a.jsonl", rows, "tag", label="pos")
    assert [(one.words, one.tags) for one in labelled.examples] == [(("a",), ("X",)), (("b",), ("3",))]
    unequal = "sentences with more words than tags, or fewer"
    assert labelled.dropped == {unequal: 1, "rows without text": 3, "rows without a label": 2}
    with pytest.raises(
        TextError, match=r"which column holds the tags cannot be guessed from words, pos\. Name it with"
    ):
        of(tmp_path / "a.jsonl", rows, "tag")
    with pytest.raises(RecipeError, match=r"^data\.texts: names 2 columns\. The words stand in one\.$"):
        of(tmp_path / "a.conll", "a O\n", "tag", texts=("0", "1"))


def test_tags_that_are_numbers_are_said_to_show_no_entities_unless_the_file_names_them(tmp_path: Path) -> None:
    rows = [{"tokens": ["EU", "says"], "ner_tags": [3, 0]}]
    said = "numbers without names, in which no entities can be seen: scored by accuracy"
    assert said in of(tmp_path / "a.jsonl", rows, "tag").description
    assert said in of(tmp_path / "a.conll", "EU 3\nsays 0\n", "tag").description
    rows[0]["ner_tags"] = ["B-3", "O"]
    assert said not in of(tmp_path / "a.jsonl", rows, "tag").description
    arrow, store = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    feature = {"feature": {"names": ["O", "B-ORG"], "_type": "ClassLabel"}, "_type": "List"}
    table = arrow.table({"tokens": [["EU", "says"]], "ner_tags": [[1, 0]]})
    kept = json.dumps({"info": {"features": {"ner_tags": feature}}})
    store.write_table(table.replace_schema_metadata({"huggingface": kept}), tmp_path / "a.parquet")
    named = of(tmp_path / "a.parquet", (tmp_path / "a.parquet").read_bytes(), "tag")
    assert said not in named.description
    assert named.examples[0].tags == ("B-ORG", "O")


def test_questions_are_read_too(tmp_path: Path) -> None:
    row = {"question": "Who?", "context": "me", "answers": {"text": ["me"], "answer_start": [0]}}
    (one,) = of(tmp_path / "a.jsonl", [row], "answer").examples
    assert (one.question, one.context, one.answers[0].start) == ("Who?", "me", 0)


def test_a_row_without_text_is_dropped_but_half_a_pair_is_kept(tmp_path: Path) -> None:
    rows = [{"sentence1": a, "sentence2": b, "label": "x"} for a, b in (("a", ""), ("", " "), (None, "b"), (7, "b"))]
    labelled = of(tmp_path / "a.jsonl", rows, "classify")
    assert (pairs(labelled), labelled.dropped) == ([(("a", ""), "x")], {"rows without text": 3})
    with pytest.raises(TextError, match=r"a\.jsonl:2: has no text in 'sentence1' and 'sentence2'\. Mend the file"):
        of(tmp_path / "a.jsonl", rows, "classify", "fail")


def test_a_file_without_a_single_example_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        TextError, match=r"a\.csv: holds no example: texts from 'text', .*; 2 rows without a label\. Mend"
    ):
        of(tmp_path / "a.csv", "text,label\na,\nb,\n", "classify")
    with pytest.raises(TextError, match=r"a\.csv:2: has no label in 'label'\."):
        of(tmp_path / "a.csv", "text,label\na,\nb,\n", "classify", "fail")


def test_the_fingerprint_is_the_hash_of_the_file(tmp_path: Path) -> None:
    data = lzma.compress(b"text\tlabel\na\tb\n")
    assert of(tmp_path / "a.tsv.xz", data, "classify").fingerprint == hashlib.sha256(data).hexdigest()


def test_a_pattern_reads_all_that_it_matches(tmp_path: Path) -> None:
    for number in (2, 1):
        (tmp_path / f"part-{number}.tsv").write_text(f"text\tlabel\ntext {number}\tx\nbroken\n")
    labelled = read(str(tmp_path / "part-*.tsv"), "classify")
    assert [example.texts for example in labelled.examples] == [("text 1",), ("text 2",)]
    assert labelled.dropped == {"rows with too few cells": 2}
    with pytest.raises(TextError, match=r"none-\*\.tsv: matches no file\.$"):
        read(str(tmp_path / "none-*.tsv"), "classify")
    with pytest.raises(TextError, match=r": is a folder\. Name a file in it: part-1\.tsv, part-2\.tsv\.$"):
        read(tmp_path, "classify")


LINE = st.characters(blacklist_categories=["Cs"], blacklist_characters="\0\r\n\t\ufeff")
TEXT = st.text(LINE, min_size=1, max_size=12).filter(
    lambda text: text.strip() and text.strip() not in ("text", "score")
)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
ROWS = st.lists(st.tuples(TEXT, NUMBER), min_size=1, max_size=6)
SPOILT = st.sampled_from(["nan", "inf", "-Infinity", "x", "", "1,5", "None", "1e999"])


@settings(max_examples=40, deadline=None)
@given(rows=ROWS, spoilt=st.lists(SPOILT, max_size=4), nothing=st.booleans())
def test_good_rows_come_back_equal_and_bad_ones_are_counted(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, float]], spoilt: list[str], nothing: bool
) -> None:
    folder = tmp_path_factory.getbasetemp()
    written = [*((text, repr(number)) for text, number in rows), *(("bad", label) for label in spoilt)]
    stream = io.StringIO()
    csv.writer(stream).writerows([("text", "score"), *written])
    records: list[Any] = [{"text": text, "score": number} for text, number in rows]
    broken: list[Any] = [{"text": "bad", "score": label} for label in spoilt]
    broken += [{"score": 1.0}, {"text": None, "score": 1.0}, {"text": ["a"], "score": 1.0}, 7] if nothing else []
    files = {
        "rows.tsv": (["\n".join(map("\t".join, [("text", "score"), *written]))], len(spoilt)),
        "rows.csv": ([stream.getvalue()], len(spoilt)),
        "rows.jsonl": ([*records, *broken], len(broken)),
    }
    for name, (data, bad) in files.items():
        labelled = of(folder / name, data if name == "rows.jsonl" else data[0], "number")
        assert pairs(labelled) == [((text,), number) for text, number in rows]
        assert sum(labelled.dropped.values()) == bad


@settings(max_examples=30, deadline=None)
@given(rows=st.lists(st.tuples(TEXT, st.sampled_from(["x", "y", None])), min_size=1, max_size=6))
def test_rows_of_parquet_come_back_equal(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str | None]]
) -> None:
    arrow = pytest.importorskip("pyarrow")
    store = pytest.importorskip("pyarrow.parquet")
    path = tmp_path_factory.getbasetemp() / "rows.parquet"
    rows = [*rows, ("last", "x")]
    table = arrow.table({"text": [text for text, _ in rows], "label": arrow.array([label for _, label in rows])})
    store.write_table(table, path)
    labelled = read(path, "classify")
    assert pairs(labelled) == [((text,), label) for text, label in rows if label]
    assert labelled.dropped.get("rows without a label", 0) == sum(label is None for _, label in rows)


KINDS = st.sampled_from(["classify", "number", "labels", "tag", "answer", "choose", "pairs"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=3), inside, max_size=3),
    max_leaves=4,
)
FIELDS = ["text", "label", "labels", "tokens", "tags", "question", "context", "answers", "ctx", "endings", "score"]


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(rows=st.lists(st.dictionaries(st.sampled_from(FIELDS), JSON), max_size=4), kind=KINDS)
def test_any_records_are_examples_or_one_clear_line(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], kind: Kind
) -> None:
    said = ""
    try:
        labelled = of(tmp_path_factory.getbasetemp() / "any.jsonl", rows, kind)
    except BertsmithError as error:
        said = str(error)
    else:
        lost = sum(count for reason, count in labelled.dropped.items() if not reason.startswith("answers"))
        assert len(labelled.examples) + lost == len(rows)
    assert "\n" not in said


@settings(max_examples=150, deadline=None)
@given(
    data=st.binary(max_size=60) | st.text('ab,"\t\n|;15 ', max_size=60).map(str.encode),
    name=st.sampled_from(["any.tsv", "any.csv", "any.jsonl", "any.json", "any.txt", "any.conll", "any.parquet"]),
    kind=KINDS,
    policy=st.sampled_from(["skip", "fail"]),
)
def test_any_bytes_are_examples_or_one_clear_line(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, name: str, kind: Kind, policy: Policy
) -> None:
    said = ""
    try:
        of(tmp_path_factory.getbasetemp() / name, data, kind, policy)
    except BertsmithError as error:
        said = str(error)
    assert "\n" not in said
