"""Parallel text: a line and its translation make an example, and nothing slips out of step."""

import gzip
import lzma
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.data.labelled import reader
from bertsmith.data.labelled.columns import Columns
from bertsmith.data.labelled.examples import Example
from bertsmith.data.labelled.reader import LabelledData
from bertsmith.errors import TextError

BOTH = Columns(texts=("en",), label="de")


def written(stem: Path, english: str, german: str) -> Path:
    stem.with_name(f"{stem.name}.en").write_text(english, encoding="utf-8")
    stem.with_name(f"{stem.name}.de").write_text(german, encoding="utf-8")
    return stem


def read(stem: Path, policy: str = "skip") -> LabelledData:
    return reader.read(stem, "classify", BOTH, policy)  # type: ignore[arg-type]


def test_lines_of_the_same_number_are_pairs(tmp_path: Path) -> None:
    found = read(written(tmp_path / "train", "a dog\ntwo cats\n", "ein Hund\nzwei Katzen\n"))
    assert [(one.texts, one.label) for one in found.examples if isinstance(one, Example)] == [
        (("a dog",), "ein Hund"),
        (("two cats",), "zwei Katzen"),
    ]
    assert found.examples[1].location == f"{tmp_path / 'train.en'}:2"
    assert found.description == "source lines from train.en, target lines from train.de"


@settings(deadline=None, max_examples=30)
@given(pairs=st.lists(st.tuples(st.sampled_from(["", " ", "a", "b c"]), st.sampled_from(["", "x", "y z"])), min_size=1))
def test_lines_without_a_translation_are_left_out_and_counted(
    pairs: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    pairs = [*pairs, ("last", "letzte")]
    stem = written(tmp_path_factory.mktemp("pairs") / "train", *("\n".join(side) for side in zip(*pairs, strict=True)))
    found = read(stem)
    whole = [(one.strip(), other) for one, other in pairs if one.strip() and other]
    assert [(one.texts[0], one.label) for one in found.examples if isinstance(one, Example)] == whole
    assert sum(found.dropped.values()) == len(pairs) - len(whole)


def test_files_may_be_packed_and_each_in_its_own_way(tmp_path: Path) -> None:
    plain = read(written(tmp_path / "plain", "a dog\n", "ein Hund\n"))
    (tmp_path / "train.en.xz").write_bytes(lzma.compress(b"a dog\n"))
    (tmp_path / "train.de.gz").write_bytes(gzip.compress(b"ein Hund\n"))
    packed = read(tmp_path / "train")
    assert [(one.texts, one.label) for one in packed.examples if isinstance(one, Example)] == [
        (one.texts, one.label) for one in plain.examples if isinstance(one, Example)
    ]
    assert packed.fingerprint != plain.fingerprint


def test_files_of_unequal_length_are_refused_in_one_line(tmp_path: Path) -> None:
    stem = written(tmp_path / "train", "a dog\ntwo cats\n\n", "ein Hund\n")
    with pytest.raises(TextError) as caught:
        read(stem)
    fact = f"{stem}.en: has 2 lines, and {stem}.de has 1. Line by line, both must say the same."
    assert str(caught.value) == fact


def test_a_bad_line_is_left_out_with_its_translation(tmp_path: Path) -> None:
    stem = written(tmp_path / "train", "", "ein\nzwei\ndrei\n")
    (tmp_path / "train.en").write_bytes(b"one\ntw\xff\nthree\n")
    found = read(stem)
    assert [one.label for one in found.examples if isinstance(one, Example)] == ["ein", "drei"]
    assert found.dropped == {"rows with bad bytes": 1}
    with pytest.raises(TextError, match=r"train\.en:2"):
        read(stem, "fail")


def test_without_two_files_the_name_is_that_of_one(tmp_path: Path) -> None:
    written(tmp_path / "train", "a dog\n", "ein Hund\n")
    with pytest.raises(TextError, match="does not exist"):
        reader.read(tmp_path / "train", "classify", Columns(texts=("en",), label="fr"))


@pytest.mark.slow
@pytest.mark.shared
def test_multi30k_has_as_many_pairs_as_were_published(shared: Path) -> None:
    folder = shared / "data" / "multi30k"
    counts = {name: len(read(folder / name).examples) for name in ("train", "val", "test_2016_flickr")}
    assert counts == {"train": 29_000, "val": 1_014, "test_2016_flickr": 1_000}
