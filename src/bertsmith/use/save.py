"""Saving: a model in memory as a model folder, which bertsmith and transformers open."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from bertsmith.data import files
from bertsmith.models import folder as folders
from bertsmith.models import sentence as sentences
from bertsmith.models.dialects import dialect_of
from bertsmith.models.folder import Opened
from bertsmith.models.foreign import Learnt
from bertsmith.models.sentence import SentenceConfig
from bertsmith.objectives.base import Objective
from bertsmith.text.tokenizer import Tokenizer

OURS = ("bertsmith", "pairs")  # in config.json: what transformers has no words for
CARD = "README.md"


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What the folder that a model was opened from says besides the weights of its objective."""

    folder: Path
    learnt: Learnt | None
    names: frozenset[str]  # of the weights it held: what it lacked is not learnt, and not to be saved
    rest: dict[str, Tensor] = field(repr=False)  # weights that the objective has no use for, as a pooler
    extra: dict[str, Any]

    @classmethod
    def of(cls, folder: Path, opened: Opened, objective: Objective) -> "Origin":
        own = objective.state_dict().keys()
        rest = {name: weight for name, weight in opened.state.items() if name not in own}
        extra = {name: opened.raw[name] for name in OURS if name in opened.raw}
        return cls(folder=folder, learnt=opened.learnt, names=frozenset(opened.state), rest=rest, extra=extra)


def save(
    objective: Objective, tokenizer: Tokenizer, sentence: SentenceConfig | None, origin: Origin, folder: Path
) -> None:
    """A model folder with the weights as they are now; the card is that of the folder it came from."""
    shape = objective.trunk.config
    held = {name: weight for name, weight in objective.state_dict().items() if name in origin.names}
    extra = {**tokenizer.numbers(dialect_of(shape).specials), **origin.extra}
    with folders.writing(folder) as place:
        folders.write(place, shape, {**held, **origin.rest}, extra, origin.learnt)
        tokenizer.save(place, length=shape.length, segments=shape.segments > 1)
        if sentence is not None:
            sentences.write(place, sentence, shape.width)
        if (card := origin.folder / CARD).is_file():
            files.write(place / CARD, card.read_bytes())
