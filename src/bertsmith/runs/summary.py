"""The summary of a finished run: its figures, its examples, its data and its machine."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertsmith import config, files, terminal
from bertsmith.data.batch import Batch
from bertsmith.data.shards.shards import Shards
from bertsmith.errors import FolderError
from bertsmith.inference.cloze import cloze_sentences, openings
from bertsmith.inference.model import Model
from bertsmith.insight import cells, gradient_flow
from bertsmith.insight.report import TERM_LABELS, ClozeExample, RunSummary
from bertsmith.models.recurrent import Recurrent
from bertsmith.objectives.causal import CausalLM
from bertsmith.objectives.masked import MaskedLM
from bertsmith.objectives.recurrent_lm import RecurrentLM
from bertsmith.objectives.spans import SpanCorruption
from bertsmith.recipe import Recipe, begun
from bertsmith.text import language
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.train import hardware, log
from bertsmith.train.checkpoint import Checkpoint
from bertsmith.train.clock import format_duration
from bertsmith.train.trainer import Trainer

CONSOLE = terminal.console()
CHOICES = "choices.json"
EXAMPLES = 12
NO_GAIN, SMALL_GAIN = 0.02, 0.3  # nats below the loss of word frequency: no learning, and its beginning
OVERFIT_RISE = 0.15  # nats above the lowest validation loss
MAX_NEW_TOKENS = 24  # tokens of each text that is written
MAX_PASSAGE, MIN_PASSAGE = 4_000, 200  # tokens, at most and at least, by which a network is looked into


def untrained_examples(recipe: Recipe, model: Model, valid: Shards) -> list[ClozeExample]:
    """Blanks and what the untrained network makes of them; kept in the run's folder, for a run that is resumed.

    What is kept there is decoration: where it is damaged, or of a start that took no step, it is made again. A network
    that writes fills no blanks; what it writes is told when it is over.
    """
    if not isinstance(model.objective, MaskedLM):
        return []
    path = recipe.out / "examples.json"
    if path.exists() and begun(recipe.out):
        try:
            return _parse_examples(files.read_json(path))
        except (FolderError, LookupError, TypeError, ValueError):
            CONSOLE.print(f"{path}: damaged; the blanks of the report are made again")
    clozes = cloze_sentences(valid, model.tokenizer, EXAMPLES)
    guesses = _predictions(model, [cloze.text for cloze in clozes])
    rows = [[cloze.text, cloze.truth, guessed] for cloze, guessed in zip(clozes, guesses, strict=True)]
    files.write_json(path, {"examples": rows})
    return _parse_examples({"examples": rows})


def _parse_examples(found: Mapping[str, Any]) -> list[ClozeExample]:
    """The examples in a file; what is not what it should be is refused."""
    examples = []
    for text, truth, guessed in found["examples"]:
        if not (isinstance(text, str) and isinstance(truth, str)):
            raise TypeError("a text and its word are strings")
        examples.append(ClozeExample(text, truth, [(str(word), float(chance)) for word, chance in guessed], []))
    return examples


@dataclass(frozen=True)
class Choices:
    """Why a run is as it is, where `bertsmith make` has chosen: a line each."""

    text: Sequence[str] = ()  # of what was made of the text
    recipe: Sequence[str] = ()  # of the recipe
    max_characters: int | None = None  # characters of the text that are read, where there was no time for all


def save_choices(out: Path, choices: Choices) -> None:
    """Write them down, for the report and for a run that goes on."""
    files.write_json(out / CHOICES, asdict(choices))


def load_choices(out: Path) -> Choices:
    """Those of a run's folder; none where nothing was chosen, or where they are damaged."""
    try:
        found = files.read_json(out / CHOICES)
        most = None if found["max_characters"] is None else int(found["max_characters"])
        return Choices([str(line) for line in found["text"]], [str(line) for line in found["recipe"]], most)
    except (FolderError, LookupError, TypeError, ValueError):
        return Choices()


