"""The composition root of the whole way, from text to a trained model folder in one command: `make` and `demo`."""

import time
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module, resources
from pathlib import Path
from typing import Any

from bertsmith import terminal
from bertsmith.commands import fill, prepare, pretrain
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.errors import RecipeError, RunError
from bertsmith.recipe import Recipe, begun, settle
from bertsmith.runs import autoconfig, summary
from bertsmith.runs.summary import Choices
from bertsmith.text import language
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig
from bertsmith.train import checkpoint, hardware
from bertsmith.train.clock import WallBudget, format_duration
from bertsmith.train.lock import Lock

CONSOLE = terminal.console()
TOKENIZER_SHARE, PREPARE_SHARE = (
    0.1,
    0.25,
)  # shares of the budget: for the text of the vocabulary, and for cutting text into pieces
FINAL_RESERVE = 1.0, 0.01  # seconds, and a share of the budget, for what is written last and is not measured before
MIN_TRAINING_SHARE = 0.05  # of the budget, for training: with less there is nothing to wait for
DEMO_BLANKS = [
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
    budget: str = "10m",
    seed: int | None = None,
    lowercase: bool | None = None,
    strip_accents: bool | None = None,
    began: float | None = None,
    reserve: float = 0.0,
    **reading: Any,
) -> dict[str, float]:
    """From text to a trained model folder: vocabulary, shards, a recipe that fits, and the run itself.

    The budget is the time of all of it by the clock on the wall, counted from `began` (by time.monotonic()); `after`
    are seconds of it that are kept for the caller. Capitals and accents that nothing is said of follow the language.
    Without a seed, a new run takes 0, and one that was begun goes on with its own; another seed is refused.
    """
    began, path = time.monotonic() if began is None else began, out / "recipe.toml"
    whole = autoconfig.budget_seconds(budget)
    with Lock(out):
        pieces = TokenizerConfig(lowercase=lowercase, strip_accents=strip_accents)
        made = _prepare(texts, out, whole, pieces, reading)
        if path.exists() and begun(out):
            if seed is not None and seed != (was := pretrain.read_recipe(path, []).train.seed):
                fact = f"its run was begun with --seed {was}, and not {seed}"
                raise RecipeError(out, fact, "Leave the option out to go on with it, or choose another folder")
            CONSOLE.print(_resume_message(out, path, whole))
        else:
            chosen, reasons = _choose_recipe(out, whole, began, seed or 0)
            summary.save_choices(out, replace(made, recipe=reasons))
            settle(chosen, pretrain.MAY_CHANGE)
    ending, share = FINAL_RESERVE
    wall = WallBudget(started=began, budget=whole, reserve=ending + share * whole + reserve)
    return pretrain.pretrain(pretrain.read_recipe(path, []), wall)


def _resume_message(out: Path, path: Path, budget: float) -> str:
    """What is about to happen to a run that was begun before."""
    found = checkpoint.load_newest(out / "checkpoints")
    if found is None:
        return f"{path}: its run has no checkpoint yet, so it begins again, with all of its time"
    before = found[0].state.get("wall_budget") or {}
    if not before.get("finished"):
        return f"going on with {path}, and with the time it has left"
    if budget > before["budget"]:
        return (
            f"going on with {path}, which was finished, for another {format_duration(budget - before['total_seconds'])}"
        )
    used = format_duration(before["budget"])
    return f"{path}: this run is finished, its {used} are used. A longer --budget goes on with it"


def _prepare(
    texts: Sequence[str], out: Path, budget: float, requested: TokenizerConfig, reading: dict[str, Any]
) -> Choices:
    """A vocabulary and shards of the text, made now or found to be of the same text; and why they are as they are."""
    corpus, made = Corpus(texts, **reading), summary.load_choices(out)
    corpus.buffer_stdin()  # it is read several times
    if (out / "tokenizer" / "tokenizer.json").exists() and (made.text or (out / "data").exists()):
        tokenizer = Tokenizer.load(out / "tokenizer")
        _check_tokenizer(out, tokenizer, requested)
    else:
        tokenizer, made = _train_tokenizer(corpus, requested, out, budget)
        summary.save_choices(out, made)
    corpus.max_characters = made.max_characters
    prepare.prepare_shards(corpus, tokenizer, out / "data", autoconfig.validation_share(corpus.estimated_words))
    return made


