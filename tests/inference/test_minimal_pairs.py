"""Minimal pairs: read from files, folders and archives, and judged as BLiMP does."""

import io
import json
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from bertsmith.data.corpus import decompression
from bertsmith.errors import RecipeError, TextError
from bertsmith.inference import minimal_pairs as minimal
from bertsmith.inference.likelihood import score
from bertsmith.inference.minimal_pairs import MinimalPair, MinimalPairScores, accuracies, evaluate, read_minimal_pairs
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.objectives.masked import MaskedLM
from bertsmith.text.tokenizer import TokenizerConfig, train

CAST = ["cat", "dog", "king", "queen"]


def line(good: str, bad: str, **others: Any) -> str:
    return json.dumps({"sentence_good": good, "sentence_bad": bad, **others}) + "\n"


def blimp(phenomenon: str, count: int, field: str = "syntax", term: str = "binding") -> str:
    words = {"field": field, "linguistics_term": term, "UID": phenomenon, "pairID": "0", "simple_LM_method": True}
    return "".join(line(f"{phenomenon} {number}", f"{number} {phenomenon}", **words) for number in range(count))


def archive(path: Path, files: dict[str, str | bytes], mode: str = "w:xz") -> Path:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        folder = tarfile.TarInfo("./")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, text in files.items():
            raw = text.encode() if isinstance(text, str) else text
            info = tarfile.TarInfo(name)
            info.size = len(raw)
            tar.addfile(info, io.BytesIO(raw))
    return path


def refusal(path: Path) -> str:
    with pytest.raises(TextError) as caught:
        read_minimal_pairs(path)
    told = str(caught.value)
    assert "\n" not in told
    return told.replace(str(path), "P")


@pytest.mark.parametrize(("ending", "mode"), [(".tar.xz", "w:xz"), (".tar.gz", "w:gz"), (".tar", "w")])
def test_an_archive_a_folder_and_files_hold_the_same_pairs(tmp_path: Path, ending: str, mode: str) -> None:
    files = {"one.jsonl": blimp("one", 3), "two.jsonl": blimp("two", 2, "morphology", "ellipsis")}
    packed = archive(tmp_path / f"pairs{ending}", {f"./{name}": text for name, text in files.items()}, mode)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "README.txt").write_text("not a pair")
    for name, text in files.items():
        (folder / name).write_text(text)
    found = read_minimal_pairs(packed)
    assert found == read_minimal_pairs(folder)
    assert found == read_minimal_pairs(folder / "one.jsonl") + read_minimal_pairs(folder / "two.jsonl")
    assert found[3] == MinimalPair(phenomenon="two", field="morphology", term="ellipsis", good="two 0", bad="0 two")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", packed.name]  # nothing was unpacked


def test_the_first_pairs_of_each_phenomenon_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "mixed.jsonl"
    path.write_text(blimp("one", 3) + blimp("two", 1) + blimp("one", 2))
    assert [pair.good for pair in read_minimal_pairs(path, 2)] == ["one 0", "one 1", "two 0"]
    assert len(read_minimal_pairs(path)) == 6


