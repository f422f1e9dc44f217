"""Rows come back as they were written; bad ones are counted, or refused with file and line."""

import csv
import gzip
import io
import json
import lzma
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bertsmith.data.labelled import bad_rows, lines
from bertsmith.data.labelled.bad_rows import BadRows, Policy
from bertsmith.data.labelled.delimited import has_header
from bertsmith.data.labelled.lines import read_text
from bertsmith.data.labelled.sources import find_source
from bertsmith.data.labelled.tables import open_table
from bertsmith.errors import TextError

CHARACTERS = st.characters(blacklist_categories=["Cs"], blacklist_characters="\0\r\ufeff")
TEXTS = st.text(CHARACTERS, max_size=20)
PLAIN = st.text(CHARACTERS.filter(lambda letter: letter not in "\t\n"), max_size=20)


def read(
    path: Path, data: str | bytes, policy: Policy = "skip", known: tuple[str, ...] = ("text", "label")
) -> tuple[list[tuple[Any, ...]], dict[str, int]]:
    """The rows of a file with this content, as tuples, and what was dropped."""
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    dropped = BadRows(policy)
    table = open_table(find_source(path), known)
    rows = [tuple(row.values()) for _, row in table.rows(table.columns, dropped)]
    return rows, dict(dropped.counts)


def written(rows: list[tuple[str, ...]]) -> str:
    stream = io.StringIO()
    csv.writer(stream).writerows(rows)
    return stream.getvalue()


def test_quotes_are_characters_in_tsv(tmp_path: Path) -> None:
    data = 'text\tlabel\n" he said\t1\nshe "said"\t0\n'
    assert read(tmp_path / "a.tsv", data) == ([('" he said', "1"), ('she "said"', "0")], {})


def test_quotes_quote_in_csv_over_commas_and_lines(tmp_path: Path) -> None:
    data = 'text,label\n"a, ""b""\nc",1\n5" disk,0\n'
    assert read(tmp_path / "a.csv", data) == ([('a, "b"\nc', "1"), ('5" disk', "0")], {})


@pytest.mark.parametrize("stray", ['"opened,1', 'x,"opened', '"shut" badly,1'])
def test_a_stray_quote_costs_its_own_line_and_no_other(tmp_path: Path, stray: str) -> None:
    data = f'text,label\none,1\n{stray}\ntwo,2\n"three, or\nso",3\nfour,4\n'
    rows = [("one", "1"), ("two", "2"), ("three, or\nso", "3"), ("four", "4")]
    assert read(tmp_path / "a.csv", data) == (rows, {"rows with broken quotes": 1})
    with pytest.raises(TextError, match=r"a\.csv:3: has a quote that is neither doubled nor closed\. Mend the file"):
        read(tmp_path / "a.csv", data, "fail")


def test_a_table_may_be_separated_by_semicolons(tmp_path: Path) -> None:
    assert read(tmp_path / "a.csv", 'text;label\n"a, b";1\n') == ([("a, b", "1")], {})


@pytest.mark.parametrize(
    ("lines", "delimiter"),
    [
        (["text\tlabel", *(f"so, {n}\t{n}" for n in range(9))], "\t"),
        ([f"so, {n}\t{n}" for n in range(9)], "\t"),
        (["text;label;note, more", *(f"so, {n};{n};x" for n in range(9))], ";"),
        ([f"so, {n};{n}" for n in range(9)], ";"),
        (["text|label", *(f"so {n}|{n}" for n in range(9))], "|"),
        (['"text";"label"', *(f'"so; {n}, {n}";{n}' for n in range(9))], ";"),
        (["text,label", *(f'"so; {n}; {n}",{n}' for n in range(9))], ","),
        (["text,labels", *(f"so {n},{'x|y' if n % 3 else 'x'}" for n in range(9))], ","),
        ([f"so {n},x|y" for n in range(9)], ","),
        (["text, label", *(f"so {n}, {n}" for n in range(9))], ","),
        (["text,label", *(f"so, {n}, too,{n}" if n % 2 else f"so {n},{n}" for n in range(9))], ","),
        (["text", *(f"so{', so' * (n % 3)}; {n}" for n in range(9))], ";"),
        (["text", *("so" + ", so" * (n % 2 * n) for n in range(9))], ","),
        (["text,label", '"first', "second", *("third; fourth" for _ in range(50)), 'last",1', "so,2"], ","),
    ],
)
def test_the_delimiter_of_csv_is_the_one_that_makes_equal_rows(
    tmp_path: Path, lines: list[str], delimiter: str
) -> None:
    (tmp_path / "a.csv").write_text("\n".join(lines))
    table = open_table(find_source(tmp_path / "a.csv"), ("text", "label"))
    assert table.delimiter == delimiter
    assert ("cells separated by" in table.describe()) == (delimiter != ",")


