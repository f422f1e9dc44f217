"""Opening a model folder: ours, or any BERT that Hugging Face's tools have written."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch

from bertsmith.errors import FolderError
from bertsmith.models import folder as folders
from bertsmith.models.transformer import Transformer
from bertsmith.objectives.base import Objective
from bertsmith.objectives.masked import MaskedLM
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.use.fill import Filled, fill


class Model:
    """A trained model in a person's hands."""

    def __init__(self, objective: Objective, tokenizer: Tokenizer, place: str, *, guesses: bool = True) -> None:
        self.objective, self.tokenizer, self.place = objective, tokenizer, place
        self.guesses = guesses  # whether there is a masked-word head that has learnt something

    def fill(self, text: str, top: int = 5) -> Filled:
        """The best words for every blank of a text."""
        return self.fill_all([text], top)[0]

    def fill_all(self, texts: Sequence[str], top: int = 5) -> list[Filled]:
        """The same for many texts, in order."""
        if not self.guesses or not isinstance(self.objective, MaskedLM):
            raise FolderError(self.place, "has no masked-word head", "Blanks need a model pretrained on masked words")
        return fill(self.objective, self.tokenizer, texts, top)


def load(folder: str | Path, device: str = "cpu") -> Model:
    """The model in a folder with config.json, model.safetensors and tokenizer.json."""
    path = Path(folder)
    opened = folders.read(path)
    tokenizer = Tokenizer.load(path)
    if tokenizer.vocabulary > opened.config.vocabulary:
        fact = f"the tokenizer has {tokenizer.vocabulary} pieces, the model {opened.config.vocabulary}"
        raise FolderError(path, fact, "The two do not belong together")
    with torch.device("meta"):
        pairs: Literal["next", "none"] = "next" if {"pooler", "next"} <= opened.parts else "none"
        objective = MaskedLM(Transformer(opened.config), MaskedLM.Config(pairs=pairs))
    objective.to_empty(device=device)
    objective.load_state_dict(opened.state, strict=False)
    return Model(objective.eval(), tokenizer, str(path), guesses="head" in opened.parts)