def test_a_file_of_sentences_alone_is_one_phenomenon(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(line("a cat", "an cat") + "\n" + line("an ox", "a ox"))
    assert read_minimal_pairs(path) == [
        MinimalPair(phenomenon="mine", good="a cat", bad="an cat"),
        MinimalPair(phenomenon="mine", good="an ox", bad="a ox"),
    ]


def test_the_field_that_blimp_writes_in_two_ways_is_one(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(blimp("one", 1, "syntax/semantics"))
    assert read_minimal_pairs(path)[0].field == "syntax_semantics"


@pytest.mark.parametrize(
    ("bad", "fact"),
    [
        ("{", "is no JSON object."),
        ("[" * 50_000, "is no JSON object."),
        ("[1]", "is no JSON object."),
        ('{"sentence_good": "a"}', "has no text in 'sentence_bad'."),
        ('{"sentence_good": " ", "sentence_bad": "b"}', "has no text in 'sentence_good'."),
        ('{"sentence_good": "a", "sentence_bad": "b", "UID": 3}', "has no text in 'UID'."),
        (r'{"sentence_good": "\ud800", "sentence_bad": "b"}', "holds half a character (a lone surrogate)."),
        ("x" * 70_000, "is longer than 65,536 characters."),
    ],
)
def test_a_broken_line_is_told_with_its_file_and_number(tmp_path: Path, bad: str, fact: str) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_text(blimp("one", 2) + bad + "\n" + blimp("one", 1))
    assert refusal(path).startswith(f"P:3: {fact}")
    packed = archive(tmp_path / "broken.tar.gz", {"./in/broken.jsonl": path.read_bytes()}, "w:gz")
    assert refusal(packed).startswith(f"P:in/broken.jsonl:3: {fact}")


def test_bytes_that_are_not_text_are_told(tmp_path: Path) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_bytes(blimp("one", 1).encode() + b'{"sentence_good": "\xff"}\n')
    assert refusal(path).startswith("P:2: holds bytes that are not UTF-8.")


@pytest.mark.parametrize("name", ["../out.jsonl", "/etc/out.jsonl", "in/../../out.jsonl"])
def test_an_archive_that_points_outside_is_refused(tmp_path: Path, name: str) -> None:
    path = archive(tmp_path / "evil.tar.xz", {name: blimp("one", 1)})
    assert refusal(path) == f"P: names '{name}', outside of itself. Do not trust this archive."


def test_what_is_no_plain_file_in_an_archive_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "links.tar"
    with tarfile.open(path, "w") as tar:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE):
            link = tarfile.TarInfo("link.jsonl")
            link.type, link.linkname = kind, "/etc/passwd"
            tar.addfile(link)
        for name in ("._one.jsonl", "README.md", "one.jsonl"):
            info, raw = tarfile.TarInfo(name), blimp("one", 2).encode()
            info.size = len(raw)
            tar.addfile(info, io.BytesIO(raw))
    assert len(read_minimal_pairs(path)) == 2


def test_a_file_too_large_in_an_archive_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minimal, "MAX_FILE_BYTES", 50)
    path = archive(tmp_path / "large.tar.xz", {"one.jsonl": blimp("one", 1)})
    assert refusal(path) == "P:one.jsonl: is larger than 50 bytes. These are no minimal pairs."


