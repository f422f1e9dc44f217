"""Saving: a model in memory as a model folder, which bertsmith and transformers open."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from bertsmith import files
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf import sentence_transformers as sentences
from bertsmith.models.hf.finetuned import FinetunedTask
from bertsmith.models.hf.folder import ModelFolder
from bertsmith.models.hf.layouts import layout_of
from bertsmith.models.hf.sentence_transformers import SentenceConfig
from bertsmith.objectives.base import Objective
from bertsmith.text.tokenizer import Tokenizer

OWN_CONFIG_KEYS = ("bertsmith", "pairs")  # in config.json: what transformers has no words for
MODEL_CARD = "README.md"


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What the folder that a model was opened from says besides the weights of its objective."""

    folder: Path
    learnt: FinetunedTask | None
    weight_names: frozenset[str]  # of the weights it held: what it lacked is not learnt, and not to be saved
    unused_weights: dict[str, Tensor] = field(repr=False)  # weights that the objective has no use for, as a pooler
    extra_config: dict[str, Any]

    @classmethod
    def of(cls, folder: Path, opened: ModelFolder, objective: Objective) -> "Origin":
        own = objective.state_dict().keys()
        rest = {name: weight for name, weight in opened.state_dict.items() if name not in own}
        extra = {name: opened.config_json[name] for name in OWN_CONFIG_KEYS if name in opened.config_json}
        return cls(
            folder=folder,
            learnt=opened.finetuned,
            weight_names=frozenset(opened.state_dict),
            unused_weights=rest,
            extra_config=extra,
        )


def save(
    objective: Objective, tokenizer: Tokenizer, sentence: SentenceConfig | None, origin: Origin, folder: Path
) -> None:
    """A model folder with the weights as they are now; the card is that of the folder it came from."""
    shape = objective.trunk.config
    held = {name: weight for name, weight in objective.state_dict().items() if name in origin.weight_names}
    extra = {**tokenizer.special_ids(layout_of(shape).special_tokens), **origin.extra_config}
    with folders.atomic_folder(folder) as place:
        folders.write(place, shape, {**held, **origin.unused_weights}, extra, origin.learnt)
        tokenizer.save(place, max_length=shape.max_length, segments=shape.segments > 1)
        if sentence is not None:
            sentences.write(place, sentence, shape.width)
        if (card := origin.folder / MODEL_CARD).is_file():
            files.write(place / MODEL_CARD, card.read_bytes())