@pytest.mark.parametrize(("line", "mark"), [("sep=;", ";"), ("SEP=^", "^"), ('"sep=|"', "|"), ("sep=\t", "\t")])
def test_the_first_line_of_excel_names_the_delimiter_and_is_no_row(tmp_path: Path, line: str, mark: str) -> None:
    data = f"{line}\ntext{mark}label\nso, so{mark}1\nbroken\n"
    assert read(tmp_path / "a.csv", data) == ([("so, so", "1")], {"rows with too few cells": 1})
    with pytest.raises(TextError, match=r"a\.csv:4: has 1 cells and not 2"):  # lines are those of the file
        read(tmp_path / "a.csv", data, "fail")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_and_byte_order_marks_do_not_matter(tmp_path: Path, end: str, mark: str) -> None:
    for name, between in (("a.tsv", "\t"), ("a.csv", ",")):
        data = mark + end.join([f"text{between}label", f"one{between}1", "", f"two{between}2"])
        assert read(tmp_path / name, data) == ([("one", "1"), ("two", "2")], {})
        assert read(tmp_path / name, data.removeprefix("\ufeff").encode("utf-16")) == ([("one", "1"), ("two", "2")], {})


@pytest.mark.parametrize(
    ("line", "reason", "fact"),
    [
        (b"caf\xe9\t1", "rows with bad bytes", "holds bytes that are not UTF-8"),
        (b"nul\0\t1", "rows with NUL characters", "holds a NUL character"),
        (b"one", "rows with too few cells", "has 1 cells and not 2"),
        (b"one\t1\t1", "rows with too many cells", "has 3 cells and not 2"),
        (b"long" * 30 + b"\t1", "rows with long lines", "is longer than"),
    ],
)
def test_a_bad_row_is_counted_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: bytes, reason: str, fact: str
) -> None:
    monkeypatch.setattr(bad_rows, "MAX_LINE", 100)
    for name, between in (("a.tsv", b"\t"), ("a.csv", b",")):
        data = b"text\tlabel\none\t1\n" + line + b"\n\ntwo\t2"
        data = data.replace(b"\t", between)
        assert read(tmp_path / name, data) == ([("one", "1"), ("two", "2")], {reason: 1})
        with pytest.raises(TextError, match=rf"{name}:3: {fact}.*\. Mend the file, or choose to skip what is bad\.$"):
            read(tmp_path / name, data, "fail")


def test_a_line_far_too_long_is_one_bad_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bad_rows, "MAX_LINE", 100)
    data = "text\tlabel\none\t1\n" + "long " * 1000 + "\t1\ntwo\t2\n"
    monkeypatch.setattr("bertsmith.data.corpus.sources.READ_BYTES", 64)
    assert read(tmp_path / "a.tsv", data) == ([("one", "1"), ("two", "2")], {"rows with long lines": 1})


def test_a_cell_of_ten_megabytes_is_read(tmp_path: Path) -> None:
    large = "long text " * 1_000_000
    assert read(tmp_path / "a.tsv", f"text\tlabel\n{large}\t1\n") == ([(large, "1")], {})
    assert read(tmp_path / "a.csv", f'text,label\n"{large}",1\n') == ([(large, "1")], {})
    assert read(tmp_path / "a.jsonl", json.dumps({"text": large, "label": 1})) == ([(large, 1)], {})


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl", "a.json"])
def test_an_empty_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(TextError, match=rf"{name}: is empty\. Give it rows\.$"):
        read(tmp_path / name, "")
    with pytest.raises(TextError, match=rf"{name}: holds no (row|JSON object)\. Give it rows\.$"):
        read(tmp_path / name, "\n  \n")


def test_a_bad_first_line_is_refused_as_it_may_name_the_columns(tmp_path: Path) -> None:
    with pytest.raises(TextError, match=r"a\.tsv:1: holds a NUL character, and it might name the columns\."):
        read(tmp_path / "a.tsv", b"te\0t\tlabel\none\t1\n")
    with pytest.raises(TextError, match=r"a\.csv:1: has a quote .*, and it might name the columns\. Mend the first"):
        read(tmp_path / "a.csv", b'"text,label\none,1\n')


