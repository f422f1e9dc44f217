"""The seven-minute race: recipes pretrained on one text for the same time, then scored alike, next to transformers.

    python bench/race.py TEXT DATA [--recipes bert-base "bert-base objective.mask_rate=0.15"] [--minutes 7] ...

TEXT is the training text; DATA holds blimp/ and glue/. Tokenizer and shards are made once, before any clock runs, and
kept under --work; `--recipes` without a value makes only them. Each recipe then runs as by `bertsmith pretrain`, for
this many minutes or as its overrides say; with overrides it is a row of its own. The clock counts data loading, steps
and logging until the device has finished; compilation comes before it, and everything else after it.

Scores: masked tokens of held-out documents, 15 % whatever the recipe masks; BLiMP, by pseudo-log-likelihood; and five
GLUE tasks, on their dev sets with the weights of the last step, fine-tuned with other settings by
`--tuning "task.pooling=mean optimizer.learning_rate=1e-4"`, again in a row of its own. Figures are written as soon as
they are known, and the same command resumes: scores of the same recipe and code are not computed again. `--only-score`
takes existing models, whatever code has made them.
"""

import argparse
import gc
import hashlib
import io
import json
import multiprocessing
import os
import tempfile
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import redirect_stdout, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from record import code, record
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bertsmith import config, recipes
from bertsmith.commands import prepare
from bertsmith.commands import pretrain as pretraining
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.shards.shards import Shards
from bertsmith.errors import BertsmithError, suggest
from bertsmith.inference import minimal_pairs
from bertsmith.inference.load import load
from bertsmith.metrics.intervals import confidence_interval
from bertsmith.models.hf import folder as folders
from bertsmith.recipe import EXTENTS, FineTune, Recipe
from bertsmith.runs import finetuning, task_data, task_recipe
from bertsmith.runs.race_metrics import MAX_LENGTH, held_out_scores
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig
from bertsmith.train import hardware, log

TASKS = {  # GLUE's, with the measures whose mean is the score
    "CoLA": ("matthews",),
    "SST-2": ("accuracy",),
    "MRPC": ("f1", "accuracy"),
    "RTE": ("accuracy",),
    "STS-B": ("pearson", "spearman"),
}
LONG = "SST-2"  # one epoch and one seed of it are enough
BLIMP, MEAN = "BLiMP", "mean"
TUNING = f"data.max_length={MAX_LENGTH} data.batch_size=32 optimizer.learning_rate=5e-5"
TUNING += " optimizer.betas=[0.9,0.999] optimizer.weight_decay=0.01"
TUNING += " dropout=0.1 optimizer.max_grad_norm=1.0 schedule.warmup=0.06 keep=last"
TUNING += " train.evaluations=0 train.checkpoints=0"  # measured at the end
PUBLISHED = [(62.1, 0.0), (13.1, 2.8), (84.4, 0.0), (70.9, 1.4), (51.9, 0.5), (31.4, 2.1), (50.3, 0.0)]
YARDSTICK = {  # transformers' BERT-base, compiled, by the same protocol on one H200; points, deviation between seeds
    "pretrained": {"tokens": 192e6, "tokens_per_second": 455e3, "held_out_loss": 3.66},
    "summary": dict(zip((BLIMP, *TASKS, MEAN), PUBLISHED, strict=True)),
}
SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much of everything."""

    minutes: float = 7.0
    vocabulary: int = 30_522
    pairs: int = 200  # of each phenomenon of BLiMP
    seeds: int = 3
    examples: int | None = None  # the first of each labelled file; None for all


TRIAL = Size(minutes=0.2, vocabulary=8_192, pairs=5, seeds=1, examples=300)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One figure to be measured: on what, with which chance, of which model, and how."""

    task: str
    seed: int
    model: Path
    data: Path
    tuning: tuple[str, ...]  # overrides of how GLUE's tasks are learnt
    size: Size


def prepared(text: Path, work: Path, vocabulary: int) -> Path:
    """The shards of the text with its tokenizer, made unless they exist; the folder's name has their settings."""
    folder = work / f"{text.name.partition('.')[0]}-{Corpus([str(text)]).bytes}-{vocabulary}"
    if not (folder / "tokenizer" / "tokenizer.json").exists():
        prepare.tokenizer([str(text)], folder / "tokenizer", TokenizerConfig(vocabulary=vocabulary))
    if not (folder / "data" / "summary.json").exists():
        prepare.prepare([str(text)], folder / "data", folder / "tokenizer")
    return folder / "data"


