"""Loss curves of the exact, slow computation and of each fast path, which should coincide.

    python bench/curves.py PREPARED [--recipe tiny/bert] [--steps 300] [--paths "last layer" half ...]

One recipe is trained from the same weights on the same batches, without dropout. The exact computation takes all of the
last layer, plain attention and full precision, uncompiled. Each path changes one of these.
"""

import argparse
import io
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any, Literal

import torch
from record import record
from torch import Tensor

from bertsmith import config
from bertsmith.commands import pretrain
from bertsmith.data.batch import Tokens
from bertsmith.insight.charts import Axis, downsample
from bertsmith.models.layers import take
from bertsmith.models.transformer import Transformer
from bertsmith.nn.kernel_choice import KernelName
from bertsmith.recipe import Recipe
from bertsmith.runs import build
from bertsmith.train import hardware, log
from bertsmith.train.display import Display
from bertsmith.train.evaluate import evaluate
from bertsmith.train.optimizers import Optimizer
from bertsmith.train.step import Step
from bertsmith.train.step_metrics import Speed
from bertsmith.train.trainer import Trainer

EXACT, ALL = "exact", "all"
PATHS: dict[str, dict[str, Any]] = {  # each by what it changes
    "last layer": {"whole": False},  # only the vectors that are read are computed
    "attention": {"kernel": None},  # by the kernel that is chosen by itself
    "short": {"kernel": "short"},  # by our own kernel for short sequences
    "long": {"kernel": "long"},  # and by that for any
    "half": {"precision": "bfloat16"},  # products in half precision, by autocast
    "pure": {"precision": "pure"},  # all in half precision but the weights that are kept
    "compile": {"compile": "always", "kernel": "short"},  # in full precision no other kernel fits into one graph
    "played": {"compile": "always", "kernel": "short", "played": True},  # and that graph recorded once and played
    ALL: {"whole": False, "kernel": None, "precision": "pure", "compile": "always", "played": True},  # a fast run
}
SHADES = ("#2f6fb3", "#c8651b", "#2c7a4b", "#8c7a1f", "#8a4fb0", "#b3312f", "#2a8c96", "#d08ba8", "#23262b")
TONES = dict(zip(PATHS, SHADES, strict=True))
WIDTH, HEIGHT, LEFT, RIGHT, FLOOR = 900, 500, 64, 660, 1e-8  # what differs by less is drawn on the ground
STYLE = """text { font: 13px system-ui, sans-serif; fill: #6a707a; font-variant-numeric: tabular-nums; }
.title { font-size: 18px; font-weight: 600; fill: #23262b; } .end { text-anchor: end; } .middle { text-anchor: middle; }
.paper { fill: #fdfdfb; } .level { stroke: #e4e5e1; } path { fill: none; stroke-width: 1.5; stroke-linejoin: round; }
.exact { stroke: #c9ccd1; stroke-width: 7; }"""


class Whole(Transformer):
    """The network with all of its last layer computed, whatever is read of it."""

    def forward(self, tokens: Tokens, kernel: KernelName | None = None, *, selected: Tensor | None = None) -> Tensor:
        return take(super().forward(tokens, kernel), selected)


@dataclass(frozen=True, kw_only=True)
class Way:
    """How the same numbers are come by. As it stands: the exact one."""

    whole: bool = True  # all of the last layer
    kernel: KernelName | None = "eager"
    precision: Literal["float32", "bfloat16", "pure"] = "float32"
    compile: Literal["never", "always"] = "never"
    played: bool = False  # as a CUDA graph


def way_of(name: str, exact: Way, device: torch.device) -> Way | None:
    """The way of this name; None for one that needs a GPU where there is none. All together is all that there is."""
    cpu, way = device.type == "cpu", replace(exact, **PATHS.get(name, {}))
    if cpu and name == ALL:
        return replace(way, compile="never", played=False)
    return None if cpu and (way.kernel in ("short", "long") or way.compile == "always") else way


def trained(recipe: Recipe, way: Way, folder: Path) -> tuple[list[float], dict[str, float]]:
    """A run of `bertsmith pretrain` on one path: the loss of each step, and the metrics at the end."""
    recipe = replace(recipe, train=replace(recipe.train, precision=way.precision, compile=way.compile))
    tokenizer, train, valid = build.load_data(recipe)
    device = hardware.select_device(recipe.train.device)
    objective = build.objective(recipe, tokenizer)
    if way.whole:
        whole = Whole(objective.trunk.config)
        whole.load_state_dict(objective.trunk.state_dict())
        objective.trunk = whole
    objective.trunk.kernel = way.kernel
    objective = objective.to(device)
    torch._dynamo.reset()
    hidden = objective.hidden_matrices()
    optimizer = Optimizer(objective, recipe.optimizer, hidden_matrices=hidden, capturable=way.played)
    trainer = Trainer(
        Step(objective, optimizer, recipe.train, hardware.select_precision(way.precision, device)),
        build.feed(recipe, objective, tokenizer, train),
        recipe.schedule,
        recipe.train,
        folder=folder,
        compute_metrics=partial(
            evaluate, objective, build.validation_batches(recipe, objective, tokenizer, valid, device), 1.0
        ),
        speed=Speed(None, lambda attended: 0.0),
        display=Display(stream=io.StringIO()),
        tensorboard=False,
    )
    figures = trainer.fit()
    steps = [line for line in log.read(folder / log.NAME) if line["kind"] == "step"]
    losses = [float(line["loss"]) for line in steps]
    return losses, {"held_out_loss": figures["loss"], "seconds": steps[-1]["seconds"]}


