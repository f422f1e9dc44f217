"""Fine-tuning scores compared with transformers' own models, with the same hyperparameters, in one run.

    python bench/parity.py MODEL DATA [--tasks SST-2,CoLA] [--seeds 5] [--processes 5] [--minutes 9] [--out FILE]

MODEL is a BERT's folder; DATA holds glue/, conll2003/ and squad/. Both sides take their hyperparameters from one
recipe, read the same examples and are scored by the same functions. Theirs is a plain loop around AutoModelFor..., with
their tokenizer, their padding, and the treatment of tags and answers in their example scripts. Nothing is selected on
the dev set: the last step is scored.

Each finished run is written at once as a line of a file next to --out; the same command resumes from there, and
removing that file starts again. Intervals are at 95 %: of twenty rows that truly agree, one is expected to differ.
"""

import argparse
import gc
import io
import json
import lzma
import math
import multiprocessing
import os
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from record import code as hashed
from record import record
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from bertsmith.data.labelled.glue import GLUE
from bertsmith.inference.load import load
from bertsmith.metrics import scores
from bertsmith.metrics.entities import entity_scores
from bertsmith.metrics.intervals import Difference, Interval, confidence_interval, difference
from bertsmith.metrics.squad import squad_scores
from bertsmith.recipe import FineTune
from bertsmith.runs import finetuning, task_data, task_recipe
from bertsmith.train import hardware, log

# The longest runs first, so that no long one is left over at the end; with the figures that the table shows.
TASKS = {
    "SST-2": ("accuracy",),
    "squad": ("f1", "exact"),
    "conll2003": ("f1",),
    "CoLA": ("matthews",),
    "STS-B": ("spearman",),
    "MRPC": ("accuracy_f1",),
    "RTE": ("accuracy",),
    "zero-shot": ("spearman",),  # STS-B by the model's own vectors, compared with sentence-transformers
}
OURS, THEIRS = "bertsmith", "transformers"
FEW = ("squad", "conll2003")  # tasks with few seeds
NEAR = 0.005  # how far their means may be apart
HYPER_PARAMETERS = [
    "optimizer.learning_rate=5e-5",
    "optimizer.betas=[0.9, 0.999]",
    "optimizer.epsilon=1e-6",
    "optimizer.weight_decay=0.01",
    "optimizer.max_grad_norm=1.0",
    "schedule.warmup=0.1",
    "train.epochs=3",
    "data.batch_size=32",
    "keep=last",
    "train.evaluations=0",  # only the one at the end
    "train.checkpoints=0",
]
TOGETHER = 256  # sequences in one pass of their evaluation
TARGETS = ("labels", "start_positions", "end_positions")

Row = dict[str, Tensor]  # one sequence in their words: input_ids, attention_mask, token_type_ids and a target


@dataclass(frozen=True)
class Job:
    """One run: side, task, seed, and the number of examples if not all."""

    side: str
    task: str
    seed: int
    examples: int | None = None


@dataclass(frozen=True)
class Place:
    """What is the same for all runs."""

    model: Path
    data: Path
    deadline: float  # no run begins after it, by the system's clock
    code: dict[str, str]  # of each side, a hash of what its figures depend on


def recipe(job: Job, place: Place, out: Path) -> FineTune:
    """What both sides follow."""
    folder = place.data / "glue" / job.task if job.task in GLUE else place.data / job.task
    length = 384 if job.task == "squad" else 128
    overrides = [*HYPER_PARAMETERS, f"data.max_length={length}", f"train.seed={job.seed}"]
    if job.task == "squad":
        overrides += ["task.overlap=128", "task.max_answer_length=30", "task.n_best=20"]
    return task_recipe.build_recipe(place.model, folder, out, dev=None, task=None, seeds=1, overrides=overrides)


