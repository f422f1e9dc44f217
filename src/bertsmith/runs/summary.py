"""The summary of a pretraining run: metrics, verdict, cloze examples, generated texts, data and machine."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from bertsmith import config, files, terminal
from bertsmith.data.batch import TargetBatch
from bertsmith.data.shards.shards import Shards
from bertsmith.errors import FolderError
from bertsmith.inference.cloze import cloze_sentences, openings
from bertsmith.inference.model import Model
from bertsmith.insight import cells, gradient_flow
from bertsmith.insight.report import TERM_LABELS, ClozeExample, RunSummary
from bertsmith.models.recurrent import Recurrent
from bertsmith.objectives.base import Pretraining
from bertsmith.objectives.masked import MaskedLM
from bertsmith.recipe import Recipe, begun
from bertsmith.runs import yardsticks
from bertsmith.runs.overview import Trained, overview
from bertsmith.runs.verdict import level, main_term, verdict
from bertsmith.text import language
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.train import hardware, log
from bertsmith.train.checkpoint import Checkpoint
from bertsmith.train.clock import format_duration
from bertsmith.train.trainer import Trainer

CONSOLE = terminal.console()
CHOICES = "choices.json"
EXAMPLES = 12
MAX_NEW_TOKENS = 24  # of each generated text
MAX_PASSAGE, MIN_PASSAGE = 4_000, 200  # tokens of the passage for gradient flow and cells


def untrained_examples(recipe: Recipe, model: Model, valid: Shards) -> list[ClozeExample]:
    """Cloze sentences with the predictions of the untrained network, for masked language models only.

    They are kept in the run's folder for a run that is resumed; a damaged file, or one of a run without a step, is
    made again.
    """
    if not isinstance(model.objective, MaskedLM):
        return []
    path = recipe.out / "examples.json"
    if path.exists() and begun(recipe.out):
        try:
            return _parse_examples(files.read_json(path))
        except (FolderError, LookupError, TypeError, ValueError):
            CONSOLE.print(f"{path}: damaged; the examples of the report are made again")
    clozes = cloze_sentences(valid, model.tokenizer, EXAMPLES)
    predictions = _predictions(model, [cloze.text for cloze in clozes])
    rows = [[cloze.text, cloze.truth, words] for cloze, words in zip(clozes, predictions, strict=True)]
    files.write_json(path, {"examples": rows})
    return _parse_examples({"examples": rows})


def _parse_examples(content: Mapping[str, Any]) -> list[ClozeExample]:
    """The examples in a file; values of a wrong type are refused."""
    examples = []
    for text, truth, predicted in content["examples"]:
        if not (isinstance(text, str) and isinstance(truth, str)):
            raise TypeError("a text and its word are strings")
        examples.append(ClozeExample(text, truth, [(str(word), float(share)) for word, share in predicted], []))
    return examples


@dataclass(frozen=True)
class Choices:
    """The reasons for the choices of `bertsmith make`, one line each."""

    tokenizer: Sequence[str] = ()
    recipe: Sequence[str] = ()
    max_characters: int | None = None  # of the text, if there was no time for all of it
    more_time: str = ""  # what twice the time would bring


def save_choices(out: Path, choices: Choices) -> None:
    """Write the choices, for the report and for a run that is resumed."""
    files.write_json(out / CHOICES, asdict(choices))


def load_choices(out: Path) -> Choices:
    """The choices in a run's folder; none if there is no such file, or if it is damaged."""
    try:
        content = files.read_json(out / CHOICES)
        limit = None if content["max_characters"] is None else int(content["max_characters"])
        tokenizer, recipe = ([str(line) for line in content[name]] for name in ("tokenizer", "recipe"))
        return Choices(tokenizer, recipe, limit, str(content["more_time"]))
    except (FolderError, LookupError, TypeError, ValueError):
        return Choices()


def summarise(
    recipe: Recipe,
    model: Model,
    trainer: Trainer,
    train: Shards,
    valid: Shards,
    batches: Sequence[TargetBatch],
    counts: NDArray[np.int64],
    examples: Sequence[ClozeExample],
) -> RunSummary:
    """The summary of a finished run. `counts`: how often each token occurs in the training text."""
    after = _predictions(model, [example.text for example in examples]) if examples else []
    plain = yardsticks.measure(counts, train, batches, model.tokenizer)
    records, choices, baseline = log.read(recipe.out / log.NAME), load_choices(recipe.out), plain.unigram_loss
    generations, objective = _generations(model, valid), trainer.objective
    assert isinstance(objective, Pretraining)
    trained = Trained(
        recipe=recipe,
        objective=objective,
        tokenizer=model.tokenizer,
        train=train,
        valid=valid,
        metrics=trainer.state.metrics,
        yardsticks=plain,
        level=level(trainer.state.metrics, baseline),
        epochs=trainer.feed.epoch(trainer.state.position),
        before=_accuracy_before(records) if recipe.start is not None else None,
        partial=choices.max_characters is not None,
        more_time=choices.more_time,
        examples=[example.text for example in examples] or [prompt for prompt, _ in generations],
    )
    return RunSummary(
        title=f"{recipe.model.kind} from {train.words:,} {_units(valid, model.tokenizer)}",
        start="" if recipe.start is None else str(recipe.start),
        verdict=verdict(trainer.state.metrics, baseline, records),
        overview=overview(trained),
        reasons=[*choices.tokenizer, *choices.recipe],
        generations=generations,
        visualisations=_visualisations(model, valid),
        records=records,
        figures=_figures(trainer, baseline, plain.word_share),
        examples=[replace(example, after=words) for example, words in zip(examples, after, strict=True)],
        data=_data(train, valid, model.tokenizer),
        recipe=config.dump(recipe),
        machine=hardware.describe(trainer.device),
        baseline=baseline,
    )