def compared(losses: Sequence[float], exact: Sequence[float]) -> dict[str, float]:
    """How far a curve lies from the exact one."""
    apart = _apart(losses, exact)
    return {"largest_difference": max(apart), "at_step": 1 + apart.index(max(apart)), "mean_difference": mean(apart)}


def picture(title: str, curves: Mapping[str, Sequence[float]]) -> str:
    """Top: all curves over the exact one, which is drawn broad; bottom: their differences from it, on a log scale."""
    exact, others = curves[EXACT], {name: losses for name, losses in curves.items() if name != EXACT}
    levels = [loss for losses in curves.values() for loss in losses]
    x, above = Axis(1, len(exact), LEFT, RIGHT), Axis(min(levels), max(levels), 240, 66)
    below, key = Axis(FLOOR, 1.0, HEIGHT - 46, 292, logarithmic=True), RIGHT + 24

    def line(values: Sequence[float], y: Axis, style: str) -> str:
        points = downsample([(step, min(max(value, y.low), y.high)) for step, value in enumerate(values, 1)], 1000)
        return f'<path {style} d="M{" ".join(f"{x.position(a):.1f},{y.position(b):.1f}" for a, b in points)}"/>'

    parts = [f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>', _text(24, 34, title, "title")]
    parts += [_text(LEFT, 58, "training loss"), _text(LEFT, 284, "difference from the exact loss")]
    for y, tick in [(above, tick) for tick in above.ticks()] + [(below, tick) for tick in below.ticks()[::2]]:
        at = f"{y.position(tick):.1f}"
        parts.append(f'<line class="level" x1="{LEFT}" x2="{RIGHT}" y1="{at}" y2="{at}"/>')
        parts.append(_text(LEFT - 8, y.position(tick) + 4, f"{tick:g}".replace("e-0", "e-"), "end"))
    parts += [_text(x.position(tick), HEIGHT - 26, f"{tick:,.0f}", "middle") for tick in x.ticks()]
    parts += [_text((LEFT + RIGHT) / 2, HEIGHT - 8, "step", "middle"), line(exact, above, 'class="exact"')]
    parts += [f'<path class="exact" d="M{key},74 h22"/>', _text(key + 30, 78, EXACT)]
    for place, (name, losses) in enumerate(others.items(), 1):
        tone, apart, at = f'stroke="{TONES[name]}"', _apart(losses, exact), 74 + 26 * place
        parts += [line(losses, above, tone), line(apart, below, tone), f'<path {tone} d="M{key},{at} h22"/>']
        parts.append(_text(key + 30, at + 4, f"{name}: at most {max(apart):.1e}"))
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
    return "\n".join([start, f"<title>{escape(title)}</title><style>{STYLE}</style>", *parts, "</svg>\n"])


def _apart(losses: Sequence[float], exact: Sequence[float]) -> list[float]:
    return [abs(one - other) for one, other in zip(losses, exact, strict=True)]


def _text(x: float, y: float, words: str, kind: str = "") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--recipe", type=Path, default=Path("tiny/bert"))
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--paths", nargs="+", choices=PATHS, default=list(PATHS))
    parser.add_argument("--kernel", choices=("eager", "grouped"), default="eager", help="of the exact way")
    parser.add_argument("--out", type=Path, default=Path("bench/results/curves.json"))
    parser.add_argument("--picture", type=Path, default=Path("bench/results/curves.svg"))
    options = parser.parse_args()
    changes = ["model.dropout=0.0", "model.attention_dropout=0.0", "train.evaluations=0", "train.checkpoints=0"]
    recipe = pretrain.read_recipe(options.recipe, [*changes, f"train.steps={options.steps}"])
    recipe = replace(recipe, data=replace(recipe.data, folder=options.data))
    device, exact = hardware.select_device(recipe.train.device), Way(kernel=options.kernel)
    curves, rows, failed = {}, {}, 0
    title = f"{recipe.model.kind}, {options.steps:,} steps on {hardware.describe(device)['device']}"
    print(f"{title}\n{'':12}{'largest':>10}{'at step':>9}{'mean':>10}{'held out':>10}{'seconds':>9}")
    for name in (EXACT, *options.paths):
        way = way_of(name, exact, device)
        if way is None:
            print(f"{name:12} skipped: it needs a CUDA device", flush=True)
            continue
        try:
            with tempfile.TemporaryDirectory() as folder:
                curves[name], figures = trained(recipe, way, Path(folder))
        except Exception as error:  # one path that fails takes no other with it
            if name == EXACT:
                raise
            failed += 1
            print(f"{name:12} FAILED: {error}", flush=True)
            continue
        rows[name] = row = compared(curves[name], curves[EXACT]) | figures
        row["held_out_difference"] = row["held_out_loss"] - rows[EXACT]["held_out_loss"]
        largest, step, average, _, seconds, held_out = row.values()
        print(f"{name:12}{largest:10.1e}{step:9}{average:10.1e}{held_out:+10.1e}{seconds:9.1f}", flush=True)
        noise = mean(abs(one - other) for one, other in pairwise(curves[EXACT]))
        settings = {"recipe": config.dump(recipe), "kernel": options.kernel, "paths": PATHS, "from_step_to_step": noise}
        record(options.out, {**settings, "rows": rows}, hardware.describe(device))
        options.picture.write_text(picture(title, curves), encoding="utf-8")
    print(f"the exact loss moves by {noise:.1e} from one step to the next")
    raise SystemExit(f"{failed} paths failed" if failed else 0)


if __name__ == "__main__":
    main()
