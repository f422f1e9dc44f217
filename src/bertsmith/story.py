"""What a run has to tell when it is over: its figures, its examples, its data and its machine."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from bertsmith import config
from bertsmith.data import files
from bertsmith.data.batch import Batch
from bertsmith.data.shards import Shards
from bertsmith.insight import cells, through_time
from bertsmith.insight.report import GUESSED, Example, RunStory
from bertsmith.models.recurrent import Recurrent
from bertsmith.objectives.causal import NextToken
from bertsmith.objectives.masked import MaskedLM
from bertsmith.objectives.onward import Onward
from bertsmith.objectives.spans import SpanCorruption
from bertsmith.recipe import Recipe
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.train import log, machine
from bertsmith.train.checkpoint import Checkpoint
from bertsmith.train.clock import spoken
from bertsmith.train.trainer import Trainer
from bertsmith.use.blanks import blanks, openings
from bertsmith.use.model import Model

EXAMPLES = 12
WRITTEN = 24  # tokens of each text that is written
PASSAGE, LEAST = 4_000, 200  # tokens, at most and at least, by which a network is looked into


def before(recipe: Recipe, model: Model, valid: Shards) -> list[Example]:
    """Blanks and what the untrained network makes of them; kept in the run's folder, for a run that is resumed.

    A network that writes fills none; what it writes is told when it is over.
    """
    if not isinstance(model.objective, MaskedLM):
        return []
    path = recipe.out / "examples.json"
    if not path.exists():
        clozes = blanks(valid, model.tokenizer, EXAMPLES)
        guesses = _guesses(model, [cloze.text for cloze in clozes])
        rows = [[cloze.text, cloze.truth, guessed] for cloze, guessed in zip(clozes, guesses, strict=True)]
        files.write_json(path, {"examples": rows})
    kept = files.read_json(path)["examples"]
    return [Example(text, truth, [(word, chance) for word, chance in guessed], []) for text, truth, guessed in kept]


def tell(
    recipe: Recipe,
    model: Model,
    trainer: Trainer,
    train: Shards,
    valid: Shards,
    batches: Sequence[Batch],
    examples: Sequence[Example],
) -> RunStory:
    """The whole story, in plain values."""
    after = _guesses(model, [example.text for example in examples]) if examples else []
    guess = by_frequency(train, batches, model.tokenizer)
    return RunStory(
        title=f"{recipe.model.kind} from {train.words:,} words",
        written=_written(model, valid),
        inside=_inside(model, valid),
        records=log.read(recipe.out / log.NAME),
        figures=_figures(trainer, guess, words(batches, model.tokenizer)),
        examples=[replace(example, after=guessed) for example, guessed in zip(examples, after, strict=True)],
        data=_data(train, valid, model.tokenizer),
        recipe=config.dump(recipe),
        machine=machine.describe(trainer.device),
        guess=guess,
    )


def _inside(model: Model, valid: Shards) -> list[tuple[str, str, str]]:
    """Pictures of a recurrent network at work on a passage that it has never read."""
    trunk, ends = model.objective.trunk, valid.sentence_ends
    lengths = np.diff(ends[: np.searchsorted(ends, PASSAGE, side="right")], prepend=0)
    if not isinstance(trunk, Recurrent) or lengths.sum() < LEAST:
        return []
    ids = valid.gather(np.cumsum(lengths) - lengths, lengths).tolist()
    felt = through_time.section({"state": through_time.felt(trunk, through_time.windows(ids))})
    text = model.tokenizer.decode(ids)
    known = cells.section(text, *cells.looked_for(trunk, model.tokenizer, text))
    return [("Felt through time", felt, through_time.LEAD), ("What single cells know", known, cells.LEAD)]


def _written(model: Model, valid: Shards) -> list[tuple[str, str]]:
    """What a network that writes makes of some openings."""
    if not isinstance(model.objective, NextToken | Onward | SpanCorruption):
        return []
    prompts = openings(valid, model.tokenizer, EXAMPLES)
    return list(zip(prompts, model.generate(prompts, most=WRITTEN), strict=True)) if prompts else []


def so_far(recipe: Recipe, saved: Checkpoint, train: Shards, valid: Shards, tokenizer: Tokenizer) -> RunStory:
    """What there is to tell of a run that is not over, by a checkpoint of it."""
    return RunStory(
        title=f"{recipe.model.kind} from {train.words:,} words, after {saved.step:,} updates",
        figures={
            "tokens seen": f"{saved.state['tokens']:,}",
            "updates": f"{saved.step:,}",
            "training time": spoken(saved.state["seconds"]),
        },
        data=_data(train, valid, tokenizer),
        recipe=config.dump(recipe),
        machine=machine.describe(machine.device(recipe.train.device)),
    )


def by_frequency(train: Shards, batches: Sequence[Batch], tokenizer: Tokenizer) -> float:
    """The loss of guessing every word by how often words occur in the training text."""
    asked = [_asked(batch).cpu() for batch in batches if batch.targets is not None]
    targets = torch.cat(asked).numpy()
    targets = targets[targets >= 0]
    counts = train.frequencies() + 1.0
    for piece in {tokenizer.stop, tokenizer.roles.get("start", tokenizer.stop)}:
        if (targets == piece).any():
            counts[piece] += train.documents  # whose ends, or beginnings, are guessed, too
    costs = -np.log(counts / counts.sum())
    return float(costs[targets].mean())


def _asked(batch: Batch) -> Tensor:
    """What is to be guessed; of what a second network writes only what was text."""
    assert batch.targets is not None
    if batch.written is None:
        return batch.targets
    assert batch.real is not None
    return batch.targets[batch.real]


def words(batches: Sequence[Batch], tokenizer: Tokenizer) -> float:
    """What share of the tokens that are guessed begin a word; a mark is one, as is the end of a text."""
    targets = torch.cat([_asked(batch).cpu() for batch in batches if batch.targets is not None]).numpy()
    return float((~tokenizer.continues[targets[targets >= 0]]).mean())


def _figures(trainer: Trainer, guess: float, words: float) -> dict[str, str]:
    found = trainer.figures
    kind = next(kind for kind in GUESSED if f"{kind}_loss" in found)
    loss = found[f"{kind}_loss"]
    figures = {
        f"validation loss of {GUESSED[kind]}": f"{loss:.3f} nats",
        "below guessing by word frequency": f"{guess - loss:.3f} nats",
        f"{GUESSED[kind]} guessed right": f"{found[f'{kind}_accuracy']:.1%}",
    }
    if "bits_per_byte" in found:
        figures["bits per byte"] = f"{found['bits_per_byte']:.3f}"
    if kind == "next_token":
        figures["perplexity"] = f"{math.exp(loss):.1f}"
        if words < 1:  # a word costs all that its pieces do
            figures["perplexity of words"] = f"{math.exp(min(loss / words, 100)):,.1f}"
    if kind == "onward":
        figures["perplexity, read onward"] = f"{math.exp(loss):.1f}"
        figures["perplexity, read backward"] = f"{math.exp(found['backward_loss']):.1f}"
    shares = {
        "next_accuracy": "next sentence judged right",
        "order_accuracy": "sentence order judged right",
        "next_token_accuracy": "next tokens guessed right",
        "backward_accuracy": "words before guessed right",
        "replaced_accuracy": "tokens judged right",
        "replaced_found": "replaced tokens found",
        "guessed_accuracy": "replaced words guessed right",
    }
    figures |= {told: f"{found[name]:.1%}" for name, told in shares.items() if name in found}
    return figures | {
        "tokens seen": f"{trainer.tokens:,}",
        "updates": f"{trainer.step:,}",
        "updates left out": f"{trainer.skipped:,}",
        "training time": spoken(trainer.clock.used),
        "parameters": f"{sum(parameter.numel() for parameter in trainer.objective.parameters()):,}",
    }


def _data(train: Shards, valid: Shards, tokenizer: Tokenizer) -> dict[str, str]:
    return {
        "documents": f"{train.documents:,} for training, {valid.documents:,} for validation",
        "sentences": f"{train.sentences:,} and {valid.sentences:,}",
        "words": f"{train.words:,} and {valid.words:,}",
        "tokens": f"{train.tokens:,} and {valid.tokens:,}",
        "bytes": f"{train.bytes:,} and {valid.bytes:,}",
        "vocabulary": f"{tokenizer.vocabulary:,} pieces",
        "data SHA-256": train.fingerprint,
        "tokenizer SHA-256": tokenizer.fingerprint,
    }


def _guesses(model: Model, texts: Sequence[str]) -> list[list[tuple[str, float]]]:
    """The five best words for each text's blank, with their probabilities."""
    return [[(guess.word, guess.probability) for guess in filled.blanks[0]] for filled in model.fill_all(texts)]