def work(job: Job, place: Place) -> dict[str, Any] | None:
    """A run in a process of its own; None where it is too late to begin."""
    if time.time() > place.deadline:
        return None
    began = time.monotonic()
    if job.task == "zero-shot":
        outcome: dict[str, Any] = {"figures": zero_shot(job, place)}
    else:
        with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
            given = recipe(job, place, Path(folder) / "run")
            outcome = ours(given) if job.side == OURS else theirs(given)
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # the other processes want it too
    where = hardware.describe(hardware.select_device("auto"))["device"]
    seconds = round(time.monotonic() - began, 1)
    return {**asdict(job), **outcome, "seconds": seconds, "code": place.code[job.side], "device": where}


def ours(given: FineTune) -> dict[str, Any]:
    """As `bertsmith finetune` does it."""
    figures = dict(finetuning.finetune(given)["runs"][0]["metrics"])
    figures.pop("seconds")
    steps = int(figures.pop("step"))
    losses = [float(line["loss"]) for line in log.read(given.out / "seed-0" / log.NAME) if line["kind"] == "step"]
    return {"figures": figures, "steps": steps, **course(losses)}


def theirs(given: FineTune) -> dict[str, Any]:
    """A plain loop round a model of transformers."""
    transformers: Any = import_module("transformers")
    transformers.logging.set_verbosity_error()  # a new head has no weights yet: that is the point
    transformers.logging.disable_progress_bar()
    data, device = task_data.read(given), hardware.select_device(given.train.device)
    tokenizer = transformers.AutoTokenizer.from_pretrained(given.model)
    number = getattr(given.task.settings, "answer", "") == "number"
    labels = () if number else data.labels
    kinds: dict[str, Callable[..., Theirs]] = {"classify": Classes, "tag": Tags, "answer": Spans}
    kind = kinds[given.task.kind](given, tokenizer, labels)
    torch.manual_seed(given.train.seed)
    heads = {} if given.task.kind == "answer" else {"num_labels": len(labels) or 1}
    opener = getattr(transformers, f"AutoModelFor{kind.model}")
    model = opener.from_pretrained(given.model, dtype=torch.float32, **heads).to(device)
    losses = train(model, kind.rows(data.train.examples), kind.padding, given, device)
    dev = kind.rows(data.dev.examples)
    figures = kind.score(data.dev.examples, outputs(model, dev, kind.padding, given, device))
    return {"figures": figures, "steps": len(losses), **course(losses)}


def train(
    model: Any, rows: Sequence[Row], padding: Mapping[str, int], given: FineTune, device: torch.device
) -> list[float]:
    """Fine-tune; the loss of every step."""
    transformers: Any = import_module("transformers")
    plain = [weight for name, weight in model.named_parameters() if "bias" in name or "LayerNorm" in name]
    others = [weight for name, weight in model.named_parameters() if not ("bias" in name or "LayerNorm" in name)]
    groups = [{"params": others, "weight_decay": given.optimizer.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    first, second = given.optimizer.betas
    optimizer = torch.optim.AdamW(
        groups, lr=given.optimizer.learning_rate, betas=(first, second), eps=given.optimizer.epsilon, fused=True
    )
    assert given.train.epochs is not None
    epochs, size = int(given.train.epochs), given.data.batch_size
    total = epochs * math.ceil(len(rows) / size)
    # Not a whole number of steps, so that every rate is ours.
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, given.schedule.warmup * total, total)
    shuffle = torch.Generator().manual_seed(given.train.seed)
    losses = []
    model.train()
    for _ in range(epochs):
        order = torch.randperm(len(rows), generator=shuffle).tolist()
        for at in range(0, len(rows), size):
            batch = padded([rows[row] for row in order[at : at + size]], padding)
            with autocast(given, device):
                loss = model(**{name: part.to(device) for name, part in batch.items()}).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), given.optimizer.max_grad_norm)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.detach())
    return [float(loss) for loss in torch.stack(losses).tolist()]


