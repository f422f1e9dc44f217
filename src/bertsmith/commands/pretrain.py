"""The composition root of pretraining: one function per verb."""

import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from rich.text import Text

from bertsmith import config, files, recipes, terminal
from bertsmith.data.shards.shards import Shards
from bertsmith.data.shards.verification import verify
from bertsmith.errors import RecipeError
from bertsmith.inference.model import Model
from bertsmith.insight import report
from bertsmith.insight.model_card import Use, pretrained_card
from bertsmith.insight.report import RunSummary
from bertsmith.models.elmo import Elmo
from bertsmith.models.family import FAMILY
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf.layouts import layout_of
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.models.word2vec import Word2VecConfig
from bertsmith.nn.layout import kernels_unavailable
from bertsmith.objectives import OBJECTIVES
from bertsmith.objectives.base import Pretraining
from bertsmith.recipe import EXTENTS, Recipe, settle
from bertsmith.runs import autoconfig, build, summary
from bertsmith.tasks import TASKS
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.train import hardware
from bertsmith.train.checkpoint import Checkpoint
from bertsmith.train.clock import WallBudget
from bertsmith.train.display import Display
from bertsmith.train.evaluate import SINGLE_EVALUATION_SHARE, Validation
from bertsmith.train.lock import Lock
from bertsmith.train.optimizers import Optimizer
from bertsmith.train.trainer import Speed, Trainer, should_capture

CONSOLE = terminal.console()
MAX_EXAMPLES_SHOWN = 4  # blanks on the terminal when it is over; the report has more
COST_BATCHES = 8  # batches by which the cost of a run is judged
MAY_CHANGE = frozenset(  # what a run that goes on may have otherwise than when it was begun
    {"out", "data.folder", "data.workers"}
    | {
        f"train.{name}"
        for name in ("steps", "epochs", "budget", "device", "compile", "evaluations", "checkpoints", "keep_checkpoints")
    }
)


def read_recipe(recipe: str | Path, overrides: Sequence[str]) -> Recipe:
    """A recipe by its name or from its file, with the changes of the command line."""
    values = config.read_toml(recipes.find(recipe))
    if "task" in values:
        raise RecipeError(recipe, "learns from labelled examples", f"Say: bertsmith finetune {recipe} DATA --out DIR")
    return config.build(config.override(values, overrides, EXTENTS), Recipe, str(recipe))


def with_paths(recipe: Recipe, data: Path | None, out: Path | None) -> Recipe:
    """The same recipe for other data, or in another folder."""
    recipe = recipe if data is None else replace(recipe, data=replace(recipe.data, folder=data))
    return recipe if out is None else replace(recipe, out=out)


def pretrain(recipe: Recipe, wall: WallBudget | None = None) -> dict[str, float]:
    """Train what the recipe describes, from where it stands, and leave a model folder and a report.

    `wall`: the time of the whole command, which then bounds the run in the place of the recipe's own time.
    """
    with Lock(recipe.out):
        settle(recipe, MAY_CHANGE)
        tokenizer, train, valid = build.load_data(recipe)
        device = hardware.select_device(recipe.train.device)
        objective = build.objective(recipe, tokenizer).to(device)
        *_, guesser = objective.exports.values()
        model = Model(guesser, tokenizer, str(recipe.out))
        began = time.monotonic()
        examples = summary.untrained_examples(recipe, model, valid)
        counts = train.frequencies()
        if wall is not None:  # when it is over the same blanks are filled again
            wall = replace(wall, reserve=wall.reserve + 1.3 * (time.monotonic() - began))
        batches = build.validation_batches(recipe, objective, tokenizer, valid, device, train)
        validation = Validation(objective, batches, valid.bytes / valid.tokens, _evaluation_seconds(recipe, wall))
        precision = hardware.select_precision(recipe.train.precision, device)
        recorded = should_capture(objective, recipe.train, precision, device)
        with Display("training") as display:
            trainer = Trainer(
                objective,
                build.feed(recipe, objective, tokenizer, train),
                Optimizer(
                    objective, recipe.optimizer, hidden_matrices=objective.hidden_matrices(), capturable=recorded
                ),
                recipe.schedule,
                recipe.train,
                folder=recipe.out,
                compute_metrics=validation,
                precision=precision,
                speed=_speed(objective, device),
                display=display,
                graphs=recorded,
                wall=wall,
            )
            if trainer.compiles and device.type == "cuda" and (lack := kernels_unavailable(device)):
                display.say(f"attention by torch's own kernels, not ours: {lack}")
            figures = trainer.fit()
        told = summary.summarise(recipe, model, trainer, train, valid, validation.batches, counts, examples)
        for name, part in objective.exports.items():
            _export(recipe.out / name, part, tokenizer, told)
        report.write(recipe.out / "report.html", told)
        places = {name: str(recipe.out / name) for name in objective.exports}
        places["report"] = str(recipe.out / "report.html")
        CONSOLE.print(_facts_table({**told.figures, **places}))
        _show(told)
    return figures