@pytest.mark.parametrize("ending", [".tar.xz", ".tar.gz", ".tar"])
def test_a_damaged_archive_is_told_in_one_line(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"half{ending}"
    archive(path, {"one.jsonl": blimp("one", 2000)}, {".tar": "w"}.get(ending, f"w:{ending[-2:]}"))
    raw = path.read_bytes()
    for cut in (len(raw) // 2, 40, 0):
        path.write_bytes(raw[:cut])
        told = refusal(path)
        assert told.startswith(("P: cannot be read (", "P:one.jsonl: cannot be read ("))


def test_what_holds_no_pair_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n")
    remedy = "Every line is a JSON object with sentence_good and sentence_bad."
    assert refusal(empty) == f"P: holds no pair. {remedy}"
    text = tmp_path / "text.txt"
    text.write_text("some text")
    assert refusal(text).startswith("P: has the unknown ending '.txt'. Known: .jsonl .tar")
    assert refusal(tmp_path / "none.jsonl").startswith("P: does not exist.")
    with pytest.raises(RecipeError, match=r"limit: 0 pairs of each phenomenon are none. Give at least 1."):
        read_minimal_pairs(empty, 0)


def test_accuracies_are_means_over_phenomena_and_ties_are_wrong() -> None:
    pairs = [MinimalPair(phenomenon="one", field="syntax", term="binding", good="a", bad="b")] * 4
    pairs += [MinimalPair(phenomenon="two", field="syntax", term="ellipsis", good="a", bad="b")] * 2
    pairs += [MinimalPair(phenomenon="three", good="a", bad="b")]
    totals = [(-1.0, -2.0), (-2.0, -1.0), (-1.0, -1.0), (-3.0, -3.5), (-1.0, -2.0), (-1.0, -2.0), (-2.0, -2.0)]
    found = accuracies(pairs, totals)
    assert found == MinimalPairScores(
        accuracy=0.5,
        phenomena={"one": 0.5, "two": 1.0, "three": 0.0},
        fields={"syntax": 0.75},
        terms={"binding": 0.5, "ellipsis": 1.0},
        pairs=7,
        ties=2,
    )
    assert json.loads(json.dumps(found.to_dict()))["phenomena"]["two"] == 1.0
    assert accuracies([], []).accuracy == 0.0


def test_a_model_judges_by_its_scores() -> None:
    sentences = [(f"the {one} sees a {other} .", f"a {other} the sees {one} .") for one in CAST for other in CAST]
    pairs = [MinimalPair(phenomenon=good.split()[1], good=good, bad=bad) for good, bad in sentences]
    pairs += [MinimalPair(phenomenon="same", good="the CAT", bad="the cat")]  # the tokenizer sees no difference
    tokenizer = train([pair.good for pair in pairs], TokenizerConfig(vocabulary=100, min_frequency=1))
    torch.manual_seed(0)
    shape = TransformerConfig(
        vocabulary=tokenizer.vocabulary, width=16, layers=1, heads=2, feed_forward=32, max_length=32
    )
    objective = MaskedLM(Transformer(shape), MaskedLM.Config(pairs="none"))
    with torch.no_grad():
        for weight in objective.parameters():
            weight.normal_(std=0.3)
    found = evaluate(objective, tokenizer, pairs, pll_form="original", batch_tokens=128)
    right: Counter[str] = Counter()
    for pair in pairs:
        good, bad = score(objective, tokenizer, [pair.good, pair.bad], pll_form="original")
        right[pair.phenomenon] += good.log_likelihood > bad.log_likelihood
    assert found.phenomena == {name: right[name] / (1 if name == "same" else len(CAST)) for name in right}
    assert 0 < found.accuracy < 1
    assert (found.pairs, found.ties) == (len(pairs), 1)


@pytest.mark.slow
@pytest.mark.shared
def test_blimp_has_67_phenomena_of_1000_pairs(shared: Path) -> None:
    pairs = read_minimal_pairs(shared / "data" / "blimp" / "blimp.tar.xz")
    counts = Counter(pair.phenomenon for pair in pairs)
    assert len(counts) == 67
    assert set(counts.values()) == {1000}
    assert {pair.field for pair in pairs} == {"morphology", "semantics", "syntax", "syntax_semantics"}
    assert len({(pair.phenomenon, pair.field, pair.term) for pair in pairs}) == 67
    assert sum(pair.good == pair.bad for pair in pairs) == 7  # as published: nobody can be right about these


def test_an_archive_is_refused_before_it_has_unpacked_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    padded = archive(
        tmp_path / "bomb.tar.gz",
        {"zeros.bin": bytes(decompression.MAX_DECOMPRESSED_BYTES), "a.jsonl": blimp("one", 1)},
        "w:gz",
    )
    with pytest.raises(TextError, match=r"bomb\.tar\.gz: unpacks to more than 100 times its size\."):
        read_minimal_pairs(padded)
    monkeypatch.setattr(minimal, "MAX_ARCHIVE_FILES", 5)
    many = archive(tmp_path / "many.tar", {f"{number}.txt": "" for number in range(9)}, "w")
    with pytest.raises(TextError, match=r"many\.tar: holds more than 5 files\. These are no minimal pairs\."):
        read_minimal_pairs(many)