@torch.inference_mode()
def outputs(
    model: Any, rows: Sequence[Row], padding: Mapping[str, int], given: FineTune, device: torch.device
) -> list[np.ndarray]:
    """What the model says of each sequence, and of nothing that is padding."""
    model.eval()
    found: list[np.ndarray] = [np.empty(0)] * len(rows)
    order = sorted(range(len(rows)), key=lambda row: len(rows[row]["input_ids"]))
    for at in range(0, len(order), TOGETHER):
        some = order[at : at + TOGETHER]
        batch = padded([{n: p for n, p in rows[row].items() if n not in TARGETS} for row in some], padding)
        with autocast(given, device):
            said = model(**{name: part.to(device) for name, part in batch.items()})
        logits = torch.stack((said.start_logits, said.end_logits), -1) if "start_logits" in said else said.logits
        for row, logit in zip(some, logits.float().cpu().numpy(), strict=True):
            found[row] = logit if logit.ndim == 1 else logit[: len(rows[row]["input_ids"])]
    return found


def padded(rows: Sequence[Row], padding: Mapping[str, int]) -> Row:
    """Rows as long as the longest of them."""
    return {
        name: pad_sequence([row[name] for row in rows], batch_first=True, padding_value=padding[name])
        if part.ndim
        else torch.stack([row[name] for row in rows])
        for name, part in rows[0].items()
    }


def autocast(given: FineTune, device: torch.device) -> AbstractContextManager[Any]:
    precision = hardware.select_precision(given.train.precision, device)
    return nullcontext() if precision == torch.float32 else torch.autocast(device.type, dtype=precision)


class Theirs(ABC):
    """What a kind of task makes of examples and of outputs, as transformers' example scripts do."""

    model: str  # the end of the model's name

    def __init__(self, given: FineTune, tokenizer: Any, labels: tuple[str, ...]) -> None:
        self.given, self.tokenizer, self.labels = given, tokenizer, labels
        self.padding = {"input_ids": tokenizer.pad_token_id, "attention_mask": 0, "token_type_ids": 0, "labels": -100}

    def encode(self, *texts: Any, **how: Any) -> tuple[Any, list[Row]]:
        encoded = self.tokenizer(*texts, max_length=self.given.data.max_length, **{"truncation": True, **how})
        names = [name for name in self.padding if name in encoded]
        columns = [[torch.tensor(row) for row in encoded[name]] for name in names]
        return encoded, [dict(zip(names, parts, strict=True)) for parts in zip(*columns, strict=True)]

    @abstractmethod
    def rows(self, examples: Sequence[Any]) -> list[Row]:
        """Examples as the model sees them."""

    @abstractmethod
    def score(self, examples: Sequence[Any], said: Sequence[np.ndarray]) -> dict[str, float]:
        """How good the outputs are; of the rows that were made last."""


class Classes(Theirs):
    """A class or a number for a text or a pair, as run_glue.py has it."""

    model = "SequenceClassification"

    def rows(self, examples: Sequence[Any]) -> list[Row]:
        texts = [[example.texts[side] for example in examples] for side in range(len(examples[0].texts))]
        _, rows = self.encode(*texts)
        for row, example in zip(rows, examples, strict=True):
            row["labels"] = torch.tensor(self.labels.index(example.label) if self.labels else float(example.label))
        return rows

    def score(self, examples: Sequence[Any], said: Sequence[np.ndarray]) -> dict[str, float]:
        if not self.labels:
            gold, guessed = [example.label for example in examples], [float(logits[0]) for logits in said]
            return {"spearman": scores.spearman(gold, guessed), "pearson": scores.pearson(gold, guessed)}
        gold, best = [self.labels.index(example.label) for example in examples], [int(one.argmax()) for one in said]
        figures = {name: getattr(scores, name)(gold, best) for name in ("accuracy", "f1", "matthews")}
        return {**figures, "accuracy_f1": (figures["accuracy"] + figures["f1"]) / 2}