@pytest.mark.parametrize(
    ("first", "rest", "named"),
    [
        (["text", "label"], [], True),  # known names
        (["", "Text", "class"], [["0", "a b", "x"]], True),  # a known name, and a column without one
        (["a b", "text"], [["c d", "text"], ["e f", "label"]], False),  # the name is a value
        (["opinion", "stars"], [["a b", "5"], ["c d", "1"]], True),  # numbers below
        (["opinion", "mood"], [["a b", "good"], ["c d", "good"], ["e f", "bad"], ["g h", "bad"]], True),
        (["a film", "good"], [["c d", "good"], ["e f", "good"], ["g h", "bad"], ["i j", "bad"]], False),
        (["a film", "5"], [["c d", "4"]], False),
        (["same", "same"], [["c d", "4"]], False),
        (["", "stars"], [["c d", "4"]], False),
        (["a" * 41, "stars"], [["c d", "4"]], False),
        (["one", "two"], [["three", "four"]], False),  # in doubt no row is lost
    ],
)
def test_a_header_is_told_from_a_row(first: list[str], rest: list[list[str]], named: bool) -> None:
    assert has_header(first, rest, ("text", "label")) is named


def test_columns_by_number_have_no_header_except_one_of_known_names() -> None:
    rest = [["a b", "5"], ["c d", "1"]]
    assert not has_header(["opinion", "stars"], rest, ("text", "1"))
    assert has_header(["text", "stars"], rest, ("text", "1"))
    assert not has_header(["1", "stars"], rest, ("1",))


