"""A subject: a model under inspection, with what is shown of it."""

from dataclasses import dataclass
from typing import Any

from bertsmith.models.elmo import Elmo
from bertsmith.models.recurrent import Recurrent
from bertsmith.models.static import Static
from bertsmith.nn.pooling import Pooling
from bertsmith.objectives.base import Objective
from bertsmith.text.tokenizer import Tokenizer

ARCHITECTURES = {"seq2seq": "encoder_decoder", "elmo": "bilm"}  # by what a page draws of them


@dataclass(frozen=True)
class Subject:
    """A network with its heads and its tokenizer, and the facts by which people know it."""

    name: str
    kind: str  # such as bert
    purpose: str  # its task, or how it was pretrained
    objective: Objective
    tokenizer: Tokenizer
    has_lm_head: bool = True  # whether the weights of a prediction head were trained
    pooling: Pooling = "mean"  # by which it embeds sentences

    @property
    def parameters(self) -> int:
        """The number of weights, with those of the heads."""
        return sum(weight.numel() for weight in self.objective.parameters())

    def figures(self) -> dict[str, Any]:
        """The facts as JSON values."""
        config: Any = self.objective.trunk.config
        attends = not isinstance(self.objective.trunk, Recurrent | Elmo | Static)
        return {
            "name": self.name,
            "kind": self.kind,
            "architecture": ARCHITECTURES.get(config.architecture, config.architecture),
            "layers": config.layers,
            "heads": getattr(config, "heads", 1) if attends else 0,
            "width": config.width,
            "parameters": self.parameters,
            "purpose": self.purpose,
        }
