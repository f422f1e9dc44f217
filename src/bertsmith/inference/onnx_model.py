"""A model whose network is an ONNX graph: the same calls on texts, computed by ONNX Runtime."""

from typing import Any, NoReturn

import torch
from torch import Tensor

from bertsmith.data.batch import Tokens
from bertsmith.errors import FolderError, RecipeError
from bertsmith.inference.embedder import Embedder
from bertsmith.inference.fill import MaskPredictor
from bertsmith.inference.inputs import short_repr
from bertsmith.inference.model import Model
from bertsmith.inference.onnx_session import Graph, GraphTrunk
from bertsmith.models.transformer import Transformer
from bertsmith.objectives.base import Objective
from bertsmith.text.tokenizer import Tokenizer

REMEDY = "Load the model folder that it was exported from"


class OnnxModel(Model):
    """A model of an exported folder: fill-mask, embeddings and the tasks of fine-tuning.

    >>> exported = bertsmith.export("runs/reviews", "runs/reviews-onnx").model
    >>> exported.predict("I liked it.").label == bertsmith.load("runs/reviews").predict("I liked it.").label
    True
    """

    def __init__(self, graph: Graph, objective: Objective, tokenizer: Tokenizer, path: str, **options: Any) -> None:
        super().__init__(objective, tokenizer, path, **options)
        self.graph = graph
        if graph.gives_vectors:
            assert isinstance(objective.trunk, Transformer)
            objective.trunk = GraphTrunk(objective.trunk.config, graph)

    def __repr__(self) -> str:
        return super().__repr__().replace("Model(", "OnnxModel(", 1)

    @property
    def device(self) -> torch.device:
        """The CPU."""
        return torch.device("cpu")

    def task_outputs(self, tokens: Tokens) -> list[Tensor]:
        """The outputs of the graph for each sequence."""
        return self.graph.sequence_outputs(tokens)

    def mask_predictor(self) -> MaskPredictor:
        """The logits of the graph at masked positions."""
        super().masked_lm("Blanks")
        return self.graph.logits_at

    def embedder(self, **options: Any) -> Embedder:
        """The graph prepared for sentence embeddings."""
        if not self.graph.gives_vectors:
            raise FolderError(self.path, "has a graph of logits, not of vectors", REMEDY)
        if options.get("precision", "auto") != "auto":
            raise RecipeError("precision", f"is {short_repr(options['precision'])}", "A graph has a precision already")
        return super().embedder(**options)

    def save(self, folder: Any) -> NoReturn:
        """Refused: a graph is no model folder."""
        self._refuse("saved")

    def subject(self, name: str = "") -> NoReturn:
        """Refused: a graph shows its outputs alone."""
        self._refuse("inspected")

    def language_model(self) -> NoReturn:
        """Refused: scores mask every token in turn, which a graph of all logits is slow at."""
        self._refuse("asked for scores")

    def masked_lm(self, purpose: str = "Scores") -> NoReturn:
        """Refused: there is no network."""
        self._refuse("used as a network")

    def _refuse(self, use: str) -> NoReturn:
        raise FolderError(self.path, f"is an ONNX graph, which cannot be {use}", REMEDY)