def _evaluation_seconds(recipe: Recipe, wall: WallBudget | None) -> float | None:
    """How long one evaluation of a run that is bounded by time may take."""
    budget = wall.budget if wall is not None else recipe.train.extent.budget
    return None if budget is None else SINGLE_EVALUATION_SHARE * budget


def _show(run: RunSummary) -> None:
    """Some of the blanks, filled, and in one sentence whether it has learnt."""
    for example in run.examples[:MAX_EXAMPLES_SHOWN]:
        CONSOLE.print(f"\n{example.text}")
        guesses = ", ".join(f"{word} {chance:.0%}" for word, chance in example.after[:3])
        CONSOLE.print(f"  the word was: {example.truth}   guesses: {guesses}")
    if run.verdict:
        CONSOLE.print(f"\n{run.verdict}", style="bold")


@dataclass(frozen=True)
class TrainingCost:
    """What a recipe takes to train."""

    parameters: int
    flops: float  # for one token, as papers count them
    tokens: float  # in an update


def training_cost(recipe: Recipe) -> TrainingCost:
    """What training takes, by the first batches. A recipe that does not fit its data is refused here already."""
    tokenizer, train, _ = build.load_data(recipe)
    objective = build.objective(recipe, tokenizer)
    feed, counts = build.feed(recipe, objective, tokenizer, train), Counter[str]()
    position = feed.first_position()
    for _ in range(COST_BATCHES):
        counts.update(feed(position).counts)
        position = feed.next_position(position)
    return TrainingCost(
        parameters=sum(parameter.numel() for parameter in objective.parameters()),
        flops=objective.flops(counts["squares"] / counts["tokens"]),
        tokens=counts["tokens"] / COST_BATCHES * recipe.train.gradient_accumulation,
    )


def export(recipe: Recipe, saved: Checkpoint, path: Path) -> None:
    """The model folders of a run as it was when it was saved."""
    tokenizer, train, valid = build.load_data(recipe)
    objective = build.objective(recipe, tokenizer)
    objective.load_state_dict(saved.tensors["model"])
    told = summary.summarise_checkpoint(recipe, saved, train, valid, tokenizer)
    for name, part in objective.exports.items():
        _export(path / name, part, tokenizer, told)


def check(recipe: Recipe) -> None:
    """What a recipe would cost: parameters, memory and time."""
    shape, data = recipe.model.settings, recipe.data
    prepared = _verified(data.folder)
    device = hardware.select_device(recipe.train.device)
    with torch.device("meta"):
        objective = build.untrained_objective(recipe, shape)
    count = sum(parameter.numel() for parameter in objective.parameters())
    speed = hardware.training_flops(device) / objective.flops(data.max_length)
    networks = [part.trunk.config for part in objective.exports.values()]
    memory = autoconfig.training_memory(networks, count, data.batch_tokens, objective.prediction_share)
    batches = recipe.train.gradient_accumulation
    facts = {
        "model": f"{recipe.model.kind}: {shape.layers} layers of width {shape.width}",
        "parameters": f"{count:,} in training, {shape.parameter_count:,} in the published count",
        "an update": f"{data.batch_tokens * batches:,} tokens in {batches} micro-batches",
        "memory": f"about {memory / 2**30:.1f} GiB",
        "speed": f"about {speed:,.0f} tokens/s on {hardware.describe(device)['device']}",
        "time": autoconfig.duration(recipe, speed, prepared),
    }
    CONSOLE.print(_facts_table(facts))


