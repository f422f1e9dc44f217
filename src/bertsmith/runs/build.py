"""The parts of a pretraining run, as its recipe describes them: text, network with heads, and feed."""

import sys
from dataclasses import replace

import torch

from bertsmith import terminal
from bertsmith.data.batch import Batch
from bertsmith.data.feed import Feed
from bertsmith.data.packing.pack import Packer
from bertsmith.data.packing.plan import Pairs
from bertsmith.data.packing.streams import Streams
from bertsmith.data.shards.shards import Shards
from bertsmith.data.shards.verification import verify
from bertsmith.errors import FolderError, RecipeError
from bertsmith.models.hf.layouts import layout_of
from bertsmith.models.networks import NetworkConfig, build_network
from bertsmith.nn.init import initialise
from bertsmith.objectives import OBJECTIVES
from bertsmith.objectives.base import Pretraining
from bertsmith.recipe import Recipe
from bertsmith.runs.warm_start import warm_start
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.train import checkpoint
from bertsmith.train.evaluate import EVALUATION_SHARE

CONSOLE = terminal.console()
MIN_VALIDATION_TOKENS = 32_768  # of validation text, of which fewer would say little
VALIDATION_SEED = 1  # validation is masked once and for all, whatever the run's own seed


def load_data(recipe: Recipe) -> tuple[Tokenizer, Shards, Shards]:
    """The tokenizer, the training text and the validation text of a prepared folder, their verification begun."""
    folder = recipe.data.folder
    if not folder.is_dir():
        raise FolderError(
            folder, "there is no such folder", "Make it with: bertsmith prepare TEXT --out " + str(folder)
        )
    tokenizer = Tokenizer.load(folder / "tokenizer")
    train, valid = Shards(folder / "train"), Shards(folder / "valid")
    for shards in (train, valid):
        shards.check_tokenizer(tokenizer.fingerprint)
        if (running := verify(shards)).is_running:
            CONSOLE.print(
                f"verifying {running.bytes / 1e9:,.1f} GB of {shards.folder} beside the first steps", markup=False
            )
    return tokenizer, train, valid


def objective(recipe: Recipe, tokenizer: Tokenizer) -> Pretraining:
    """The network with its heads, at its first weights: the same seed gives the same ones."""
    shape = replace(recipe.model.settings, vocabulary=tokenizer.vocabulary)
    if shape.position_offset and tokenizer.padding_id != shape.position_offset - 1:
        fact = f"{recipe.model.kind} counts places from behind a padding piece of number {shape.position_offset - 1}"
        remedy = "Train the tokenizer with --kind bpe, and prepare the text again"
        raise RecipeError("model.kind", f"{fact}, and here it has number {tokenizer.padding_id}", remedy)
    objective = untrained_objective(recipe, shape)
    initialise(objective, recipe.train.seed)
    if recipe.start is not None and checkpoint.load_newest(recipe.out / "checkpoints") is None:
        for line in warm_start(objective, recipe.start, tokenizer):
            CONSOLE.print(line)
    objective.bind(tokenizer)
    return objective


def untrained_objective(recipe: Recipe, shape: NetworkConfig) -> Pretraining:
    """The network with its heads. One that could not be saved is refused before it is trained."""
    layout_of(shape)
    objective = OBJECTIVES[recipe.objective.kind](build_network(shape), recipe.objective.settings)
    for part in objective.exports.values():
        layout_of(part.trunk.config)
    return objective


def feed(recipe: Recipe, objective: Pretraining, tokenizer: Tokenizer, train: Shards) -> Feed:
    source = _streams if objective.stateful else _pack
    text = source(recipe, tokenizer, train, objective.pairs, recipe.train.seed)
    return Feed(text, objective.collator(tokenizer), train.fingerprint, recipe.data.workers, verify(train))


def validation_batches(
    recipe: Recipe,
    objective: Pretraining,
    tokenizer: Tokenizer,
    valid: Shards,
    device: torch.device,
    train: Shards | None = None,
) -> list[Batch]:
    """The validation text once through, its masks fixed once and for all; less of it where the run itself is short."""
    # Where no document has two sentences there is no pair, and one document alone has no other to pair with.
    alone = valid.sentences == valid.documents or (objective.pairs == "nsp" and valid.documents == 1)
    pairs: Pairs = "none" if alone else objective.pairs
    source = _streams if objective.stateful else _pack
    text = source(recipe, tokenizer, valid, pairs, VALIDATION_SEED, once=True)
    collate = objective.collator(tokenizer)
    most = min(max(1, recipe.data.validation_tokens // text.batch_tokens), _max_validation_batches(recipe, train))
    return [collate(text(position)).to(device) for position in range(min(most, text.batches()))]


def _max_validation_batches(recipe: Recipe, train: Shards | None) -> int:
    """How many batches one evaluation may take, so that all take a small share of the run.

    A batch costs a third in evaluation of what it costs in training. Of a run that time bounds this is measured later.
    """
    length = recipe.train
    if length.steps is not None:
        updates = float(length.steps)
    elif length.epochs is not None and train is not None:
        updates = length.epochs * train.tokens / (recipe.data.batch_tokens * length.gradient_accumulation)
    else:
        return sys.maxsize
    batches = 3 * EVALUATION_SHARE * updates * length.gradient_accumulation / (length.evaluations + 2)
    return max(int(batches), -(-MIN_VALIDATION_TOKENS // recipe.data.batch_tokens))


def _pack(recipe: Recipe, tokenizer: Tokenizer, shards: Shards, pairs: Pairs, seed: int, once: bool = False) -> Packer:
    return Packer(
        shards,
        max_length=recipe.data.max_length,
        batch_tokens=recipe.data.batch_tokens,
        pairs=pairs,
        seed=seed,
        start=tokenizer.roles.get("start", tokenizer.padding_id),  # T5 has none, and takes off what it is given
        stop=tokenizer.stop_id,
        padding=tokenizer.padding_id,
        cross_documents=recipe.data.cross_documents,
        once=once,
    )


def _streams(
    recipe: Recipe, tokenizer: Tokenizer, shards: Shards, pairs: Pairs, seed: int, once: bool = False
) -> Streams:
    start = tokenizer.roles.get("start", tokenizer.stop_id)
    return Streams(
        shards,
        length=recipe.data.max_length,
        tokens=recipe.data.batch_tokens,
        seed=seed,
        # One piece where it both ends a text and begins one; a person's prompt begins as texts did here.
        separator=(tokenizer.stop_id,) if start == tokenizer.stop_id else (tokenizer.stop_id, start),
        padding_id=tokenizer.padding_id,
        state_reset=recipe.objective.settings.state_reset,
        once=once,
    )