def summarise(
    recipe: Recipe,
    model: Model,
    trainer: Trainer,
    train: Shards,
    valid: Shards,
    batches: Sequence[Batch],
    counts: NDArray[np.int64],
    examples: Sequence[ClozeExample],
) -> RunSummary:
    """The whole story, in plain values. `counts`: how often each token is in the training text."""
    after = _predictions(model, [example.text for example in examples]) if examples else []
    guess = unigram_loss(counts, train.documents, batches, model.tokenizer)
    records, chosen = log.read(recipe.out / log.NAME), load_choices(recipe.out)
    return RunSummary(
        title=f"{recipe.model.kind} from {train.words:,} {_units(valid, model.tokenizer)}",
        verdict=verdict(trainer.metrics, guess, records),
        reasons=[*chosen.text, *chosen.recipe],
        generations=_generations(model, valid),
        visualisations=_visualisations(model, valid),
        records=records,
        figures=_figures(trainer, guess, word_start_share(batches, model.tokenizer)),
        examples=[replace(example, after=guessed) for example, guessed in zip(examples, after, strict=True)],
        data=_data(train, valid, model.tokenizer),
        recipe=config.dump(recipe),
        machine=hardware.describe(trainer.device),
        unigram_loss=guess,
    )


def _visualisations(model: Model, valid: Shards) -> list[tuple[str, str, str]]:
    """Pictures of a recurrent network at work on a passage that it has never read."""
    trunk, ends = model.objective.trunk, valid.sentence_ends
    lengths = np.diff(ends[: np.searchsorted(ends, MAX_PASSAGE, side="right")], prepend=0)
    if not isinstance(trunk, Recurrent) or lengths.sum() < MIN_PASSAGE:
        return []
    ids = valid.gather(np.cumsum(lengths) - lengths, lengths).tolist()
    felt = gradient_flow.section({"state": gradient_flow.gradient_norms(trunk, gradient_flow.windows(ids))})
    text = model.tokenizer.decode(ids)
    known = cells.section(text, *cells.find_cells(trunk, model.tokenizer, text))
    return [("Felt through time", felt, gradient_flow.LEAD), ("What single cells know", known, cells.LEAD)]


def _generations(model: Model, valid: Shards) -> list[tuple[str, str]]:
    """What a network that writes makes of some openings."""
    if not isinstance(model.objective, CausalLM | RecurrentLM | SpanCorruption):
        return []
    prompts = openings(valid, model.tokenizer, EXAMPLES)
    return list(zip(prompts, model.generate(prompts, max_new_tokens=MAX_NEW_TOKENS), strict=True)) if prompts else []


def summarise_checkpoint(
    recipe: Recipe, saved: Checkpoint, train: Shards, valid: Shards, tokenizer: Tokenizer
) -> RunSummary:
    """What there is to tell of a run that is not over, by a checkpoint of it."""
    return RunSummary(
        title=f"{recipe.model.kind} from {train.words:,} {_units(valid, tokenizer)}, after {saved.step:,} updates",
        figures={
            "tokens seen": f"{saved.state['tokens']:,}",
            "updates": f"{saved.step:,}",
            "training time": format_duration(saved.state["training_seconds"]),
        },
        data=_data(train, valid, tokenizer),
        recipe=config.dump(recipe),
        machine=hardware.describe(hardware.select_device(recipe.train.device)),
    )


def unigram_loss(counts: NDArray[np.int64], documents: int, batches: Sequence[Batch], tokenizer: Tokenizer) -> float:
    """The loss of guessing every word by how often words occur in the training text of so many documents."""
    asked = [_targets(batch).cpu() for batch in batches if batch.targets is not None]
    targets = torch.cat(asked).numpy()
    targets = targets[targets >= 0]
    often = counts + 1.0
    for piece in {tokenizer.stop_id, tokenizer.roles.get("start", tokenizer.stop_id)}:
        if (targets == piece).any():
            often[piece] += documents  # whose ends, or beginnings, are guessed, too
    costs = -np.log(often / often.sum())
    return float(costs[targets].mean())


def verdict(figures: Mapping[str, float], baseline: float, records: Sequence[Mapping[str, Any]]) -> str:
    """In plain words, whether a model has learnt: its loss beside that of guessing words by their frequency alone."""
    kind = next(kind for kind in TERM_LABELS if f"{kind}_loss" in figures)
    loss, right = figures[f"{kind}_loss"], figures[f"{kind}_accuracy"]
    gain, more = baseline - loss, "Give it more text or more time."
    if not gain >= 0:  # or no number
        said = f"It has not learnt yet: its guesses are worse than word frequency, by {-gain:.2f} nats. {more}"
    elif gain < NO_GAIN:
        said = f"It has not learnt yet: its guesses are no better than word frequency. {more}"
    elif gain < SMALL_GAIN:
        said = f"It has begun to learn: {gain:.2f} nats better than word frequency. {more}"
    else:
        guessed = f"{right:.0%} of {TERM_LABELS[kind]} guessed right"
        said = f"It has learnt: {gain:.2f} nats better than word frequency, {guessed}."
    earlier = [
        float(one[f"{kind}_loss"]) for one in records if one.get("kind") == "validation" and f"{kind}_loss" in one
    ]
    if earlier and loss - min(earlier) > OVERFIT_RISE:
        said += (
            f" Its validation loss was lower before ({min(earlier):.2f}, now {loss:.2f}): it learns the text by heart."
        )
        said += " Give it more text, or less time."
    return said