def _verified(folder: Path) -> Shards | None:
    """The training text of a prepared folder, if there is one: a damaged file of it is named here already."""
    found = [Shards(folder / name) for name in ("train", "valid") if (folder / name).is_dir()]
    with CONSOLE.status("verifying the shards"):
        for shards in found:
            verify(shards).wait()
    return found[0] if (folder / "train").is_dir() else None


def list_all() -> None:
    """The members of the family, the objectives, the tasks, and the recipes, each by its name."""
    table = Table("member", "layers", "width", "heads", "feed-forward", "parameters", box=None)
    for name, shape in FAMILY.items():
        layers = f"{shape.layers} + {shape.decoder_layers}" if shape.decoder_layers else shape.layers
        inner = (shape.heads, shape.feed_forward) if isinstance(shape, TransformerConfig) else ("", "")
        row = (layers, shape.width, *inner, f"{shape.parameter_count / 1e6:,.1f} M")
        table.add_row(name, *map(str, row))
    words = Word2VecConfig()
    size = "2 for each word and number"  # how many words there are, only a text tells
    table.add_row("word2vec", "1", str(words.width), "", "", f"{size}: bertsmith word2vec")
    CONSOLE.print(table)
    CONSOLE.print()
    for name, objective in OBJECTIVES.items():
        CONSOLE.print(f"objective {name}: {(objective.__doc__ or '').splitlines()[0]}")
    for name, task in TASKS.items():
        CONSOLE.print(f"task {name}: {(task.__doc__ or '').splitlines()[0]}")
    for name in recipes.names():
        CONSOLE.print(f"recipe {name}: {_title(name)}", markup=False)
    CONSOLE.print("Use one by its name: bertsmith pretrain bert-tiny --data PREPARED --out runs/mine")


def _title(name: str) -> str:
    """What a recipe is: the first line of its file, up to where a sentence ends."""
    with recipes.find(name).open(encoding="utf-8") as file:
        line = file.readline().lstrip("# ").strip()
    return re.split(r"(?<=on a laptop): |\. (?=[A-Z])", line)[0].rstrip(".:")


def _facts_table(facts: Mapping[str, str]) -> Table:
    """Names and values, one below the other."""
    table = Table(show_header=False, box=None)
    for name, value in facts.items():
        table.add_row(Text(name, "bold"), value)
    return table


def _speed(objective: Pretraining, device: torch.device) -> Speed:
    peak = hardware.peak_flops(device, torch.bfloat16) if device.type == "cuda" else None
    return Speed(peak, objective.flops)


def _export(path: Path, objective: Pretraining, tokenizer: Tokenizer, run: RunSummary) -> None:
    """A model folder: weights, settings, tokenizer and card."""
    shape = objective.trunk.config
    dialect = layout_of(shape)
    kept = {"trunk", *dialect.pretrained}  # of a next-sentence head, say, ModernBERT knows nothing
    state = {name: one for name, one in objective.state_dict().items() if name.partition(".")[0] in kept}
    if isinstance(shape, TransformerConfig) and shape.causal:
        tokenizer = tokenizer.for_prompts()  # what goes on with a text must not be told that it is over
    with folders.atomic_folder(path) as folder:
        extra: dict[str, Any] = dict(tokenizer.special_ids(dialect.special_tokens))
        if objective.pairs not in ("none", dialect.pairs):
            extra["pairs"] = objective.pairs  # our own word: what transformers' two classes mean here
        folders.write(folder, shape, state, extra)
        tokenizer.save(folder, max_length=shape.max_length, segments=shape.segments > 1)
        fills = any(name.startswith("mlm_head.") for name in state)
        use: Use = "fill_mask" if fills else "discriminator"
        use = "causal_lm" if shape.causal else "text_to_text" if shape.decoder_layers else use
        use = "features" if isinstance(objective.trunk, Elmo) else "recurrent_lm" if objective.stateful else use
        files.write(folder / "README.md", pretrained_card(run, use=use).encode())