def raced(entry: str, data: Path, minutes: float) -> tuple[str, Recipe]:
    """A recipe as it takes part: on this text, for this time, without evaluations or checkpoints; and its name."""
    path, *overrides = entry.split()
    own = any(text.partition("=")[0] in EXTENTS[0] for text in overrides)  # what an entry says of its length holds
    usual = ["train.evaluations=0", "train.checkpoints=0", f"train.budget={60 * minutes:g}s"]
    recipe = pretraining.read_recipe(path, [*usual, *overrides])
    name = " ".join((recipes.find(path).stem, *overrides)) + (
        "" if own or minutes == Size.minutes else f", {minutes:g} min"
    )
    return name, replace(recipe, data=replace(recipe.data, folder=data))


def identity(recipe: Recipe) -> str:
    """A recipe without its paths; its text is given by the name of the folder."""
    text = Path(recipe.data.folder.parent.name)
    return config.dump(replace(recipe, out=Path(), data=replace(recipe.data, folder=text)))


def pretrain(recipe: Recipe) -> dict[str, Any]:
    """What `bertsmith pretrain` does, and its figures. The log's last step was written when the device was done."""
    pretraining.pretrain(recipe)
    last = [line for line in log.read(recipe.out / log.NAME) if line["kind"] == "step"][-1]
    return {
        "seconds": last["seconds"],
        "steps": last["step"],
        "skipped": last["skipped"],
        "tokens": last["tokens"],
        "tokens_per_second": last["tokens"] / last["seconds"],
        "epochs": last["tokens"] / Shards(recipe.data.folder / "train").tokens,
        "held_out_loss": held_out_scores(recipe.out / "model", recipe.data.folder / "valid").get("masked_loss"),
        "device": hardware.describe(hardware.select_device("auto"))["device"],
    }


def jobs(tasks: Sequence[str], model: Path, data: Path, tuning: tuple[str, ...], size: Size) -> list[Job]:
    """The scores of a model that are to be computed, the longest first so that it is not left at the end."""
    seeds = {LONG: 1, BLIMP: 1} | {task: size.seeds for task in TASKS if task != LONG}
    wanted = [(task, seed) for task, count in seeds.items() if task in tasks for seed in range(count)]
    return [Job(task=task, seed=seed, model=model, data=data, tuning=tuning, size=size) for task, seed in wanted]


def work(job: Job) -> float:
    """The score of a job, in points."""
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
        share = blimp(job) if job.task == BLIMP else tuned(job, Path(folder))
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # the other processes want it too
    return round(100 * share, 3)


def blimp(job: Job) -> float:
    """Minimal pairs judged right, the mean over phenomena; each piece is hidden alone."""
    archive = job.data / "blimp" / "blimp.tar.xz"
    pairs = minimal_pairs.read_minimal_pairs(archive if archive.exists() else archive.parent, job.size.pairs)
    model = load(job.model, hardware.select_device("auto").type)
    return minimal_pairs.evaluate(
        model.masked_lm(), model.tokenizer, pairs, pll_form="original", device=model.device
    ).accuracy


def learning(job: Job, out: Path) -> FineTune:
    """How a task of GLUE is learnt."""
    epochs, place = 1 if job.task == LONG else 4, job.data / "glue" / job.task
    overrides = [*TUNING.split(), f"train.epochs={epochs}", *job.tuning, f"train.seed={job.seed}"]
    return task_recipe.build_recipe(job.model, place, out, dev=None, task="classify", seeds=1, overrides=overrides)


def tuned(job: Job, folder: Path) -> float:
    """A task learnt and scored as `bertsmith finetune` does it."""
    given = learning(job, folder / "run")
    base, tokenizer, data = folders.read(given.model), Tokenizer.load(given.model), task_data.read(given)
    given = replace(given, data=replace(given.data, max_length=min(given.data.max_length, base.config.max_length)))
    train, dev = (replace(part, examples=part.examples[: job.size.examples]) for part in (data.train, data.dev))
    data = replace(data, train=train, dev=dev)
    _, figures, _ = finetuning.run_seed(
        given, base, tokenizer, data, task_data.encode(given, base.config, tokenizer, data)
    )
    return mean(figures[name] for name in TASKS[job.task])