class Tags(Theirs):
    """A tag for each word, as run_ner.py has it: the first piece bears it. What was cut off was not found."""

    model = "TokenClassification"

    def rows(self, examples: Sequence[Any]) -> list[Row]:
        encoded, rows = self.encode([list(example.words) for example in examples], is_split_into_words=True)
        self.firsts: list[dict[int, int]] = []  # of each sentence: its words, and where they begin
        for number, (row, example) in enumerate(zip(rows, examples, strict=True)):
            firsts: dict[int, int] = {}
            for place, word in enumerate(encoded.word_ids(number)):
                if word is not None:
                    firsts.setdefault(word, place)
            labels = torch.full((len(row["input_ids"]),), -100)
            for word, place in firsts.items():
                labels[place] = self.labels.index(example.tags[word])
            row["labels"] = labels
            self.firsts.append(firsts)
        return rows

    def score(self, examples: Sequence[Any], said: Sequence[np.ndarray]) -> dict[str, float]:
        guessed = []
        for example, firsts, logits in zip(examples, self.firsts, said, strict=True):
            best = {word: self.labels[int(logits[place].argmax())] for word, place in firsts.items()}
            guessed.append([best.get(word, "O") for word in range(len(example.words))])
        found = entity_scores([example.tags for example in examples], guessed)
        return {"f1": found.f1, "precision": found.precision, "recall": found.recall, "accuracy": found.accuracy}


