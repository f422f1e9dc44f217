"""`make`: from text to a pretrained model folder within a time budget, in one command; `demo`: the same on a sample."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module, resources
from pathlib import Path
from typing import Any

from bertsmith import terminal
from bertsmith.commands import clean as cleaning
from bertsmith.commands import continuation, fill, prepare, pretrain
from bertsmith.commands.continuation import ContinuedRun
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.errors import RecipeError, RunError
from bertsmith.recipe import Recipe, begun, settle
from bertsmith.runs import autoconfig, candidates, summary
from bertsmith.runs.continuation import Continuation
from bertsmith.runs.summary import Choices
from bertsmith.text import language
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig
from bertsmith.train import checkpoint, hardware
from bertsmith.train.clock import WallBudget, format_duration
from bertsmith.train.lock import Lock

CONSOLE = terminal.console()
DEFAULT_BUDGET = "10m"
CLEAN_SHARE = 0.25  # of the budget, at most, for cleaning
TOKENIZER_SHARE = 0.1  # of the budget, at most, for reading the text that the tokenizer is trained on
PREPARE_SHARE = 0.25  # of the budget, at most, for tokenising
CHARACTERS_OF_A_WORD = 6  # with the space after it
FINAL_RESERVE = 1.0, 0.01  # seconds, and a share of the budget, for writing the last files: not measured before
MIN_TRAINING_SHARE = 0.05  # of the budget: a shorter training is refused
DEMO_TEXTS = [
    "the old man shook his [MASK] and said nothing .",
    "she opened the [MASK] and went into the room .",
    "once upon a [MASK] there was a king who had three sons .",
    "the ship sailed across the [MASK] .",
    "he put his [MASK] on her shoulder and looked into her [MASK] .",
]


def make(
    texts: Sequence[str],
    out: Path,
    *,
    budget: str | None = None,
    seed: int | None = None,
    lowercase: bool | None = None,
    strip_accents: bool | None = None,
    like: str | None = None,
    start: str | Path | None = None,
    general_text: str | Path | None = None,
    began: float | None = None,
    reserve: float = 0.0,
    clean: bool = False,
    decontaminate: Sequence[str] = (),
    **reading: Any,
) -> dict[str, float]:
    """From text to a pretrained model folder: tokenizer, shards, a recipe that fits, and pretraining.

    The budget is the wall-clock time of everything, counted from `began` (by time.monotonic()): ten minutes, or that of
    an interrupted run, unless one is given; `reserve` seconds of it are left to the caller. Lowercasing and accents
    follow the language unless they are given. `like` is the member that is made, smith by default. Without a seed, a
    new run takes 0 and an interrupted run its own; another seed or member than the run's is refused. `start`: a model
    folder that is continued; `general_text`: text on which is measured what it forgets.
    """
    began, path = time.monotonic() if began is None else began, out / "recipe.toml"
    asked = like or candidates.SMITH
    before = _budget_before(out) if path.exists() and begun(out) else None
    seconds, kind = _budget(out, budget, before), candidates.tokenizer_kind(*candidates.network(asked, "base"))
    cleaning.check_decontaminate(clean, decontaminate)
    if start is not None and like is not None:
        raise RecipeError("--like", "a model that is continued stays what it is", "Leave out --like, or --from")
    continued = continuation.continued_run(start, out, seconds, general_text)
    with Lock(out):
        if continued is not None:
            continued.settle()
        if clean:
            texts, reading = cleaning.clean_into(
                texts, out, reading, decontaminate=decontaminate, seconds=CLEAN_SHARE * seconds
            )
        requested = TokenizerConfig(kind=kind, lowercase=lowercase, strip_accents=strip_accents)
        if continued is None:
            choices = _prepare(texts, out, seconds, requested, reading)
        else:
            choices = continued.prepare(Corpus(texts, **reading), requested)
            seconds, reserve = continued.max_budget(), reserve + continued.measure_seconds()
        if path.exists() and begun(out):
            _check_resumed(pretrain.read_recipe(path, []), seed, like)
            CONSOLE.print(_resume_message(path, before, seconds, continued is not None and continued.is_capped))
            if before is not None and seconds > before.get("budget", seconds):  # the estimate was of a shorter run
                summary.save_choices(out, replace(choices, more_time=""))
        else:
            recipe, choices = _choose_recipe(out, seconds, began, seed or 0, asked, choices, continued)
            summary.save_choices(out, choices)
            seconds = seconds if continued is None else continued.max_budget()
            settle(recipe, pretrain.MAY_CHANGE)
    fixed, share = FINAL_RESERVE
    wall = WallBudget(started=began, budget=seconds, reserve=fixed + share * seconds + reserve)
    # The folder may have been moved or copied since its recipe was written.
    recipe = pretrain.with_paths(pretrain.read_recipe(path, []), out / "data", out)
    if continued is None:
        return pretrain.pretrain(recipe, wall)
    return pretrain.pretrain(recipe, wall, continued.finish) | continued.figures


def _budget(out: Path, asked: str | None, before: Mapping[str, Any] | None) -> float:
    """The seconds of the whole run: those asked for, or those of the run that is resumed; never less than it has had.

    With less the run would end at once, with a learning rate that has not decayed.
    """
    if asked is None:
        return float(before["budget"]) if before else autoconfig.budget_seconds(DEFAULT_BUDGET)
    seconds = autoconfig.budget_seconds(asked)
    if before and not before["finished"] and seconds <= before["total_seconds"]:
        had, whole = (format_duration(before[name]) for name in ("total_seconds", "budget"))
        fact = f"its run has had {had} of --budget {whole}, and not {asked}"
        raise RecipeError(out, fact, "Give it more, or leave the option out to resume it")
    return seconds


def _check_resumed(recipe: Recipe, seed: int | None, like: str | None) -> None:
    """Refuse another seed or member than those of the run in the folder."""
    asked = []
    if seed is not None and seed != recipe.train.seed:
        asked.append((f"--seed {recipe.train.seed}", str(seed)))
    if like is not None and like != (made := candidates.like_of(recipe.model.kind)):
        asked.append((f"--like {made}", like))
    for before, now in asked:
        fact = f"its run was begun with {before}, and not {now}"
        raise RecipeError(recipe.out, fact, "Leave the option out to resume it, or choose another folder")


def _resume_message(path: Path, before: Mapping[str, Any] | None, budget: float, capped: bool = False) -> str:
    """How a run that was begun before continues; `before` is its budget so far, `capped` whether more is no use."""
    if before is None:
        return f"{path}: its run has no checkpoint yet, so it starts again with the whole budget"
    if not before.get("finished"):
        return f"{path}: resuming, with the rest of its budget"
    if budget > before["budget"]:
        return (
            f"{path}: this run was finished, and trains for another {format_duration(budget - before['total_seconds'])}"
        )
    if before.get("stopped_early"):
        fact = "it stopped early, since its validation loss no longer fell"
        return f"{path}: this run is finished: {fact}. A longer --budget continues it"
    if capped:
        fact = "its text has been read as often as it pays, which a longer --budget does not change"
        return f"{path}: this run is finished: {fact}. Continue the model on more text, with another --out"
    used = format_duration(before["budget"])
    return f"{path}: this run is finished, its budget of {used} is spent. A longer --budget continues it"


def _budget_before(out: Path) -> dict[str, Any] | None:
    """The budget of the run so far, as its newest checkpoint has it; None if there is no checkpoint."""
    newest = checkpoint.load_newest(out / "checkpoints")
    return None if newest is None else newest[0].state.get("wall_budget") or {}


def _prepare(
    texts: Sequence[str], out: Path, budget: float, requested: TokenizerConfig, reading: dict[str, Any]
) -> Choices:
    """Make the tokenizer and the shards of the text, unless they exist; and the reasons for their settings."""
    corpus, choices = Corpus(texts, **reading), summary.load_choices(out)
    corpus.buffer_stdin()  # the text is read several times
    if (out / "tokenizer" / "tokenizer.json").exists() and (choices.tokenizer or (out / "data").exists()):
        tokenizer = Tokenizer.load(out / "tokenizer")
        _check_tokenizer(out, tokenizer, requested)
    else:
        tokenizer, choices = _train_tokenizer(corpus, requested, out, budget)
        summary.save_choices(out, choices)
    corpus.max_characters = choices.max_characters
    prepare.prepare_shards(corpus, tokenizer, out / "data", autoconfig.validation_share(corpus.estimated_words))
    return choices


def _train_tokenizer(corpus: Corpus, requested: TokenizerConfig, out: Path, budget: float) -> tuple[Tokenizer, Choices]:
    """A tokenizer, the reasons for its settings, and the number of characters that there is time to tokenise."""
    units = language.detect_writing(corpus.sample(language.LANGUAGE_CHARACTERS)).units
    size, why = autoconfig.vocabulary_size(corpus.estimated_words, units)
    settings = replace(requested, vocabulary=size)
    trained = prepare.train_tokenizer(corpus, settings, out / "tokenizer", TOKENIZER_SHARE * budget)
    made = trained.tokenizer.vocabulary
    explained = prepare.smaller_vocabulary(made, size) if made < size else f"{made:,} tokens: {why}"
    reasons = [f"vocabulary of {explained}", *([trained.reason] if trained.reason else [])]
    affordable = int(PREPARE_SHARE * budget / trained.seconds_per_character)
    if corpus.progress:  # of the whole text, by estimate
        characters = trained.characters / corpus.progress
    else:  # it is in the middle of the first of some files, such as a table, that tell no position
        characters = corpus.estimated_words * (CHARACTERS_OF_A_WORD if units == "words" else 1)
    if affordable < characters:
        reasons.append(
            f"the first {affordable / characters:.0%} of the text: "
            f"in {format_duration(budget)} there is no time to read all of it. "
            "A longer --budget, with another --out, reads more"
        )
    for reason in reasons:
        CONSOLE.print(f"why: {reason}")
    return trained.tokenizer, Choices(tokenizer=reasons, max_characters=affordable if affordable < characters else None)


def _check_tokenizer(out: Path, tokenizer: Tokenizer, requested: TokenizerConfig) -> None:
    """Refuse other settings of case and accents than those of the tokenizer in the folder."""
    for options, wanted, actual in (
        (("--lowercase", "--cased"), requested.lowercase, tokenizer.lowercase),
        (("--strip-accents", "--keep-accents"), requested.strip_accents, tokenizer.strips_accents),
    ):
        if wanted is not None and actual is not None and wanted != actual:
            fact = f"its tokenizer was trained with {options[not actual]}, and not {options[not wanted]}"
            raise RecipeError(out, fact, "Choose another folder, or remove this one")


def _choose_recipe(
    out: Path,
    budget: float,
    began: float,
    seed: int,
    like: str,
    choices: Choices,
    continued: ContinuedRun | None = None,
) -> tuple[Recipe, Choices]:
    """The recipe for the prepared text, this machine and the rest of the budget; and the choices with its reasons."""
    device = hardware.select_device("auto")
    import_module("torch._dynamo")  # every optimizer imports it, which takes seconds on a busy machine
    left = budget - (time.monotonic() - began) - autoconfig.reserve_seconds(budget, gpu=device.type == "cuda")
    if left < MIN_TRAINING_SHARE * budget:
        rest = format_duration(max(left, 0))
        fact = f"of {format_duration(budget)}, reading and preparing the text left {rest} for training"
        raise RunError(out, fact, "Give it a longer --budget; the prepared text is kept")
    choice: autoconfig.RecipeChoice | Continuation
    if continued is None:
        choice = autoconfig.choose_recipe(out / "data", out, budget=left, device=device, seed=seed, like=like)
        choices = replace(choices, more_time=choice.more_time)
    else:
        flops, gpu = hardware.training_flops(device), device.type == "cuda"
        choice = continued.choose_recipe(left, flops, gpu=gpu, seed=seed)
    for reason in choice.reasons:
        CONSOLE.print(f"why: {reason}")
    if choices.more_time:
        CONSOLE.print(f"with twice the time: {choices.more_time}")
    return choice.recipe, replace(choices, recipe=choice.reasons)


def demo(out: Path, *, budget: str = "5m", began: float | None = None) -> dict[str, float]:
    """`make` on the sample text of the package; then fill some masks."""
    with resources.as_file(resources.files("bertsmith.text") / "sample" / "sample.txt.xz") as sample:
        figures = make([str(sample)], out, budget=budget, layout="lines", began=began, reserve=1.0)
    fill.fill(out / "model", DEMO_TEXTS, top_k=5, as_json=False)
    CONSOLE.print("Now with your own text: bertsmith make my-texts/ --budget 10m --out runs/mine")
    return figures
