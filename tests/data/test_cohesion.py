"""Lexical cohesion: sentences that follow each other are told from lines that stand for themselves."""

from pathlib import Path

import numpy as np
import pytest
from tiny import NOUNS, PLACES, VERBS, prepared

from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.shards import cohesion
from bertsmith.data.shards.prepare import prepare
from bertsmith.data.shards.shards import Shards
from bertsmith.text.tokenizer import TokenizerConfig, train


def shards_of(lines: list[str], folder: Path) -> Shards:
    folder.mkdir()
    (folder / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    corpus = Corpus([str(folder / "text.txt")], layout="lines")
    words = train(corpus.lines(), TokenizerConfig(vocabulary=100, min_frequency=1))
    prepare(corpus, words, folder / "data", validation_share=0.1, workers=1)
    return Shards(folder / "data" / "train")


def test_sentences_about_one_thing_are_cohesive(tmp_path: Path) -> None:
    shards = Shards(prepared(tmp_path) / "train")
    neighbours, strangers = cohesion.shared_information(shards)
    assert len(neighbours) == len(strangers) > 100
    assert neighbours.mean() > 1.2 * strangers.mean()
    assert cohesion.is_cohesive(shards)


@pytest.mark.slow("prepares and pairs 3,000 sentences")
def test_lines_that_stand_for_themselves_are_not(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    captions = [
        f"the {generator.choice(NOUNS)} {generator.choice(VERBS)} the {generator.choice(NOUNS)} "
        f"in the {generator.choice(PLACES)} number {number} ."
        for number in range(3_000)
    ]
    assert not cohesion.is_cohesive(shards_of(captions, tmp_path / "captions"))


def test_a_single_document_has_no_strangers(tmp_path: Path) -> None:
    shards = Shards(prepared(tmp_path) / "train")
    shards.document_ends = np.array([shards.sentences])
    assert [len(part) for part in cohesion.shared_information(shards)] == [0, 0]
    assert not cohesion.is_cohesive(shards)