def _train_tokenizer(corpus: Corpus, requested: TokenizerConfig, out: Path, budget: float) -> tuple[Tokenizer, Choices]:
    """A vocabulary, why it is as it is, and how many characters of the text there is time for."""
    size, why = autoconfig.vocabulary_size(
        corpus.estimated_words, language.detect_writing(corpus.sample(language.SAMPLE)).units
    )
    settings = replace(requested, vocabulary=size)
    learnt = prepare.train_tokenizer(corpus, settings, out / "tokenizer", TOKENIZER_SHARE * budget)
    made = learnt.tokenizer.vocabulary
    counted = prepare.smaller_vocabulary(made, size) if made < size else f"{made:,} pieces: {why}"
    reasons = [f"vocabulary of {counted}", *([learnt.reason] if learnt.reason else [])]
    most, all_of_it = (
        int(PREPARE_SHARE * budget / learnt.seconds_per_character),
        learnt.characters / max(corpus.progress, 1e-9),
    )
    if most < all_of_it:
        reasons.append(
            f"the first {most / all_of_it:.0%} of the text: "
            f"in {format_duration(budget)} there is no time to read all of it. "
            "A longer --budget, with another --out, reads more"
        )
    for reason in reasons:
        CONSOLE.print(f"why: {reason}")
    return learnt.tokenizer, Choices(text=reasons, max_characters=most if most < all_of_it else None)


def _check_tokenizer(out: Path, tokenizer: Tokenizer, requested: TokenizerConfig) -> None:
    """That capitals and accents are treated as the command says, in a folder where that was decided before."""
    for option, wanted, is_so in (
        (("--lowercase", "--cased"), requested.lowercase, tokenizer.lowercase),
        (("--strip-accents", "--keep-accents"), requested.strip_accents, tokenizer.strips_accents),
    ):
        if wanted is not None and is_so is not None and wanted != is_so:
            fact = f"its vocabulary was made with {option[not is_so]}, and not {option[not wanted]}"
            raise RecipeError(out, fact, "Choose another folder, or remove this one")


def _choose_recipe(out: Path, budget: float, began: float, seed: int) -> tuple[Recipe, list[str]]:
    """The recipe that suits the prepared text, this machine, and the time that is left of the whole; and why."""
    device = hardware.select_device("auto")
    gpu, flops = device.type == "cuda", hardware.training_flops(device)
    import_module("torch._dynamo")  # which every optimizer imports, and which takes seconds on a loaded machine
    left = budget - (time.monotonic() - began) - autoconfig.reserve_seconds(budget, gpu=gpu)
    if left < MIN_TRAINING_SHARE * budget:
        rest = format_duration(max(left, 0))
        fact = f"of {format_duration(budget)}, reading and preparing the text left {rest} for training"
        raise RunError(out, fact, "Give it a longer --budget; what is prepared is kept")
    choice = autoconfig.choose_recipe(out / "data", out, budget=left, flops=flops, gpu=gpu, seed=seed)
    for reason in choice.reasons:
        CONSOLE.print(f"why: {reason}")
    return choice.recipe, choice.reasons


def demo(out: Path, *, budget: str = "5m", began: float | None = None) -> dict[str, float]:
    """`make` on the text in the package; then some blanks are filled, and the next steps named."""
    with resources.as_file(resources.files("bertsmith.text") / "sample" / "sample.txt.xz") as sample:
        figures = make([str(sample)], out, budget=budget, layout="lines", began=began, reserve=1.0)
    fill.fill(out / "model", DEMO_BLANKS, top_k=5, as_json=False)
    CONSOLE.print(f"""What to do next
  look at the report        {out / "report.html"}
  fill blanks of your own   bertsmith fill {out / "model"} "She looked at the [MASK] and smiled."
  use your own text         bertsmith make my-texts/ --budget 10m --out runs/mine""")
    return figures