class Spans(Theirs):
    """A stretch of a passage, as run_qa.py has it: windows, and the best sum of two logits over all of them."""

    model = "QuestionAnswering"

    def rows(self, examples: Sequence[Any]) -> list[Row]:
        encoded, rows = self.encode(
            [example.question.lstrip() for example in examples],
            [example.context for example in examples],
            truncation="only_second",
            stride=self.given.task.settings.overlap,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        self.owners: list[int] = encoded["overflow_to_sample_mapping"]  # of each window: its question,
        self.places: list[list[Any]] = []  # and of its tokens, where in the passage they stand; None outside
        for number, (row, owner) in enumerate(zip(rows, self.owners, strict=True)):
            sides, offsets = encoded.sequence_ids(number), encoded["offset_mapping"][number]
            self.places.append([place if side == 1 else None for place, side in zip(offsets, sides, strict=True)])
            start, end = self._target(examples[owner].answers[0], self.places[-1])
            row |= {"start_positions": torch.tensor(start), "end_positions": torch.tensor(end)}
        return rows

    def _target(self, answer: Any, places: Sequence[Any]) -> tuple[int, int]:
        """The tokens that the answer begins and ends with; twice [CLS], the first, where it is not in the window."""
        passage = [token for token, place in enumerate(places) if place is not None]
        begin, end = answer.start, answer.start + len(answer.text)
        if not passage or places[passage[0]][0] > begin or places[passage[-1]][1] < end:
            return 0, 0
        return (
            max(token for token in passage if places[token][0] <= begin),
            min(token for token in passage if places[token][1] >= end),
        )

    def score(self, examples: Sequence[Any], said: Sequence[np.ndarray]) -> dict[str, float]:
        settings = self.given.task.settings
        best = [(-math.inf, "empty")] * len(examples)  # their word where no stretch is possible
        for owner, places, logits in zip(self.owners, self.places, said, strict=True):
            starts, ends = (np.argsort(logits[:, side])[: -settings.n_best - 1 : -1].tolist() for side in (0, 1))
            for start in starts:
                for end in ends:
                    if (
                        places[start] is None
                        or places[end] is None
                        or not 0 <= end - start < settings.max_answer_length
                    ):
                        continue
                    sum_ = float(logits[start, 0] + logits[end, 1])
                    if sum_ > best[owner][0]:
                        best[owner] = (sum_, examples[owner].passage[places[start][0] : places[end][1]])
        gold = {example.name: [answer.text for answer in example.answers] for example in examples}
        return squad_scores(gold, {example.name: text for example, (_, text) in zip(examples, best, strict=True)})


def zero_shot(job: Job, place: Place) -> dict[str, float]:
    """How well vectors that have learnt nothing from STS-B order its pairs by their cosine."""
    with tempfile.TemporaryDirectory() as folder:
        examples: Any = task_data.read(recipe(Job(job.side, "STS-B", 0), place, Path(folder))).dev.examples
    texts = [text for example in examples for text in example.texts]
    device = str(hardware.select_device("auto"))
    if job.side == OURS:
        vectors = load(place.model, device).embed(texts, pooling="mean", normalise=True, precision="float32")
    else:
        from sentence_transformers import SentenceTransformer

        vectors = SentenceTransformer(str(place.model), device=device).encode(texts, show_progress_bar=False)
    pairs = vectors.reshape(-1, 2, vectors.shape[1]).astype(np.float64)
    cosines = (pairs[:, 0] * pairs[:, 1]).sum(-1) / np.linalg.norm(pairs, axis=-1).prod(-1)
    return {"spearman": scores.spearman([example.label for example in examples], cosines.tolist())}


def course(losses: Sequence[float]) -> dict[str, float]:
    """Where the loss began and where it ended, over a tenth of the steps each."""
    tenth = max(1, len(losses) // 10)
    return {"first_loss": mean(losses[:tenth]), "last_loss": mean(losses[-tenth:])}


def code() -> dict[str, str]:
    """Hashes of the code that each side's scores depend on; scores of other code are computed again."""
    return {OURS: hashed(), THEIRS: hashed(Path(__file__))}


# ---------------------------------------------------------------------------------------------- the table


@dataclass(frozen=True)
class Compared:
    """A figure of both sides over all their seeds."""

    task: str
    measure: str
    bertsmith: Interval
    transformers: Interval
    difference: Difference

    @property
    def agrees(self) -> bool | None:
        """Whether the sides do; None where there are too few seeds to say."""
        if self.task == "zero-shot":
            return abs(self.difference.mean) < 0.0005  # the same to three decimals
        return abs(self.difference.mean) <= NEAR if self.task in FEW else self.difference.includes_zero

    def cells(self) -> list[str]:
        """In words; scores in points."""
        form = "z.3f" if self.task == "zero-shot" else "z.2f"
        sides = (self.bertsmith, self.transformers)
        shown = [format(side.scaled(100), form) for side in sides]
        shown.append(format(self.difference.scaled(100), "+" + form))
        seeds = " and ".join(str(side.count) for side in sides)
        return [self.task, self.measure, seeds, *shown, {True: "yes", False: "NO", None: "-"}[self.agrees]]


def compared(lines: Sequence[Mapping[str, Any]]) -> list[Compared]:
    """All figures that both sides have."""
    rows = []
    for task, names in TASKS.items():
        for name in names:
            one, other = (
                [line["figures"][name] for line in lines if (line["side"], line["task"]) == (side, task)]
                for side in (OURS, THEIRS)
            )
            if one and other:
                rows.append(
                    Compared(task, name, confidence_interval(one), confidence_interval(other), difference(one, other))
                )
    return rows


def keep(out: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """The record of all that is known by now."""
    where = hardware.describe(hardware.select_device("auto"))
    for package in ("transformers", "tokenizers"):
        where[package] = version(package)
    settings = [*HYPER_PARAMETERS, "data.max_length=128, or 384 with windows that share 128 for squad"]
    rules = {
        "zero-shot": "equal to three decimals",
        **dict.fromkeys(FEW, f"means within {100 * NEAR} points"),
        "others": "0 lies in Welch's 95 % interval of the difference",
    }
    rows = [{**asdict(row), "agrees": row.agrees} for row in compared(lines)]
    record(out, {"settings": settings, "rules": rules, "table": rows, "runs": list(lines)}, where)


def show(lines: Sequence[Mapping[str, Any]]) -> None:
    table = Table(title="scores in points: mean ± 95 % interval over seeds")
    for heading in ("task", "measure", "seeds", OURS, THEIRS, "difference", "agrees"):
        table.add_column(heading, no_wrap=True, justify="left" if heading in ("task", "measure") else "right")
    for row in compared(lines):
        table.add_row(*row.cells())
    Console(width=120).print(table)
    for side in (OURS, THEIRS):
        if (states := len({line["code"] for line in lines if line["side"] == side})) > 1:
            print(f"the runs of {side} were made by {states} states of the code; remove old lines to measure anew")


# ----------------------------------------------------------------------------------------------- the runs


def cut(data: Path, count: int, folder: Path) -> Path:
    """The same data, of every file the first examples alone, to try things out."""
    for task in (*GLUE, *FEW):
        own = Path("glue") / task if task in GLUE else Path(task)
        for path in sorted((data / own).glob("*.xz")):
            text = lzma.decompress(path.read_bytes()).decode()
            if task == "squad":
                tree = json.loads(text)
                blocks = [block for article in tree["data"] for block in article["paragraphs"]][:count]
                few = [{**block, "qas": block["qas"][:1]} for block in blocks]
                text = json.dumps({**tree, "data": [{"title": "", "paragraphs": few}]})
            elif task == "conll2003":
                text = "\n\n".join(text.split("\n\n")[: count + 1])  # the first is the mark of a document
            else:
                text = "".join(text.splitlines(keepends=True)[: count + (task != "CoLA")])  # it has no header
            target = folder / own / path.stem
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8", newline="\n")
    return folder


def begin(processes: int) -> None:
    """What every worker does first."""
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // processes))


def finished(path: Path) -> list[dict[str, Any]]:
    """The runs that are over; a line that was torn by a kill is none."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines if line]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--few", type=int, default=2, help="seeds of conll2003 and squad at most")
    parser.add_argument("--processes", type=int, default=5, help="runs at a time on the one device")
    parser.add_argument("--minutes", type=float, default=math.inf, help="no run begins after this time")
    parser.add_argument("--examples", type=int, help="the first ones alone, to try things out; 40 hold all tags")
    parser.add_argument("--out", type=Path, default=Path("bench/results/parity.json"))
    options = parser.parse_args()
    asked = set(options.tasks.split(","))
    if unknown := asked - set(TASKS):
        parser.error(f"unknown task {min(unknown)}; known: {', '.join(TASKS)}")
    if "STS-B" in asked:
        asked.add("zero-shot")
    if "zero-shot" in asked and find_spec("sentence_transformers") is None:
        print("sentence-transformers is not installed: zero-shot is left out")
        asked.remove("zero-shot")
    seeds = {task: options.seeds for task in TASKS if task in asked}
    seeds |= {task: min(options.seeds, options.few) for task in FEW if task in asked}
    seeds |= {"zero-shot": 1} if "zero-shot" in asked else {}
    jobs = [
        Job(side, task, seed, options.examples)
        for task, count in seeds.items()
        for side in (THEIRS, OURS)  # theirs take longer
        for seed in range(count)
    ]
    path = options.out.with_suffix(".jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [line for line in finished(path) if line["examples"] == options.examples]  # all, for the table
    done = {Job(*(line[name] for name in ("side", "task", "seed", "examples"))) for line in lines}
    left = [job for job in jobs if job not in done]
    print(f"{len(jobs)} runs, {len(left)} of them to be done", flush=True)
    began, late, failed = time.time(), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        data = cut(options.data, options.examples, Path(folder)) if options.examples else options.data
        place = Place(options.model, data, began + 60 * options.minutes, code())
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(options.processes, spawn, begin, (options.processes,)) as pool:
            running = {pool.submit(work, job, place): job for job in left}
            for future in as_completed(running):
                job = running[future]
                name = f"{job.task} {job.side} {job.seed}"
                if error := future.exception():
                    failed += 1
                    print(f"{name}: FAILED: {type(error).__name__}: {error}", flush=True)
                elif (line := future.result()) is None:
                    late += 1
                else:
                    with path.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(line) + "\n")
                    lines.append(line)
                    keep(options.out, lines)
                    said = ", ".join(f"{key} {value:.4f}" for key, value in line["figures"].items())
                    print(f"[{time.time() - began:4.0f} s] {name}: {said} ({line['seconds']} s)", flush=True)
    if lines:
        keep(options.out, lines)
        show(lines)
    if late or failed:
        raise SystemExit(f"{late} runs were not begun in time and {failed} failed; the same command goes on")


if __name__ == "__main__":
    main()
