"""Saving a loaded model as a model folder, which bertsmith and transformers open."""

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

OWN_CONFIG_KEYS = ("bertsmith", "pairs")  # keys of config.json that transformers does not have
MODEL_CARD = "README.md"


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The parts of a model folder besides the weights of its objective, kept for saving."""

    folder: Path
    finetuned: FinetunedTask | None
    weight_names: frozenset[str]  # of the weights in the folder: weights that it lacked are not trained, and not saved
    unused_weights: dict[str, Tensor] = field(repr=False)  # weights that the objective does not use, such as a pooler
    extra_config: dict[str, Any]

    @classmethod
    def of(cls, folder: Path, opened: ModelFolder, objective: Objective) -> "Origin":
        own = objective.state_dict().keys()
        rest = {name: weight for name, weight in opened.state_dict.items() if name not in own}
        extra = {name: opened.config_json[name] for name in OWN_CONFIG_KEYS if name in opened.config_json}
        return cls(
            folder=folder,
            finetuned=opened.finetuned,
            weight_names=frozenset(opened.state_dict),
            unused_weights=rest,
            extra_config=extra,
        )


def save(
    objective: Objective, tokenizer: Tokenizer, sentence: SentenceConfig | None, origin: Origin, folder: Path
) -> None:
    """Write a model folder with the present weights, and the model card of the original folder."""
    shape = objective.trunk.config
    held = {name: weight for name, weight in objective.state_dict().items() if name in origin.weight_names}
    extra = {**tokenizer.special_ids(layout_of(shape).special_tokens), **origin.extra_config}
    with folders.atomic_folder(folder) as target:
        folders.write(target, shape, {**held, **origin.unused_weights}, extra, origin.finetuned)
        tokenizer.save(target, max_length=shape.max_length, segments=shape.segments > 1 and tokenizer.marks_pairs)
        if sentence is not None:
            sentences.write(target, sentence, shape.width)
        if (card := origin.folder / MODEL_CARD).is_file():
            files.write(target / MODEL_CARD, card.read_bytes())