def test_columns_without_names_are_numbered(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("x y\t1\nbroken\nz\t2\n")
    table = open_table(find_source(tmp_path / "a.tsv"))
    assert (table.columns, table.has_header) == (("0", "1"), False)
    assert [table.column("0"), table.column("1")] == ["0", "1"]
    with pytest.raises(TextError, match=r"a\.tsv: has no column '2'\. Known: 0, 1\.$"):
        table.column("2")
    (tmp_path / "b.csv").write_text(",text,text\n0,a,b\n")
    assert open_table(find_source(tmp_path / "b.csv"), ["text"]).columns == ("0", "text", "2")


def test_a_column_goes_by_its_name_in_any_case_or_its_number(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("Text\tlabel\nx\t1\n")
    table = open_table(find_source(tmp_path / "a.tsv"), ["text"])
    assert [table.column(name) for name in ("Text", "text", "1")] == ["Text", "Text", "label"]
    with pytest.raises(TextError, match=r"a\.tsv: has no column 'lable'\. Did you mean 'label'\?$"):
        table.column("lable")


def test_packed_files_are_unpacked(tmp_path: Path) -> None:
    data = b"text\tlabel\none\t1\n"
    assert read(tmp_path / "a.tsv.gz", gzip.compress(data)) == ([("one", "1")], {})
    assert read(tmp_path / "a.tsv.xz", lzma.compress(data)) == ([("one", "1")], {})
    arrow = pytest.importorskip("pyarrow")
    assert read(tmp_path / "a.tsv.zst", arrow.compress(data, codec="zstd", asbytes=True)) == ([("one", "1")], {})
    with pytest.raises(TextError, match=r"a\.tsv\.gz:1: cannot be read from here on"):
        read(tmp_path / "a.tsv.gz", gzip.compress(data)[:-9])
    for name, packed in (("a.json.zst", arrow.compress(b"[1]" * 99, codec="zstd", asbytes=True)), ("a.json.xz", data)):
        with pytest.raises(TextError, match=rf"{name}:1: cannot be read from here on"):
            read(tmp_path / name, packed[:9])


@pytest.mark.parametrize("line", ['{"text": "cut', '["a"]', "7", "[" * 100_000, '{"n": ' + "9" * 5_000 + "}"])
def test_a_line_that_is_no_json_object_is_counted_or_refused(tmp_path: Path, line: str) -> None:
    data = '{"text": "one"}\n' + line + '\n{"text": "two"}\n'
    assert read(tmp_path / "a.jsonl", data) == ([("one",), ("two",)], {"rows that are no JSON object": 1})
    with pytest.raises(TextError, match=r"a\.jsonl:2: is no JSON object\. Mend the file"):
        read(tmp_path / "a.jsonl", data, "fail")


def test_the_records_of_a_json_list_have_numbers_and_no_lines(tmp_path: Path) -> None:
    data = json.dumps([{"text": "one"}, 7], indent=1)
    assert read(tmp_path / "a.json", data)[1] == {"rows that are no JSON object": 1}
    with pytest.raises(TextError, match=r"a\.json: record 2: is no JSON object\. Mend the file"):
        read(tmp_path / "a.json", data, "fail")


def test_half_characters_and_nul_in_escapes_are_found_wherever_they_are(tmp_path: Path) -> None:
    data = r"""{"text": "fine 🤗"}
{"text": ["half \ud83d"]}
{"text": {"a": "nul \u0000"}}"""
    counts = {"rows with half characters": 1, "rows with NUL characters": 1}
    assert read(tmp_path / "a.jsonl", data) == ([("fine 🤗",)], counts)
    deep = '{"text": ' + "[" * 900 + '"\\u0000"' + "]" * 900 + "}"
    assert read(tmp_path / "a.jsonl", '{"text": "one"}\n' + deep)[0] == [("one",)]


def test_a_json_file_is_a_list_of_objects_or_json_lines(tmp_path: Path) -> None:
    assert read(tmp_path / "a.json", '\n[{"text": "a"},\n 7, {"text": "b"}]') == (
        [("a",), ("b",)],
        {"rows that are no JSON object": 1},
    )
    assert read(tmp_path / "a.json", '{"text": "a"}\n{"text": "b"}') == ([("a",), ("b",)], {})
    with pytest.raises(TextError, match=r"a\.json:2: is not JSON: .*\. Get the file again\.$"):
        read(tmp_path / "a.json", '[{"text": "a"},\n{"text')


def parquet(path: Path, columns: dict[str, Any], features: Any = None) -> bytes:
    arrow = pytest.importorskip("pyarrow")
    store = pytest.importorskip("pyarrow.parquet")
    table = arrow.table(columns)
    if features is not None:
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    store.write_table(table, path)
    return path.read_bytes()


def test_numbers_of_classes_in_parquet_get_the_names_that_the_file_keeps(tmp_path: Path) -> None:
    kept = {"names": ["bad", "good"], "_type": "ClassLabel"}
    columns = {"label": [1, 0, -1], "tags": [[1], [0, 1], []], "other": [1, 0, 1]}
    for inside in ({"feature": kept, "_type": "Sequence"}, [kept]):
        data = parquet(tmp_path / "a.parquet", columns, {"label": kept, "tags": inside, "other": {"dtype": "int64"}})
        rows = [("good", ["good"], 1), ("bad", ["bad", "good"], 0), (None, [], 1)]
        assert read(tmp_path / "a.parquet", data) == (rows, {})
    assert read(tmp_path / "a.parquet", parquet(tmp_path / "a.parquet", {"label": [1]}, 7)) == ([(1,)], {})


def test_a_row_of_parquet_that_is_not_utf8_is_counted(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    claimed = arrow.array([b"one", b"\xff\xfe", b"two"]).view(arrow.string())
    data = parquet(tmp_path / "a.parquet", {"text": claimed})
    assert read(tmp_path / "a.parquet", data) == ([("one",), ("two",)], {"rows that cannot be read": 1})
    with pytest.raises(TextError, match=r"a\.parquet:2: holds a value that cannot be read\."):
        read(tmp_path / "a.parquet", data, "fail")


def test_a_file_that_is_not_parquet_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(TextError, match=r"a\.parquet: cannot be read from here on"):
        read(tmp_path / "a.parquet", b"PAR1 but no more")
    data = parquet(tmp_path / "a.parquet", {"words": [["a"], ["b"]]})
    with pytest.raises(TextError, match=r"a\.parquet: cannot be read from here on \('utf-8' codec"):
        read(tmp_path / "a.parquet", data.replace(b"element", b"elemen\x8f"))


def test_parquet_without_its_library_has_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(TextError, match=r"a\.parquet: needs pyarrow\. Install it with: pip install"):
        read(tmp_path / "a.parquet", b"PAR1")


def test_a_file_that_is_not_there_or_not_known_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("a\tb\n")
    with pytest.raises(TextError, match=r"trian\.tsv: does not exist\. Did you mean 'train\.tsv'\?$"):
        find_source(tmp_path / "trian.tsv")
    with pytest.raises(TextError, match=r": is a folder\. Name a file in it: train\.tsv\.$"):
        find_source(tmp_path)
    with pytest.raises(TextError, match=r"does not exist"):
        find_source(Path("nul\0"))
    with pytest.raises(TextError, match=r"a\.xlsx: has the unknown ending '\.xlsx'\. Known: \.tsv"):
        read(tmp_path / "a.xlsx", "text")
    with pytest.raises(TextError, match=r"a\.parquet\.gz: has the unknown ending"):
        read(tmp_path / "a.parquet.gz", "text")


@settings(max_examples=50, deadline=None)
@given(rows=st.lists(st.tuples(PLAIN.filter(lambda text: text.strip(" ")), PLAIN), min_size=1, max_size=8))
def test_rows_of_tsv_come_back_equal(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]) -> None:
    assume(not {cell for row in rows for cell in row} & {"text", "label"})
    data = "\n".join("\t".join(row) for row in [("text", "label"), *rows])
    assert read(tmp_path_factory.getbasetemp() / "round.tsv", data) == (rows, {})


@settings(max_examples=50, deadline=None)
@given(rows=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=8))
def test_rows_of_csv_json_and_parquet_come_back_equal(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
) -> None:
    assume(not {cell for row in rows for cell in row} & {"text", "label"})
    folder = tmp_path_factory.getbasetemp()
    assert read(folder / "round.csv", written([("text", "label"), *rows])) == (rows, {})
    records = [{"text": text, "label": label} for text, label in rows]
    assert read(folder / "round.jsonl", "\n".join(map(json.dumps, records))) == (rows, {})
    assert read(folder / "round.json", json.dumps(records, ensure_ascii=False)) == (rows, {})
    data = parquet(folder / "round.parquet", {"text": [row[0] for row in rows], "label": [row[1] for row in rows]})
    assert read(folder / "round.parquet", data) == (rows, {})


GOOD = st.tuples(st.text("abc é🤗'.", min_size=1).filter(str.strip), st.sampled_from("xyz"))
BAD = st.sampled_from([b"one", b"one@x@y", b"b\xffd@x", b"n\0l@x", b"\xed\xa0\x80@x", b"@@@"])


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.tuples(GOOD, st.lists(BAD, max_size=2)), min_size=1, max_size=8), stray=st.booleans())
def test_good_rows_survive_bad_ones(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[tuple[str, str], list[bytes]]], stray: bool
) -> None:
    good = [row for row, _ in rows]
    for name, between in (("bad.tsv", b"\t"), ("bad.csv", b",")):
        quotes = [b'"open@x', b'"a" b@x'] if stray and name == "bad.csv" else []
        written = [b"text@label"]
        for (text, label), bad in rows:
            written += [text.encode() + b"@" + label.encode(), *bad, *quotes]
        path = tmp_path_factory.getbasetemp() / name
        found, counts = read(path, b"\n".join(written).replace(b"@", between))
        assert found == good
        assert sum(counts.values()) == sum(len(bad) + len(quotes) for _, bad in rows)
        if counts:
            with pytest.raises(TextError, match=rf"{name}:\d+: "):
                read(path, path.read_bytes(), "fail")