def _targets(batch: Batch) -> Tensor:
    """What is to be guessed; of what a second network writes only what was text."""
    assert batch.targets is not None
    if batch.decoder_tokens is None:
        return batch.targets
    assert batch.text_mask is not None
    return batch.targets[batch.text_mask]


def word_start_share(batches: Sequence[Batch], tokenizer: Tokenizer) -> float:
    """What share of the tokens that are guessed begin a word; a mark is one, as is the end of a text."""
    targets = torch.cat([_targets(batch).cpu() for batch in batches if batch.targets is not None]).numpy()
    return float((~tokenizer.continuation_mask[targets[targets >= 0]]).mean())


def _figures(trainer: Trainer, baseline: float, word_share: float) -> dict[str, str]:
    found = trainer.metrics
    kind = next(kind for kind in TERM_LABELS if f"{kind}_loss" in found)
    loss = found[f"{kind}_loss"]
    figures = {
        f"validation loss of {TERM_LABELS[kind]}": f"{loss:.3f} nats",
        "compared with word frequency": f"{abs(baseline - loss):.3f} nats {'better' if baseline >= loss else 'worse'}",
        f"{TERM_LABELS[kind]} guessed right": f"{found[f'{kind}_accuracy']:.1%}",
    }
    if "bits_per_byte" in found:
        figures["bits per byte"] = f"{found['bits_per_byte']:.3f}"
    if kind == "next_token":
        figures["perplexity"] = f"{math.exp(loss):.1f}"
        if word_share < 1:  # a word costs all that its pieces do
            figures["perplexity of words"] = f"{math.exp(min(loss / word_share, 100)):,.1f}"
    if kind == "left_to_right":
        figures["perplexity, read onward"] = f"{math.exp(loss):.1f}"
        figures["perplexity, read backward"] = f"{math.exp(found['right_to_left_loss']):.1f}"
    shares = {
        "nsp_accuracy": "next sentence judged right",
        "sop_accuracy": "sentence order judged right",
        "next_token_accuracy": "next tokens guessed right",
        "right_to_left_accuracy": "words before guessed right",
        "replaced_accuracy": "tokens judged right",
        "replaced_found": "replaced tokens found",
        "guessed_accuracy": "replaced words guessed right",
    }
    figures |= {told: f"{found[name]:.1%}" for name, told in shares.items() if name in found}
    return figures | {
        "tokens seen": f"{trainer.tokens:,}",
        "updates": f"{trainer.step:,}",
        "updates skipped": f"{trainer.skipped:,}",
        "training time": format_duration(trainer.clock.training_seconds),
        "parameters": f"{sum(parameter.numel() for parameter in trainer.objective.parameters()):,}",
    }


def _data(train: Shards, valid: Shards, tokenizer: Tokenizer) -> dict[str, str]:
    return {
        "documents": f"{train.documents:,} for training, {valid.documents:,} for validation",
        "sentences": f"{train.sentences:,} and {valid.sentences:,}",
        _units(valid, tokenizer): f"{train.words:,} and {valid.words:,}",
        "tokens": f"{train.tokens:,} and {valid.tokens:,}",
        "bytes": f"{train.bytes:,} and {valid.bytes:,}",
        "vocabulary": f"{tokenizer.vocabulary:,} pieces",
        "data SHA-256": train.fingerprint,
        "tokenizer SHA-256": tokenizer.fingerprint,
    }


def _units(shards: Shards, tokenizer: Tokenizer) -> str:
    """What the text is counted in: words, or characters where no spaces stand between words."""
    ids = shards.gather(np.array([0]), np.array([min(shards.tokens, MIN_PASSAGE)])).tolist()
    return language.detect_writing([tokenizer.decode(ids)]).units


def _predictions(model: Model, texts: Sequence[str]) -> list[list[tuple[str, float]]]:
    """The five best words for each text's blank, with their probabilities."""
    return [[(guess.word, guess.probability) for guess in filled.blanks[0]] for filled in model.fill(texts)]
