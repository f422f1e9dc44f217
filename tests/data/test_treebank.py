"""Trees as texts: what was said stays, what was not said goes, and every bracket says what it closes."""

import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.data.labelled import reader
from bertsmith.data.labelled.examples import Example
from bertsmith.errors import TextError

DOGS = """
( (S
    (NP-SBJ-1 (NNS Dogs) )
    (VP (VBP chase)
      (NP (NNS cats) )
      (SBAR (-NONE- 0) (S (-NONE- *T*-1) ))) (. .) ))
( (FRAG (NN Rain) ))
"""


def read(path: Path, policy: str = "skip") -> list[Example]:
    return reader.read(path, "classify", policy=policy).examples  # type: ignore[arg-type,return-value]


def test_a_tree_becomes_its_sentence_and_its_brackets(tmp_path: Path) -> None:
    (tmp_path / "trees.mrg").write_text(DOGS)
    first, second = read(tmp_path / "trees.mrg")
    assert first.texts == ("Dogs chase cats .",)
    assert first.label == "(S (NP NNS )NP (VP VBP (NP NNS )NP )VP . )S"
    assert (second.texts, second.label) == (("Rain",), "(FRAG NN )FRAG")
    assert (first.location, second.location) == (f"{tmp_path / 'trees.mrg'}:2", f"{tmp_path / 'trees.mrg'}:7")


TREES = st.recursive(
    st.tuples(st.sampled_from(["NN", "VB", "-NONE-"]), st.sampled_from(["dog", "runs", "0"])),
    lambda inside: st.tuples(st.sampled_from(["S", "NP-SBJ", "VP=2"]), st.lists(inside, min_size=1, max_size=3)),
    max_leaves=12,
)


def written(tree: tuple[str, object]) -> str:
    name, inside = tree
    parts = inside if isinstance(inside, str) else " ".join(map(written, inside))  # type: ignore[call-overload]
    return f"({name} {parts})"


def said(tree: tuple[str, object]) -> list[tuple[str, str]]:
    name, inside = tree
    if isinstance(inside, str):
        return [] if name == "-NONE-" else [(name, inside)]
    return [word for part in inside for word in said(part)]  # type: ignore[attr-defined]


@settings(deadline=None, max_examples=60)
@given(trees=st.lists(TREES.filter(said), min_size=1, max_size=4))
def test_words_are_kept_and_brackets_close_what_they_opened(
    trees: list[tuple[str, object]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("trees") / "trees.mrg"
    path.write_text("\n".join(f"( {written(tree)} )" for tree in trees))
    for tree, found in zip(trees, read(path), strict=True):
        assert found.texts[0].split() == [word for _, word in said(tree)]
        open_ones, kinds = [], []
        for piece in str(found.label).split():
            if piece.startswith("("):
                open_ones.append(piece[1:])
            elif piece.startswith(")"):
                assert open_ones.pop() == piece[1:]
            else:
                kinds.append(piece)
        assert not open_ones
        assert kinds == [kind for kind, _ in said(tree)]


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("(S (NN a)", ":1: has a bracket that is never closed"),
        ("(S (NN a))\n)", ":2: ')' stands outside of all brackets"),
        ("(S (NN a))\n(S (-NONE- 0))", ":2: has a tree without a word"),
    ],
)
def test_a_broken_tree_is_left_out_or_refused(text: str, fact: str, tmp_path: Path) -> None:
    (tmp_path / "trees.mrg").write_text(f"{text}\n")
    with pytest.raises(TextError, match=r"trees\.mrg") as caught:
        read(tmp_path / "trees.mrg", "fail")
    assert fact in str(caught.value)


@pytest.mark.shared
def test_the_sample_of_the_wall_street_journal_is_read(shared: Path, tmp_path: Path) -> None:
    with tarfile.open(shared / "data" / "treebank" / "wsj-sample-combined.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    assert len(list(tmp_path.glob("*.mrg"))) == 199
    found = reader.read(tmp_path / "wsj_000*.mrg", "classify")
    assert (len(found.examples), found.dropped) == (69, {})
    assert any(one.label and "(VP" in str(one.label) for one in found.examples if isinstance(one, Example))
