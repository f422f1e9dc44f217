"""Records in JSON lines and Parquet give their texts, or one clear line."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.corpus.lines import Cleaner, Policy
from bertsmith.data.corpus.records import from_json, from_parquet
from bertsmith.data.corpus.sources import find_sources
from bertsmith.errors import TextError


def read(
    data: str | bytes, policy: Policy = "replace", field: str = "text"
) -> tuple[list[tuple[int, str]], Counter[str]]:
    tally = Counter[str]()
    raw = data.encode() if isinstance(data, str) else data
    return list(from_json(iter([raw]), "a.jsonl", field, Cleaner(policy, 100, tally))), tally


def parquet(folder: Path, columns: dict[str, Any], policy: Policy = "replace", field: str = "text") -> Any:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table(columns), folder / "a.parquet")
    return table(folder / "a.parquet", policy, field)


def table(path: Path, policy: Policy = "replace", field: str = "text") -> tuple[list[tuple[int, str]], Counter[str]]:
    tally, reached = Counter[str](), list[int]()
    source = find_sources([str(path)])[0]
    rows = list(from_parquet(source, field, Cleaner(policy, 100, tally), reached.append))
    assert not reached or reached[-1] == source.size
    return rows, tally


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.ndjson", '{"text": "one", "id": 1}\n{"text": "two"}\n'),
        ("a.json", '\n {"text": "one", "id": 1}\n{"text": "two"}\n'),
        ("a.json", '[\n {"text": "one", "id": 1},\n {"text": "two"}\n]\n'),
        ("a.json", '[{"body": "one", "id": 1}, {"body": "two"}]'),
        ("a.json", "one\ntwo\n"),
    ],
)
def test_json_that_is_named_gives_texts_and_no_braces(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    (tmp_path / "b.txt").write_text("three\n")
    assert list(Corpus([str(tmp_path / name)], layout="lines").lines()) == ["one", "two"]
    in_folder = ["one", "two"] if name == "a.ndjson" else []
    assert list(Corpus([str(tmp_path)]).lines()) == [*in_folder, "three"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{\n "text": "one"\n}', "is one JSON object over several lines. Write it as JSON lines, or add --as text."),
        ('["one", "two"]', "holds no JSON object. Give it rows."),
        ('[{"text": "one"}', "1: is not JSON: Expecting ',' delimiter. Get the file again."),
    ],
)
def test_json_without_records_is_refused(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(TextError, match=re.escape(message)):
        list(Corpus([str(tmp_path / "a.json")]).lines())
    assert list(Corpus([str(tmp_path / "a.json")], plain=True).lines())


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_rows_with_bad_characters_are_repaired_or_dropped(name: str, tmp_path: Path) -> None:
    rows = [b"text", "größer".encode(), b"br\xffken", b"nul\0here", b"last"]
    (tmp_path / name).write_bytes(b"\n".join(row + (b"," if name == "a.csv" else b"\t") + b"1" for row in rows))
    corpus = Corpus([str(tmp_path / name)], layout="lines")
    assert list(corpus.lines()) == ["größer", "br\ufffdken", "nul here", "last"]
    assert corpus.tally == {"bad bytes": 1, "NUL characters": 1}
    corpus = Corpus([str(tmp_path / name)], layout="lines", on_bad_line="skip")
    assert list(corpus.lines()) == ["größer", "last"]
    assert corpus.tally == {"rows with bad bytes": 1, "rows with NUL characters": 1}
    with pytest.raises(TextError, match=rf"{name}:3: holds bytes that are not UTF-8\."):
        list(Corpus([str(tmp_path / name)], on_bad_line="fail").lines())


def test_binary_data_is_no_json(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(bytes(range(256)))
    with pytest.raises(TextError, match=r"a\.json: is not text, but binary data\."):
        list(Corpus([str(tmp_path / "a.json")]).lines())


def test_each_line_gives_the_text_in_its_field() -> None:
    data = '{"text": "one", "id": 1}\n\n{"id": 2, "text": "two\\nlines"}\n'
    assert read(data) == ([(1, "one"), (3, "two\nlines")], Counter())


@pytest.mark.parametrize(
    ("line", "kind", "fact"),
    [
        ('{"text": "cut', "broken records", "is no JSON object"),
        ('["text"]', "broken records", "is no JSON object"),
        ("[" * 100_000, "broken records", "is no JSON object"),
        ('{"n": ' + "9" * 5_000 + "}", "broken records", "is no JSON object"),
        ('{"text": null}', "records without text", "has no text in its field"),
        ('{"text": 7}', "records without text", "has no text in its field"),
        ('{"title": "x"}', "records without text", "has no text in its field"),
    ],
)
def test_a_record_that_cannot_be_read_is_dropped_or_refused(line: str, kind: str, fact: str) -> None:
    data = '{"text": "one"}\n' + line + '\n{"text": "three"}\n'
    for policy in ("replace", "skip"):
        assert read(data, policy) == ([(1, "one"), (3, "three")], Counter({kind: 1}))
    with pytest.raises(TextError, match=rf"^a\.jsonl:2: {fact}\. Mend the file, or choose"):
        read(data, "fail")


def test_half_characters_and_nul_in_escapes_go_by_the_policy() -> None:
    data = "\n".join([r'{"text": "half \ud83d of it"}', r'{"text": "whole \ud83e\udd17"}', r'{"text": "a\u0000b"}'])
    tally = Counter({"half characters": 1, "NUL characters": 1})
    assert read(data) == ([(1, "half \ufffd of it"), (2, "whole 🤗"), (3, "a b")], tally)
    assert read(data, "skip") == ([(2, "whole 🤗")], tally)
    with pytest.raises(TextError, match=r"^a\.jsonl:1: holds half a character \(a lone surrogate\)\."):
        read(data, "fail")
    with pytest.raises(TextError, match=r"^a\.jsonl:1: holds a NUL character\."):
        read(data.splitlines()[2], "fail")


def test_a_misspelt_field_is_named_with_the_nearest_known_one() -> None:
    with pytest.raises(TextError, match=r"^a\.jsonl:1: has no field 'text'\. Did you mean 'texts'\?$"):
        read('{"texts": "one"}')
    with pytest.raises(TextError, match=r"^a\.jsonl:2: has no field 'body'\. Known: id, text\.$"):
        read('\n{"text": "one", "id": 3}', field="body")


def test_each_row_gives_the_text_in_its_column(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    texts = [f"text {number}" for number in range(1_000)]
    expected = (list(enumerate(texts, 1)), Counter())
    assert parquet(tmp_path, {"id": range(1_000), "text": texts}) == expected
    for kind in (arrow.large_string(), arrow.string_view(), arrow.dictionary(arrow.int32(), arrow.string())):
        assert parquet(tmp_path, {"text": arrow.array(texts).cast(kind)}) == expected


def test_rows_without_text_and_with_bad_bytes_go_by_the_policy(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    rows = arrow.array([b"one", None, b"caf\xe9"], arrow.binary()).view(arrow.string())
    tally = Counter({"records without text": 1, "bad bytes": 1})
    assert parquet(tmp_path, {"text": rows}) == ([(1, "one"), (3, "caf\ufffd")], tally)
    assert parquet(tmp_path, {"text": rows}, "skip") == ([(1, "one")], tally)
    with pytest.raises(TextError, match=r"a\.parquet:2: has no text in its field\."):
        parquet(tmp_path, {"text": rows}, "fail")


def test_a_parquet_file_that_is_not_one_is_told(tmp_path: Path) -> None:
    with pytest.raises(TextError, match=r"a\.parquet: has no column 'text'\. Did you mean 'texts'\?$"):
        parquet(tmp_path, {"texts": ["one"]})
    with pytest.raises(TextError, match=r"a\.parquet: the column 'text' does not hold text\.$"):
        parquet(tmp_path, {"text": [1, 2]})
    path = tmp_path / "a.parquet"
    parquet(tmp_path, {"text": ["one"] * 100})
    whole = path.read_bytes()
    for damaged in (b"", whole[:-20], whole[: len(whole) // 2], b"PAR1" + b"\0" * 50 + b"PAR1"):
        path.write_bytes(damaged)
        with pytest.raises(
            TextError, match=r"a\.parquet:1: cannot be read from here on \(.+\)\. Get the file again\.$"
        ):
            table(path)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.just("text"), inner, max_size=3)
    ),
    max_leaves=8,
)
lines = st.one_of(st.binary(), values.map(lambda value: json.dumps(value).encode()))


@given(st.lists(lines), st.sampled_from(["replace", "skip", "fail"]))
def test_any_line_is_read_or_refused(pieces: list[bytes], policy: Policy) -> None:
    refused, found = "", list[tuple[int, str]]()
    try:
        found, _ = read(b"\n".join(pieces), policy)
    except TextError as error:
        refused = str(error)
    assert not refused or refused.startswith("a.jsonl:")
    for _, text in found:
        text.encode()
        assert "\0" not in text
