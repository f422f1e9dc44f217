"""The parts of a pretraining run, built from its recipe: tokenizer and shards, objective with its network, feed."""

import sys
from dataclasses import replace
from pathlib import Path

import torch

from bertsmith import terminal
from bertsmith.data.batch import TargetBatch
from bertsmith.data.feed import Feed
from bertsmith.data.packing.pack import Packer
from bertsmith.data.packing.pairs import Pairs
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
from bertsmith.runs.cooccurrence import initialise_embeddings
from bertsmith.runs.warm_start import warm_start
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.train import checkpoint
from bertsmith.train.evaluate import EVALUATION_SHARE

CONSOLE = terminal.console()
MIN_VALIDATION_TOKENS = 32_768  # fewer would make the validation loss too noisy
VALIDATION_SEED = 1  # fixed masks for validation, whatever the run's own seed


def load_data(recipe: Recipe) -> tuple[Tokenizer, Shards, Shards]:
    """The tokenizer, training shards and validation shards of a prepared folder; starts verifying their hashes."""
    folder = recipe.data.local
    _check_prepared(folder, recipe.start)
    tokenizer = Tokenizer.load(folder / "tokenizer")
    train, valid = Shards(folder / "train"), Shards(folder / "valid")
    for shards in (train, valid):
        shards.check_tokenizer(tokenizer.fingerprint)
        if (running := verify(shards)).is_running:
            CONSOLE.print(
                f"verifying {running.bytes / 1e9:,.1f} GB of {shards.folder} during the first steps", markup=False
            )
    return tokenizer, train, valid


def _check_prepared(folder: Path, start: Path | None) -> None:
    """Refuse a path that `prepare` did not write: a missing folder, text, or the folder of a run."""
    tokenizer = "TOKENIZER" if start is None else start
    if not folder.exists():
        remedy = f"Make it with: bertsmith prepare TEXT --tokenizer {tokenizer} --out {folder}"
        raise FolderError(folder, "there is no such folder", remedy)
    if folder.is_file() or not any((folder / name).is_dir() for name in ("tokenizer", "train", "valid")):
        if (folder / "data" / "train").is_dir():
            raise FolderError(folder, "is a run", f"Its prepared text is {folder / 'data'}")
        remedy = f"Prepare its text first: bertsmith prepare {folder} --tokenizer {tokenizer} --out DATA; "
        origin = "" if start is None else f"--from {start} "
        remedy += f"or do it all: bertsmith make {folder} {origin}--out RUN"
        raise FolderError(folder, "is not a folder that `bertsmith prepare` wrote", remedy)


def objective(recipe: Recipe, tokenizer: Tokenizer, text: Shards | None = None) -> Pretraining:
    """The objective with its network and heads, initialised from the seed, or from the model folder in `start`.

    `text`: the training text, from whose counts the embeddings are initialised if the recipe says so.
    """
    shape = replace(recipe.model.settings, vocabulary=tokenizer.vocabulary)
    if shape.position_offset and tokenizer.padding_id != shape.position_offset - 1:
        fact = f"{recipe.model.kind} counts positions from the padding id, which must be {shape.position_offset - 1}"
        remedy = "Train the tokenizer with --kind bpe, and prepare the text again"
        raise RecipeError("model.kind", f"{fact} and is {tokenizer.padding_id} here", remedy)
    objective = untrained_objective(recipe, shape)
    initialise(objective, recipe.train.seed)
    begins = checkpoint.load_newest(recipe.out / "checkpoints") is None
    if recipe.start is not None and begins:
        for line in warm_start(objective, recipe.start, tokenizer):
            CONSOLE.print(line)
    elif recipe.embeddings == "cooccurrence" and text is not None and begins:
        embedding = objective.trunk.embedding
        if embedding.num_embeddings != tokenizer.vocabulary:
            fact = f"{recipe.model.kind} has no embedding for each token, to start from counts of neighbours"
            raise RecipeError("embeddings", fact, "Set embeddings=random")
        initialise_embeddings(embedding, text, recipe.train.seed)
    objective.bind(tokenizer)
    return objective


def untrained_objective(recipe: Recipe, shape: NetworkConfig) -> Pretraining:
    """The objective with its network and heads, uninitialised. A network without a folder layout is refused here."""
    layout_of(shape)
    objective = OBJECTIVES[recipe.objective.kind](build_network(shape), recipe.objective.settings)
    for part in objective.exports.values():
        layout_of(part.trunk.config)
    return objective


def feed(recipe: Recipe, objective: Pretraining, tokenizer: Tokenizer, train: Shards) -> Feed:
    """The batches of a run: packed sequences, or streams for a recurrent language model."""
    source = _streams if objective.needs == "recurrent" else _pack
    text = source(recipe, tokenizer, train, objective.pairs, recipe.train.seed)
    return Feed(text, objective.collator(tokenizer), train.fingerprint, recipe.data.workers, verify(train))


def validation_batches(
    recipe: Recipe,
    objective: Pretraining,
    tokenizer: Tokenizer,
    valid: Shards,
    device: torch.device,
    train: Shards | None = None,
) -> list[TargetBatch]:
    """One pass over the validation text, with the same masks for every recipe; a part of it if the run is short."""
    # No pairs can be drawn where each document is one sentence, and for NSP where there is one document.
    alone = valid.sentences == valid.documents or (objective.pairs == "nsp" and valid.documents == 1)
    pairs: Pairs = "none" if alone else objective.pairs
    source = _streams if objective.needs == "recurrent" else _pack
    text = source(recipe, tokenizer, valid, pairs, VALIDATION_SEED, once=True)
    collate = objective.validation_collator(tokenizer)
    limit = min(max(1, recipe.data.validation_tokens // text.batch_tokens), _max_validation_batches(recipe, train))
    return [collate(text(position)).to(device) for position in range(min(limit, text.batches()))]


def _max_validation_batches(recipe: Recipe, train: Shards | None) -> int:
    """The maximum number of batches per evaluation, so that all evaluations take a small share of the run.

    A batch costs a third in evaluation of its cost in training. With a time budget the limit is measured later.
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
        # T5 has no start token; its objective removes the one given here.
        start_id=tokenizer.roles.get("start", tokenizer.padding_id),
        stop_id=tokenizer.stop_id,
        padding_id=tokenizer.padding_id,
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
        # One token if it both ends and begins a text; a prompt begins as the texts here did.
        separator=(tokenizer.stop_id,) if start == tokenizer.stop_id else (tokenizer.stop_id, start),
        padding_id=tokenizer.padding_id,
        state_reset=recipe.objective.settings.state_reset,
        once=once,
    )