def score(row: dict[str, Any], wanted: Sequence[Job], processes: int, keep: Callable[[], None]) -> int:
    """Compute the scores that a row lacks, several at a time. Returns the number of failures."""
    scores, began, failed = row["scores"], time.monotonic() - row["scoring_seconds"], 0
    left = [job for job in wanted if str(job.seed) not in scores.get(job.task, {})]
    threads = max(1, (os.cpu_count() or 1) // processes)
    with ProcessPoolExecutor(processes, SPAWN, torch.set_num_threads, (threads,)) as pool:
        running = {pool.submit(work, job): job for job in left}
        for future in as_completed(running):
            job, row["scoring_seconds"] = running[future], round(time.monotonic() - began, 1)
            name = f"[{row['scoring_seconds']:5.1f} s] {job.task} {job.seed}"
            if error := future.exception():
                failed += 1
                print(f"{name}: FAILED: {error}", flush=True)
            else:
                scores.setdefault(job.task, {})[str(job.seed)] = future.result()
                keep()
                print(f"{name}: {future.result():z.1f}", flush=True)
    return failed


def summary(scores: Mapping[str, Mapping[str, float]]) -> dict[str, tuple[float, float]]:
    """Mean and deviation over seeds; and the mean over tasks, if all are there."""
    found = {task: confidence_interval(list(scores[task].values())) for task in (BLIMP, *TASKS) if task in scores}
    known = {task: (one.mean, one.deviation) for task, one in found.items()}
    return known | ({MEAN: (mean(known[task][0] for task in TASKS), 0.0)} if set(TASKS) <= set(known) else {})


def show(rows: Mapping[str, Mapping[str, Any]]) -> None:
    """The table, the yardstick last."""
    table = Table(caption="points on dev sets ± deviation between seeds; loss of held-out text, 15 % hidden")
    table.add_column("recipe")
    for heading in ("M tokens", "k tokens/s", "loss", BLIMP, *TASKS, MEAN):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, row in {**rows, "transformers, published": YARDSTICK}.items():
        seen, speed, loss = (row["pretrained"][key] for key in ("tokens", "tokens_per_second", "held_out_loss"))
        figures = [f"{seen / 1e6:,.{0 if seen > 1e8 else 2}f}", f"{speed / 1e3:,.0f}", f"{loss:.2f}" if loss else "-"]
        table.add_row(escape(name), *figures, *(cell(*row["summary"].get(task, ())) for task in (BLIMP, *TASKS, MEAN)))
    Console(width=150).print(table)


def cell(points: float | None = None, deviation: float = 0.0) -> str:
    """Points, and their deviation where there are several seeds."""
    spread = f" ± {deviation:.1f}" if deviation else ""
    return "-" if points is None else f"{points:z.1f}{spread}"


def kept(rows: Mapping[str, Any], recipe: str, code: str | None) -> dict[str, Any] | None:
    """What is known of the pretraining of a recipe, by this code where one is named."""
    for row in rows.values():
        with suppress(BertsmithError):  # what was written before a setting had its name is another recipe
            before = config.build(tomllib.loads(row["recipe"]), Recipe, "recipe")  # with what settings there are now
            if config.dump(before) == recipe and code in (None, row["code"]):
                return {name: row[name] for name in ("recipe", "code", "folder", "pretrained")}
    return None


def alike(row: Mapping[str, Any], protocol: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """The scores of a row that were measured by this protocol; the number of pairs is BLiMP's alone."""
    changed = {name for name in protocol if row["protocol"].get(name) != protocol[name]}
    return {task: found for task, found in row["scores"].items() if changed <= (set() if task == BLIMP else {"pairs"})}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--recipes", nargs="*", default=["bert-base"], help="each perhaps with overrides")
    parser.add_argument("--minutes", type=float, help="of pretraining, 7 if not said")
    parser.add_argument("--vocabulary", type=int, help="pieces, 30,522 if not said")
    parser.add_argument("--seeds", type=int, help="of each task but SST-2, 3 if not said")
    parser.add_argument("--pairs", type=int, help="of each phenomenon of BLiMP, 200 if not said")
    parser.add_argument("--tasks", default="all", help="to be scored, as in BLiMP,CoLA; or none")
    parser.add_argument("--tuning", type=str.split, default=[], help="overrides of fine-tuning; they make another row")
    parser.add_argument("--processes", type=int, help="that score at a time: 5 on a GPU, else one a core")
    parser.add_argument("--only-score", action="store_true", help="pretrain nothing, score what was pretrained")
    parser.add_argument("--trial", action="store_true", help="little of everything, to see it work")
    parser.add_argument("--work", type=Path, default=Path("runs/race"))
    parser.add_argument("--out", type=Path, help="bench/results/race.json, or one under --work in a trial")
    options = parser.parse_args()
    options.tasks = {"all": [BLIMP, *TASKS], "none": []}.get(options.tasks, options.tasks.split(","))
    if unknown := [task for task in options.tasks if task not in (BLIMP, *TASKS)]:
        parser.error(f"--tasks: unknown task '{unknown[0]}'. {suggest(unknown[0], (BLIMP, *TASKS))}")
    options.out = options.out or (options.work / "trial.json" if options.trial else Path("bench/results/race.json"))
    options.processes = options.processes or (5 if torch.cuda.is_available() else os.cpu_count())
    said = {name: value for name in asdict(TRIAL) if (value := getattr(options, name, None)) is not None}
    options.size = replace(TRIAL if options.trial else Size(), **said)
    return options


def main() -> None:
    options, own, failed = arguments(), code(), 0
    size, tuning = options.size, " ".join(options.tuning)
    protocol = {"tuning": tuning, "pairs": size.pairs, "examples": size.examples, "code": own}
    rows = json.loads(options.out.read_text(encoding="utf-8"))["rows"] if options.out.exists() else {}
    where = hardware.describe(hardware.select_device("auto"))

    def keep() -> None:
        for row in rows.values():
            row["summary"] = summary(row["scores"])
        settings = {"tuning": TUNING, "epochs": f"4, of {LONG} 1", "measures": TASKS} | asdict(size)
        record(options.out, {"settings": settings, "yardstick": YARDSTICK, "rows": rows}, where)

    ask = partial(jobs, data=options.data, tuning=tuple(options.tuning), size=size)
    for job in ask(options.tasks, Path()):
        learning(job, Path())  # wrong settings are refused before any training
    data = prepared(options.text, options.work, size.vocabulary)
    entries = {entry: raced(entry, data, size.minutes) for entry in options.recipes}
    if len({name for name, _ in entries.values()}) < len(options.recipes):
        raise SystemExit("--recipes: two of them have the same name. Rename a file, or leave one out.")
    for entry, (name, recipe) in entries.items():
        same = identity(recipe)
        found = kept(rows, same, None if options.only_score else own)
        if found is None and options.only_score:
            raise SystemExit(f"{options.out}: knows no run of {entry}. Run it without --only-score.")
        if found is None:
            folder = f"{recipes.find(entry.split()[0]).stem}-{hashlib.sha256((same + own).encode()).hexdigest()[:8]}"
            with ProcessPoolExecutor(1, SPAWN) as pool:  # each recipe begins in a process as fresh as the first
                future = pool.submit(pretrain, replace(recipe, out=options.work / folder))
            if error := future.exception():
                failed += 1
                print(f"{name}: FAILED: {error}", flush=True)
                continue
            figures = future.result()
            found = {"recipe": same, "code": own, "folder": folder, "pretrained": figures}
            print(f"{name}: {figures['tokens']:,} tokens in {figures['seconds']:.1f} s", flush=True)
        name += f", tuned {tuning}" if tuning else ""
        before = rows.get(name, {})
        scores = alike(before, protocol) if before.get("folder") == found["folder"] else {}
        spent = before["scoring_seconds"] if scores else 0.0
        rows[name] = {**found, "protocol": protocol, "scores": scores, "scoring_seconds": spent}
        keep()
        tasks = [task for task in options.tasks if task != BLIMP or found["pretrained"]["held_out_loss"] is not None]
        failed += score(rows[name], ask(tasks, options.work / found["folder"] / "model"), options.processes, keep)
    if rows:
        show(rows)
    if failed:
        raise SystemExit(f"{failed} runs failed; the same command goes on")


if __name__ == "__main__":
    try:
        main()
    except BertsmithError as error:
        raise SystemExit(str(error)) from None