@settings(max_examples=150, deadline=None)
@given(data=st.data(), noise=st.binary(min_size=1, max_size=12), policy=st.sampled_from(["skip", "fail"]))
def test_any_bytes_are_rows_or_one_clear_line(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, noise: bytes, policy: Policy
) -> None:
    folder = tmp_path_factory.getbasetemp()
    rows = [(f"text {number}", "xy"[number % 2]) for number in range(5)]
    records = [{"text": text, "label": label} for text, label in rows]
    files = {
        "any.tsv": "\n".join(map("\t".join, rows)).encode(),
        "any.csv": written(rows).encode(),
        "any.jsonl": "\n".join(map(json.dumps, records)).encode(),
        "any.json": json.dumps(records).encode(),
        "any.parquet": parquet(folder / "any.parquet", {"text": [row[0] for row in rows]}),
    }
    name = data.draw(st.sampled_from(sorted(files)))
    start = data.draw(st.integers(0, len(files[name])))
    gone = data.draw(st.integers(0, 5))
    said = name
    try:
        read(folder / name, files[name][:start] + noise + files[name][start + gone :], policy)
    except TextError as error:
        said = str(error)
    assert name in said
    assert "\n" not in said


def test_a_packed_json_file_that_unpacks_to_far_more_is_refused_before_memory_is_full(tmp_path: Path) -> None:
    path = tmp_path / "bomb.json.xz"
    path.write_bytes(lzma.compress(b'{"data": [' + b'"aaaaaa",\n' * (4 << 20), preset=0))
    tracemalloc.start()
    with pytest.raises(TextError, match=r"bomb\.json\.xz: unpacks to more than 100 times its size\."):
        read_text(find_source(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 26


def test_one_json_value_that_is_too_large_for_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MAX_JSON_BYTES", 1_000)
    (tmp_path / "a.json").write_text("[" + "1, " * 1_000 + "1]")
    message = r"a\.json: is one JSON value of more than 1,000 bytes\. Write its rows as JSON lines\."
    with pytest.raises(TextError, match=message):
        read_text(find_source(tmp_path / "a.json"))
