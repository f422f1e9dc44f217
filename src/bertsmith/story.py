"""What a run has to tell when it is over: its figures, its examples, its data and its machine."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from bertsmith import config
from bertsmith.data import files
from bertsmith.data.batch import Batch
from bertsmith.data.shards import Shards
from bertsmith.insight.report import Example, RunStory
from bertsmith.recipe import Recipe
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.train import log, machine
from bertsmith.train.clock import spoken
from bertsmith.train.trainer import Trainer
from bertsmith.use.blanks import blanks
from bertsmith.use.load import Model

EXAMPLES = 12


def before(recipe: Recipe, model: Model, valid: Shards) -> list[Example]:
    """Blanks and what the untrained network makes of them; kept in the run's folder, for a run that is resumed."""
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
    after = _guesses(model, [example.text for example in examples])
    guess = by_frequency(train, batches)
    return RunStory(
        title=f"{recipe.model.kind} from {train.words:,} words",
        records=log.read(recipe.out / log.NAME),
        figures=_figures(trainer, guess),
        examples=[replace(example, after=guessed) for example, guessed in zip(examples, after, strict=True)],
        data=_data(train, valid, model.tokenizer),
        recipe=config.dump(recipe),
        machine=machine.describe(trainer.device),
        guess=guess,
    )


def by_frequency(train: Shards, batches: Sequence[Batch]) -> float:
    """The loss of guessing every hidden word by how often words occur in the training text."""
    counts = train.frequencies() + 1.0
    costs = -np.log(counts / counts.sum())
    targets = torch.cat([batch.targets.cpu() for batch in batches if batch.targets is not None])
    return float(costs[targets.numpy()].mean())


def _figures(trainer: Trainer, guess: float) -> dict[str, str]:
    found = trainer.figures
    figures = {
        "validation loss of hidden words": f"{found['masked_loss']:.3f} nats",
        "below guessing by word frequency": f"{guess - found['masked_loss']:.3f} nats",
        "hidden words guessed right": f"{found['masked_accuracy']:.1%}",
        "bits per byte": f"{found['bits_per_byte']:.3f}",
    }
    shares = {
        "next_accuracy": "next sentence judged right",
        "order_accuracy": "sentence order judged right",
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
