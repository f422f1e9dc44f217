"""word2vec: two embedding tables, of words as inputs and of words as predictions. Mikolov et al. 2013.

A model folder holds `config.json`, both tables in `vectors.safetensors`, the words with their counts in `words.tsv`,
and the input table in word2vec's own format, `vectors.bin`, for other tools.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import safetensors.torch
import torch
from jaxtyping import Float, Int64
from safetensors import SafetensorError
from torch import Tensor

from bertsmith import files
from bertsmith.config import build
from bertsmith.errors import FolderError
from bertsmith.files import file_inside, short_repr
from bertsmith.models import word_vectors
from bertsmith.models.hf import manifest
from bertsmith.models.hf.folder import atomic_folder, model_folder
from bertsmith.models.word_vectors import WordVectors

KIND = "word2vec"
CONFIG, WEIGHTS, WORDS, WORD2VEC_FILE = "config.json", "vectors.safetensors", "words.tsv", "vectors.bin"


@dataclass(frozen=True, kw_only=True)
class Word2VecConfig:
    """The architecture of word2vec and the width of its vectors."""

    kind: Literal["skip-gram", "cbow"] = "skip-gram"  # a word predicts its neighbours, or they together predict it
    width: int = 100  # numbers of a vector

    def __post_init__(self) -> None:
        if not 0 < self.width <= word_vectors.MAX_WIDTH:
            raise ValueError(f"width is {self.width}. Give 1 to {word_vectors.MAX_WIDTH}")


@dataclass(frozen=True)
class Word2Vec:
    """Two vectors for each word: the input vector, which is the word vector people use, and the output vector."""

    config: Word2VecConfig
    inputs: Float[Tensor, "V D"]
    outputs: Float[Tensor, "V D"]

    @classmethod
    def initialise(
        cls, config: Word2VecConfig, vocabulary: int, seed: int, device: torch.device | str = "cpu"
    ) -> "Word2Vec":
        """As word2vec initialises: inputs uniform in +-0.5 / width, outputs zero."""
        generator = torch.Generator().manual_seed(seed)
        inputs = (torch.rand(vocabulary, config.width, generator=generator) - 0.5) / config.width
        return cls(config, inputs.to(device), torch.zeros_like(inputs, device=device))


@dataclass(frozen=True)
class Word2VecFolder:
    """The contents of a word2vec folder."""

    model: Word2Vec
    words: list[str]
    counts: Int64[np.ndarray, " V"]


def write(folder: Path, model: Word2Vec, words: list[str], counts: Int64[np.ndarray, " V"]) -> None:
    """Write a model folder, in one move."""
    inputs, outputs = (table.detach().cpu().contiguous() for table in (model.inputs, model.outputs))
    lines = "".join(f"{word}\t{count}\n" for word, count in zip(words, counts.tolist(), strict=True))
    with atomic_folder(folder) as fresh:
        files.write(fresh / WEIGHTS, safetensors.torch.save({"inputs": inputs, "outputs": outputs}, {"format": "pt"}))
        files.write(fresh / WORDS, lines.encode())
        word_vectors.write(fresh / WORD2VEC_FILE, WordVectors(words, inputs.numpy()))
        config_json = {"model_type": KIND, **asdict(model.config), "vocabulary": len(words)}
        files.write(fresh / CONFIG, (json.dumps(config_json, indent=1) + "\n").encode())


def read(folder: Path) -> Word2VecFolder:
    """Open a folder of `write`, or the run that holds one."""
    folder = model_folder(folder)
    if not folder.is_dir():
        raise FolderError(folder, "is not a folder" if folder.exists() else "is missing")
    manifest.verify(folder)
    config_json = files.read_json(file_inside(folder, CONFIG))
    if config_json.pop("model_type", None) != KIND:
        remedy = "Search texts with --corpus FILE, or make word vectors with bertsmith word2vec"
        raise FolderError(folder, "holds no word vectors", remedy)
    vocabulary = config_json.pop("vocabulary", None)
    config = build(config_json, Word2VecConfig, str(folder / CONFIG))
    words, counts = _read_words(file_inside(folder, WORDS))
    try:
        tables = safetensors.torch.load(file_inside(folder, WEIGHTS).read_bytes())
    except (SafetensorError, OSError) as error:
        raise FolderError(folder / WEIGHTS, f"is not a sound safetensors file: {short_repr(str(error))}") from None
    for name in ("inputs", "outputs"):
        shape = list(tables[name].shape) if name in tables else []
        if shape != [vocabulary, config.width] or vocabulary != len(words):
            fact = f"'{name}' has shape {shape} for {len(words):,} words of {config.width} numbers"
            raise FolderError(folder / WEIGHTS, fact, "The files of this folder are of different models")
    return Word2VecFolder(Word2Vec(config, tables["inputs"].float(), tables["outputs"].float()), words, counts)


def load_vectors(path: Path) -> WordVectors:
    """Word vectors of a word2vec folder, or of any file in word2vec's or GloVe's formats."""
    if path.is_dir():
        stored = read(path)
        return WordVectors(stored.words, stored.model.inputs.numpy())
    return word_vectors.read(path)


def _read_words(path: Path) -> tuple[list[str], Int64[np.ndarray, " V"]]:
    try:
        rows = [line.split("\t") for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
        return [word for word, _ in rows], np.array([int(count) for _, count in rows], np.int64)
    except (ValueError, OverflowError):  # not UTF-8, not two columns, or a count that is not a number
        raise FolderError(path, "is not a list of words and counts") from None