def _accuracy_before(records: Sequence[Mapping[str, Any]]) -> float | None:
    """The accuracy of the model that is continued: that of the first validation, before any update."""
    first = next((one for one in records if one.get("kind") == "validation" and one.get("step") == 0), {})
    return next((float(first[name]) for kind in TERM_LABELS if (name := f"{kind}_accuracy") in first), None)


def _visualisations(model: Model, valid: Shards) -> list[tuple[str, Markup, str]]:
    """Gradient flow and cells of a recurrent network on a passage of the validation text."""
    trunk, ends = model.objective.trunk, valid.sentence_ends
    lengths = np.diff(ends[: np.searchsorted(ends, MAX_PASSAGE, side="right")], prepend=0)
    if not isinstance(trunk, Recurrent) or lengths.sum() < MIN_PASSAGE:
        return []
    ids = valid.gather(np.cumsum(lengths) - lengths, lengths).tolist()
    flow = gradient_flow.section({"state": gradient_flow.gradient_norms(trunk, gradient_flow.windows(ids))})
    text = model.tokenizer.decode(ids)
    activations = cells.section(text, *cells.find_cells(trunk, model.tokenizer, text))
    return [("Gradient flow through time", flow, gradient_flow.LEAD), ("Interpretable cells", activations, cells.LEAD)]


def _generations(model: Model, valid: Shards) -> list[tuple[str, str]]:
    """Continuations of openings of validation sentences, by a model that generates text."""
    if not model.objective.generates:
        return []
    prompts = openings(valid, model.tokenizer, EXAMPLES)
    return list(zip(prompts, model.generate(prompts, max_new_tokens=MAX_NEW_TOKENS), strict=True)) if prompts else []


def summarise_checkpoint(
    recipe: Recipe, saved: Checkpoint, train: Shards, valid: Shards, tokenizer: Tokenizer
) -> RunSummary:
    """The summary of an unfinished run, from one of its checkpoints."""
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


def _figures(trainer: Trainer, baseline: float, word_share: float) -> dict[str, str]:
    metrics = trainer.state.metrics
    kind = main_term(metrics)
    loss = metrics[f"{kind}_loss"]
    figures = {
        f"validation loss of {TERM_LABELS[kind]}": f"{loss:.3f} nats",
        "compared with word frequency": f"{abs(baseline - loss):.3f} nats {'better' if baseline >= loss else 'worse'}",
        f"{TERM_LABELS[kind]} predicted correctly": f"{metrics[f'{kind}_accuracy']:.1%}",
    }
    if "bits_per_byte" in metrics:
        figures["bits per byte"] = f"{metrics['bits_per_byte']:.3f}"
    if kind == "next_token":
        figures["perplexity"] = f"{math.exp(loss):.1f}"
        if word_share < 1:  # the loss of a word is the sum over its tokens
            figures["perplexity per word"] = f"{math.exp(min(loss / word_share, 100)):,.1f}"
    if kind == "left_to_right":
        figures["perplexity, left to right"] = f"{math.exp(loss):.1f}"
        figures["perplexity, right to left"] = f"{math.exp(metrics['right_to_left_loss']):.1f}"
    shares = {
        "nsp_accuracy": "next sentences predicted correctly",
        "sop_accuracy": "sentence orders predicted correctly",
        "next_token_accuracy": "next tokens predicted correctly",
        "right_to_left_accuracy": "previous words predicted correctly",
        "replaced_accuracy": "tokens classified correctly",
        "replaced_found": "replaced tokens found",
        "guessed_accuracy": "replaced words predicted correctly",
    }
    figures |= {label: f"{metrics[name]:.1%}" for name, label in shares.items() if name in metrics}
    return figures | {
        "tokens seen": f"{trainer.state.tokens:,}",
        "updates": f"{trainer.state.step:,}",
        "updates skipped": f"{trainer.state.skipped:,}",
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
        "vocabulary": f"{tokenizer.vocabulary:,} tokens",
        "data SHA-256": train.fingerprint,
        "tokenizer SHA-256": tokenizer.fingerprint,
    }


def _units(shards: Shards, tokenizer: Tokenizer) -> str:
    """The unit in which text is counted: words, or characters in scripts without spaces."""
    ids = shards.gather(np.array([0]), np.array([min(shards.tokens, MIN_PASSAGE)])).tolist()
    return language.detect_writing([tokenizer.decode(ids)]).units


def _predictions(model: Model, texts: Sequence[str]) -> list[list[tuple[str, float]]]:
    """The five likeliest words for the mask of each text, with their probabilities."""
    return [[(word.word, word.probability) for word in filled.blanks[0]] for filled in model.fill(texts)]
