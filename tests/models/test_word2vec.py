"""The folder of word2vec: written and read again, opened by other tools, and refused if it is broken."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from bertsmith.errors import BertsmithError, FolderError
from bertsmith.models import word2vec, word_vectors
from bertsmith.models.word2vec import Word2Vec, Word2VecConfig

WORDS, COUNTS = ["the", "naïve", "cat's"], np.array([9, 5, 5])


def saved(folder: Path) -> Word2Vec:
    model = Word2Vec.initialise(Word2VecConfig(kind="cbow", width=4), len(WORDS), seed=3)
    model.outputs.normal_(generator=torch.Generator().manual_seed(0))
    word2vec.write(folder, model, WORDS, COUNTS)
    return model


def test_a_written_folder_is_read_again(tmp_path: Path) -> None:
    model = saved(tmp_path / "model")
    saved(tmp_path / "model")  # an older one is replaced
    opened = word2vec.read(tmp_path / "model")
    assert opened.model.config == model.config
    assert torch.equal(opened.model.inputs, model.inputs)
    assert torch.equal(opened.model.outputs, model.outputs)
    assert (opened.words, opened.counts.tolist()) == (WORDS, COUNTS.tolist())
    field = word_vectors.read(tmp_path / "model" / "vectors.bin")
    for found in (
        field,
        word2vec.load_vectors(tmp_path / "model"),
        word2vec.load_vectors(tmp_path / "model" / "vectors.bin"),
    ):
        assert found.words == WORDS
        assert np.array_equal(found.table, model.inputs.numpy())


def test_tables_are_initialised_as_in_word2vec() -> None:
    model = Word2Vec.initialise(Word2VecConfig(width=50), 1_000, seed=1)
    assert model.inputs.abs().max() <= 0.5 / 50
    assert model.inputs.std() == pytest.approx(1 / 50 / 12**0.5, rel=0.02)
    assert not model.outputs.any()
    assert torch.equal(model.inputs, Word2Vec.initialise(Word2VecConfig(width=50), 1_000, seed=1).inputs)
    assert not torch.equal(model.inputs, Word2Vec.initialise(Word2VecConfig(width=50), 1_000, seed=2).inputs)


def _change(folder: Path, **changes: object) -> None:
    said = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(said | changes))


@pytest.mark.parametrize(
    ("harm", "fact"),
    [
        (lambda folder: _change(folder, model_type="bert"), "holds no word vectors"),
        (lambda folder: _change(folder, width=5), "'inputs' has shape [3, 4] for 3 words of 5 numbers"),
        (lambda folder: _change(folder, vocabulary=4), "'inputs' has shape [3, 4]"),
        (lambda folder: _change(folder, widht=5), "unknown key 'widht'"),
        (lambda folder: _change(folder, width=0), "width is 0"),
        (lambda folder: (folder / "words.tsv").unlink(), "words.tsv: is missing"),
        (lambda folder: (folder / "words.tsv").write_bytes(b"the\t9\n"), "for 1 words"),
        (lambda folder: (folder / "words.tsv").write_bytes(b"the 9\n"), "is not a list of words and counts"),
        (lambda folder: (folder / "words.tsv").write_bytes(b"\xff\t9\n"), "is not a list of words and counts"),
        (lambda folder: (folder / "words.tsv").write_bytes(b"the\tnine\n"), "is not a list of words and counts"),
        (lambda folder: (folder / "vectors.safetensors").write_bytes(b"abc"), "is not a sound safetensors file"),
        (lambda folder: (folder / "config.json").write_bytes(b"{"), "cannot be read as JSON"),
    ],
)
def test_a_broken_folder_is_refused_in_one_line(tmp_path: Path, harm: object, fact: str) -> None:
    saved(tmp_path / "model")
    (tmp_path / "model/MANIFEST.json").unlink()  # as in a folder that was made by hand
    assert callable(harm)
    harm(tmp_path / "model")
    with pytest.raises(BertsmithError) as caught:
        word2vec.read(tmp_path / "model")
    assert fact in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_path_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="is missing"):
        word2vec.read(tmp_path / "nowhere")
    with pytest.raises(FolderError, match="is missing"):
        word2vec.load_vectors(tmp_path / "nowhere")
