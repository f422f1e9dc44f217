"""Warm start (continued pretraining) from a model folder, with new text, longer sequences or new tokens."""

import re
from dataclasses import fields
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from bertsmith.errors import FolderError, RecipeError
from bertsmith.models.hf import folder as folders
from bertsmith.models.networks import NetworkConfig
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.objectives.base import Pretraining
from bertsmith.text.tokenizer import Tokenizer

MAY_DIFFER = ("vocabulary", "max_length", "dropout", "attention_dropout")  # between the recipe and the folder
# Weights with one row for each token of the vocabulary.
VOCABULARY_WEIGHTS = re.compile(r"trunk\.(\w+\.)?(embedding|lm_head)\.weight|(mlm_head|trunk)\.bias")
STREAM_STATE = "_extra_state"  # where a recurrent network is in its streams, which no folder keeps
POSITION_TABLE = "trunk.positions.weight"


def warm_start(objective: Pretraining, folder: Path, tokenizer: Tokenizer) -> list[str]:
    """Load the weights of a folder into an objective of any vocabulary and length; return lines about the rest."""
    folder = folders.model_folder(folder)
    opened, before, shape = folders.read(folder), Tokenizer.load(folder), objective.trunk.config
    _check_same_network(opened.config, shape, folder)
    if before.vocabulary > opened.config.vocabulary:
        fact = f"the tokenizer has {before.vocabulary} tokens, the model {opened.config.vocabulary}"
        raise FolderError(folder, fact, "The two do not belong together")
    parents = _source_tokens(before, tokenizer)
    own, state, lines = objective.state_dict(), dict(opened.state_dict), [f"starting from {folder}"]
    for name in filter(VOCABULARY_WEIGHTS.fullmatch, opened.state_dict):
        state[name] = torch.stack([state[name][numbers].mean(0) for numbers in parents])
    if new := sum(tokenizer.piece(number) not in before.piece_ids for number in range(tokenizer.vocabulary)):
        lines.append(
            f"{new:,} of {tokenizer.vocabulary:,} tokens are new; each starts as the mean of its former tokens"
        )
    if (
        POSITION_TABLE in state
        and isinstance(shape, TransformerConfig)
        and shape.max_length != opened.config.max_length
    ):
        # Sinusoidal positions need no weights of the folder: they are defined for any length.
        state[POSITION_TABLE] = (
            _resize_positions(state[POSITION_TABLE], shape) if shape.learned else own[POSITION_TABLE]
        )
        lines.append(f"positions: {shape.max_length:,} instead of {opened.config.max_length:,}")
    missing = {name.partition(".")[0] for name in own.keys() - state.keys()} - {STREAM_STATE}
    if parts := sorted(missing):
        lines.append(f"randomly initialised, since the folder has none: {', '.join(parts)}")
    objective.load_state_dict({name: weight for name, weight in state.items() if name in own}, strict=False)
    return lines


def _check_same_network(saved: NetworkConfig, wanted: NetworkConfig, folder: Path) -> None:
    """Refuse a network that differs from the folder's in other ways than vocabulary, length and dropout."""
    if type(saved) is not type(wanted):
        raise RecipeError(
            "start", f"{folder} holds another kind of network than the recipe", "Set model.kind to its own"
        )
    names = [field.name for field in fields(saved) if field.name not in MAY_DIFFER]
    differ = [name for name in names if getattr(saved, name) != getattr(wanted, name)]
    if differ:
        has = ", ".join(f"{name} = {getattr(saved, name)}" for name in differ)
        fact = f"{folder} has {has}, the recipe {', '.join(str(getattr(wanted, name)) for name in differ)}"
        values = {name: getattr(saved, name) for name in differ}
        written = {name: str(one).lower() if isinstance(one, bool) else one for name, one in values.items()}
        raise RecipeError("start", fact, "Set " + " ".join(f"model.{name}={one}" for name, one in written.items()))


def _source_tokens(before: Tokenizer, after: Tokenizer) -> list[list[int]]:
    """For each token the old tokens whose mean it starts from: itself, the tokens it used to be split into, or all."""
    parents = [before.split_piece(after.piece(number)) for number in range(after.vocabulary)]
    for role, number in after.roles.items():  # special tokens by their role, whatever their names
        if role in before.roles:
            parents[number] = [before.roles[role]]
    return [numbers or list(range(before.vocabulary)) for numbers in parents]


def _resize_positions(table: Float[Tensor, "L D"], shape: TransformerConfig) -> Float[Tensor, "M D"]:
    """A longer table repeats the learned positions, as Longformer (Beltagy et al. 2020); a shorter one is cut."""
    unused, positions = table[: shape.position_offset], table[shape.position_offset :]
    times = -(-shape.max_length // len(positions))
    return torch.cat([unused, positions.repeat(times, 1)[: shape.max_length]])
