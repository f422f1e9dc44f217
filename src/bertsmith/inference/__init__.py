"""Inference: `load` opens a model folder as a `model`, whose calls are fill-mask (`fill`), embeddings (`embedder`,
`semantic_search`), log-likelihood (`likelihood`), minimal pairs, generation (`generate`), translation (`translate`),
few-shot prompting (`few_shot`) and the predictions of its task. `word_vectors` has neighbours and analogies.
"""

from bertsmith.inference.fill import FilledText, WordPrediction
from bertsmith.inference.load import load
from bertsmith.inference.model import Model

__all__ = ["FilledText", "Model", "WordPrediction", "load"]
