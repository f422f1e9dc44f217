"""Validation holds the share that was asked for, in any layout, whatever the order and however large the text is."""

import io
import random
import sys
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest

from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.shards import validation
from bertsmith.data.shards.duplicates import DigestSet
from bertsmith.data.shards.validation import (
    UnitSizes,
    Validation,
    choose_units,
    choose_validation,
    digest,
    document_key,
)

TEXT = "the old house on a hill by the sea stood still while dark water rose and fell under pale moonlight"


def sentence(number: int, least: int = 3, most: int = 20) -> str:
    chance = random.Random(number)
    return " ".join(["It was", str(number), *chance.choices(TEXT.split(), k=chance.randint(least, most))]) + "."


def lines(count: int, first: int = 0) -> str:
    return "\n".join(map(sentence, range(first, first + count))) + "\n"


def documents(sizes: list[int]) -> str:
    found, first = list[str](), 0
    for size in sizes:
        found.append(lines(size, first))
        first += size
    return "\n".join(found)


def sides(corpus: Corpus, plan: Validation) -> tuple[list[list[str]], list[list[str]]]:
    """Documents for training and for validation."""
    both: tuple[list[list[str]], list[list[str]]] = ([], [])
    seen = DigestSet()
    for passage in corpus.passages():
        found, size = digest(passage.texts)
        if seen.add(found):
            for apart, part in plan.split_document(document_key(found), size, passage.sentences()):
                both[apart].append(part)
    return both


def weight(documents: list[list[str]]) -> int:
    return sum(len(one.encode()) for document in documents for one in document)


LAYOUTS: dict[str, Callable[[], dict[str, str]]] = {
    "fifty lines": lambda: {"a.txt": lines(50)},
    "400 lines": lambda: {"a.txt": lines(400)},
    "3,000 lines": lambda: {"a.txt": lines(3_000)},
    "4,000 lines": lambda: {"a.txt": lines(4_000)},
    "20,000 lines, more than one document": lambda: {"a.txt": lines(20_000)},
    "many documents": lambda: {"a.txt": documents([1 + number % 11 for number in range(400)])},
    "few documents": lambda: {"a.txt": documents([40, 60, 50, 70])},
    "a giant among small ones": lambda: {"a.txt": documents([4] * 60 + [3_000] + [5] * 60)},
    "a giant and a dwarf": lambda: {"a.txt": documents([2_000, 1])},
    "a file a document": lambda: {f"{number}.txt": lines(5 + number % 30, 1_000 * number) for number in range(40)},
    "running text": lambda: {"a.txt": "\n\n".join(lines(7, 7 * at).replace("\n", " ") for at in range(200))},
    "one paragraph": lambda: {"a.txt": lines(700).replace("\n", " ")},
}


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.05, 0.2])
@pytest.mark.parametrize("name", LAYOUTS)
def test_validation_is_the_share_asked_for_within_a_tenth(name: str, share: float, tmp_path: Path) -> None:
    for file, text in LAYOUTS[name]().items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    corpus = Corpus([str(tmp_path)])
    train, apart = sides(corpus, choose_validation(corpus, share))
    everything = weight([document.sentences for document in corpus.documents()])
    assert weight(train) + weight(apart) == everything
    assert weight(apart) == pytest.approx(share * everything, rel=0.1)


