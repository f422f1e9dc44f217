"""`check`: what a pretraining recipe would cost, on this machine or on many GPUs."""

import math
from pathlib import Path

import torch

from bertsmith import terminal
from bertsmith.commands.pretrain import facts_table
from bertsmith.data.shards.shards import Shards
from bertsmith.data.shards.verification import verify
from bertsmith.errors import RecipeError
from bertsmith.objectives.base import Pretraining
from bertsmith.recipe import Recipe
from bertsmith.runs import autoconfig, build, scaling
from bertsmith.train import hardware
from bertsmith.train.forward import is_recurrent

CONSOLE = terminal.console()
MIN_ROWS = 8  # sequences of a micro-batch


def check(recipe: Recipe, gpus: int | None = None, gpu: str = "h200") -> None:
    """Print parameters, memory, speed and time; with `gpus`, those of so many GPUs of a kind, by a stated model."""
    shape, data = recipe.model.settings, recipe.data
    prepared = _verified(data.local)
    with torch.device("meta"):
        objective = build.untrained_objective(recipe, shape)
    count = sum(parameter.numel() for parameter in objective.parameters())
    batches = recipe.train.gradient_accumulation
    facts = {
        "model": f"{recipe.model.kind}: {shape.layers} layers of width {shape.width}",
        "parameters": f"{count:,} in training, {shape.parameter_count:,} in the published count",
        "an update": f"{data.batch_tokens * batches:,} tokens in {batches} micro-batches",
    }
    if gpus is None:
        device = hardware.select_device(recipe.train.device)
        speed = hardware.training_flops(device) / objective.flops(data.max_length)
        facts |= {
            "memory": f"about {_memory(recipe, objective, count, data.batch_tokens) / 2**30:.1f} GiB",
            "speed": f"about {speed:,.0f} tokens/s on {hardware.describe(device)['device']}",
            "time": autoconfig.duration(recipe, speed, prepared),
        }
    else:
        facts |= _on_gpus(recipe, objective, count, prepared, gpus, gpu)
    CONSOLE.print(facts_table(facts))


def _on_gpus(
    recipe: Recipe, objective: Pretraining, parameters: int, prepared: Shards | None, gpus: int, name: str
) -> dict[str, str]:
    """The facts of a run on many GPUs."""
    data, kind = recipe.data, scaling.gpu_named(name)
    update = data.batch_tokens * recipe.train.gradient_accumulation
    most = update // (MIN_ROWS * data.max_length)
    if gpus > most:
        fact = f"{gpus} have too little to do: an update of {update:,} tokens is enough for {most}"
        raise RecipeError("gpus", fact, "Give fewer, or a larger data.batch_tokens or train.gradient_accumulation")
    each = update // math.lcm(recipe.train.gradient_accumulation, gpus)
    flops = objective.flops(data.max_length)
    plan = scaling.plan(
        gpus,
        kind,
        tokens=update,
        flops_per_token=flops,
        parameters=parameters,
        micro_batches=update // (each * gpus),
        overlapped=_is_overlapped(recipe, objective),
        muon_parameters=_muon_parameters(recipe, objective),
        sharded=recipe.train.shard_optimizer,
    )
    memory = _memory(recipe, objective, parameters, each)
    fits = "" if memory < kind.memory else f": more than the {kind.memory / 1e9:.0f} GB it has"
    measured = "as measured on one" if kind.measured else "in proportion to an H200; not measured"
    facts = {
        "GPUs": f"{gpus} x {name.upper()}, {kind.flops / 1e12:.0f} TFLOP/s each ({measured})",
        "memory": f"about {memory / 2**30:.1f} GiB on each, with micro-batches of {each:,} tokens{fits}",
        "speed": f"about {plan.tokens_per_second:,.0f} tokens/s; GPUs compute {plan.efficiency:.0%} of the time",
        "time": autoconfig.duration(recipe, plan.tokens_per_second, prepared),
        "a checkpoint": f"{12 * parameters / 1e9:.1f} GB",
    }
    if gpus > 1:
        needed = plan.network_needed(parameters)
        share = scaling.MAX_NETWORK_SHARE
        facts["network"] = (
            f"{needed / 1e9:,.0f} GB/s for each GPU would keep the sum of gradients below {share:.0%} of the time; "
            f"assumed are {scaling.WITHIN_NODE / 1e9:.0f} within {scaling.GPUS_PER_NODE} GPUs of a machine and "
            f"{scaling.BETWEEN_NODES / 1e9:.0f} between machines"
        )
    return facts


def _muon_parameters(recipe: Recipe, objective: Pretraining) -> int:
    """How many weights Muon updates."""
    parameters = dict(objective.named_parameters())
    muon = recipe.optimizer.hidden_optimizer == "muon"
    return sum(parameters[name].numel() for name in objective.hidden_matrices()) if muon else 0


def _is_overlapped(recipe: Recipe, objective: Pretraining) -> bool:
    """Whether gradients are sent during the backward pass on a GPU: not if that is compiled, or sums are in order."""
    train = recipe.train
    compiled = train.compile != "never" and train.precision != "float32" and not is_recurrent(objective)
    return not compiled and not train.deterministic


def _memory(recipe: Recipe, objective: Pretraining, parameters: int, batch_tokens: int) -> float:
    networks = [part.trunk.config for part in objective.exports.values()]
    return autoconfig.training_memory(networks, parameters, batch_tokens, objective.prediction_share)


def _verified(folder: Path) -> Shards | None:
    """The training shards of a prepared folder, if it exists; a damaged file is reported here."""
    splits = [Shards(folder / name) for name in ("train", "valid") if (folder / name).is_dir()]
    with CONSOLE.status("verifying the shards"):
        for shards in splits:
            verify(shards).wait()
    return splits[0] if (folder / "train").is_dir() else None