def test_a_hundredth_of_four_thousand_lines_is_a_hundredth(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(lines(4_000))
    corpus = Corpus([str(tmp_path)])
    train, apart = sides(corpus, choose_validation(corpus, 0.01))
    assert weight(apart) == pytest.approx(0.01 * weight([*train, *apart]), rel=0.1)


def test_ordinary_documents_stay_whole(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(documents([3 + number % 8 for number in range(300)]))
    corpus = Corpus([str(tmp_path)], layout="lines")
    train, apart = sides(corpus, choose_validation(corpus, 0.05))
    assert sorted([*train, *apart]) == sorted(document.sentences for document in corpus.documents())


def test_neighbouring_stretches_on_one_side_stay_one_document(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(lines(3_000))
    corpus = Corpus([str(tmp_path)], layout="lines")
    train, apart = sides(corpus, choose_validation(corpus, 0.05))
    assert 5 <= len(apart) <= 20
    assert len(train) <= len(apart) + 1
    assert len(max(train, key=len)) > 100


def test_the_order_of_files_and_documents_changes_nothing(tmp_path: Path) -> None:
    texts = [lines(3 + 7 * (number % 9), 1_000 * number) for number in range(40)] + [lines(2_000, 90_000)]
    found = []
    for order in (texts, texts[::-1]):
        folder = tmp_path / str(len(found))
        folder.mkdir()
        for number, text in enumerate(order):
            (folder / f"{number:03}.txt").write_text(text)
        corpus = Corpus([str(folder)], layout="lines")
        found.append(sorted(sides(corpus, choose_validation(corpus, 0.05))[1]))
    assert found[0] == found[1]


def test_documents_that_are_there_twice_count_once(tmp_path: Path) -> None:
    texts = [lines(20, 100 * number) for number in range(50)]
    (tmp_path / "once.txt").write_text("\n".join(texts))
    (tmp_path / "twice.txt").write_text("\n".join([*texts, *texts[:25] * 8]))
    plans = [
        choose_validation(Corpus([str(tmp_path / name)], layout="lines"), 0.05) for name in ("once.txt", "twice.txt")
    ]
    assert plans[0] == plans[1]


def test_standard_input_is_copied_so_that_it_can_be_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(lines(400))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines(400).encode())))
    piped, named = Corpus(["-"], layout="lines"), Corpus([str(tmp_path / "a.txt")], layout="lines")
    plan = choose_validation(piped, 0.05)
    assert plan == choose_validation(named, 0.05)
    assert sides(piped, plan) == sides(named, plan)
    assert piped.bytes == named.bytes
    assert piped.estimated_words == named.estimated_words


def test_a_large_corpus_is_read_once_and_cut_into_stretches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "LARGE_VALIDATION_BYTES", 20_000)
    monkeypatch.setattr(validation, "LARGE_LONG", 60)
    monkeypatch.setattr(validation, "LARGE_STRETCH", 30)
    (tmp_path / "a.txt").write_text(lines(8_000))
    corpus = Corpus([str(tmp_path)], layout="lines")
    plan = choose_validation(corpus, 0.05)
    assert corpus.progress == 0.0  # nothing has been read
    train, apart = sides(corpus, plan)
    assert weight(apart) == pytest.approx(0.05 * weight([*train, *apart]), rel=0.1)


def test_more_documents_than_are_kept_give_the_same_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "MAX_STORED_SIZES", 1 << 9)
    made = [(document_key(blake2b(bytes([at % 256, at // 256])).digest()), 50 + at % 100) for at in range(4_000)]
    plans = []
    for order in (made, made[::-1]):
        counted = UnitSizes(0.05)
        for key, size in order:
            counted.add(key, size, [])
        keys, sizes = counted.units(1e9, 1e9)
        assert len(keys) < 0.2 * len(made)
        plans.append(Validation(*choose_units(keys, sizes, 0.05 * counted.size)))
    taken = sum(size for key, size in made if plans[0].contains(key))
    assert taken == pytest.approx(0.05 * counted.size, rel=0.02)
    assert plans[0] == plans[1]


def test_text_of_which_no_sentence_was_measured_keeps_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "MAX_STORED_SIZES", 1_000)
    monkeypatch.setattr(validation, "MAX_SPLIT_BYTES", 1_000)
    (tmp_path / "a.txt").write_text(lines(9_000))
    (tmp_path / "b.txt").write_text("\n\n".join(lines(7, 7 * at).replace("\n", " ") for at in range(2_000, 3_000)))
    corpus = Corpus([str(tmp_path)])
    train, apart = sides(corpus, choose_validation(corpus, 0.05))
    assert corpus.layouts == {str(tmp_path / "a.txt"): "lines", str(tmp_path / "b.txt"): "running"}
    assert weight(apart) == pytest.approx(0.05 * weight([*train, *apart]), rel=0.1)


@pytest.mark.parametrize("share", [1e-9, 0.5, 0.999])
@pytest.mark.parametrize("units", [2, 3, 7])
def test_neither_side_is_ever_empty(units: int, share: float) -> None:
    chance = np.random.default_rng(units)
    for _ in range(50):
        keys = chance.integers(0, 2**63, units).astype(np.uint64)
        sizes = chance.integers(1, 1_000, units).astype(np.float64)
        plan = Validation(*choose_units(keys, sizes, share * float(sizes.sum())))
        assert 0 < sum(map(plan.contains, keys.tolist())) < units


def test_progress_of_the_first_reading_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "REPORT_BYTES", 1_000)
    (tmp_path / "a.txt").write_text(documents([10] * 50))
    reported: list[float] = []
    choose_validation(Corpus([str(tmp_path)], layout="lines"), 0.05, reported.append)
    assert reported == sorted(reported)
    assert len(reported) > 10
