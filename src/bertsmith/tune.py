"""The composition root of learning with labels: fine-tune a model, several times if asked, and say how good it is."""

import math
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.table import Table

from bertsmith import config, lesson, recipes, terminal
from bertsmith.data import files, glue
from bertsmith.data.examples import Example
from bertsmith.data.feed import Feed
from bertsmith.data.guess import Guess, by_ending, counted, guess
from bertsmith.data.labelled import Columns
from bertsmith.data.shuffled import Shuffled
from bertsmith.insight import evaluation
from bertsmith.insight.card import tuned_card
from bertsmith.lesson import Data, Encoded
from bertsmith.models import folder as folders
from bertsmith.models import sentence
from bertsmith.models.dialects import dialect_of
from bertsmith.models.family import FAMILY
from bertsmith.models.folder import LEARNT_FROM, Opened
from bertsmith.models.foreign import Learnt
from bertsmith.models.sentence import SentenceConfig
from bertsmith.models.transformer import TransformerConfig
from bertsmith.nn.init import initialise
from bertsmith.recipe import EXTENTS, FineTune, LabelledConfig, settle
from bertsmith.tasks import TASKS, adapt, adapter
from bertsmith.tasks.base import Mould, Task
from bertsmith.tasks.classify import Classify
from bertsmith.tasks.findings import Prior, name_of, warnings
from bertsmith.tasks.measure import Measure
from bertsmith.tasks.seeds import interval
from bertsmith.tasks.write import GLUE, Write
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig
from bertsmith.text.tokenizer import train as learn
from bertsmith.train import log, machine
from bertsmith.train.display import Display
from bertsmith.train.lock import Lock
from bertsmith.train.optimizers import Optimizer
from bertsmith.train.trainer import Speed, Trainer

SAY = terminal.console()
MAY_CHANGE = frozenset({"out", "data.workers", "train.device", "seeds", "train.saves", "train.keep"})
DEFAULTS: dict[str, dict[str, Any]] = {
    "optimizer": {"rate": 5e-5},
    "schedule": {"warmup": 0.1},
    "train": {"epochs": 3.0, "evaluations": 3, "saves": 3, "compile": "never"},
}
FROM_CHANCE: dict[str, dict[str, Any]] = {  # Vaswani et al. 2017, section 5
    "task": {"smoothing": 0.1, "most": 128},
    "optimizer": {"rate": 1e-3, "betas": [0.9, 0.98], "decay": 0.0},
    "schedule": {"kind": "inverse_root", "warmup": 0.1},
    "train": {"epochs": 30.0, "evaluations": 10, "saves": 10, "compile": "never"},
}
PIECES = TokenizerConfig(kind="t5", vocabulary=8_192)  # of a network from chance: they end a text and begin none
FEW = 3_000  # rows; more take the defaults as they are
UPDATES, MOST_EPOCHS = 600, 20  # that few rows are learnt in: so many steps, unless that takes more epochs
WRITING_RATE = 3e-4  # of a T5; Raffel et al. 2020 took 1e-3, with another optimizer
FEATURES_RATE = 1e-3  # where a network stays as it is, what is new learns alone, from chance
CUDA_BUDGET = 131_072  # tokens in one pass of an evaluation
RESULT = "result.json"
LISTED = ("texts", "labels")  # names of several columns


def recipe(
    model: Path, data: Path, out: Path, *, dev: Path | None, task: str | None, seeds: int, overrides: Sequence[str]
) -> FineTune:
    """A whole recipe from what the command line says; what it does not say is guessed from the data.

    In the place of a model folder there may be a member of the family, which begins from chance, or a recipe: by name,
    or a TOML file.
    """
    if _is_written(model):
        return _read(model, data, out, dev=dev, task=task, seeds=seeds, overrides=overrides)
    model, found = folders.model_folder(model), glue.recognise(data)
    given = config.override({}, overrides)
    columns = _columns(given)
    train, dev = lesson.behind(data, dev, found, columns)
    values: dict[str, Any] = {"out": str(out), "seeds": seeds}
    member = str(model) if str(model) in FAMILY and not model.exists() else None
    values |= {"network": {"kind": member}} if member else {"model": str(model)}
    shape = lesson.shape_of(model)
    # A network with a decoder learns every task as text.
    writes = member is not None or (shape is not None and shape.decoder > 0)
    # Text to text takes any label, GLUE's are known, and an answer that was said needs no guess.
    sure = found is not None or writes or "answer" in _section(given, "task")
    guessed = Guess(task=by_ending(train), rows=0 if found or writes else counted(train))
    guessed = guessed if sure else guess(train, columns, task)
    form = guessed.task
    kind = task or ("write" if writes else form)
    values["task"] = {"kind": kind}
    if kind == "classify" and guessed.answer != "class":
        values["task"] |= {"answer": guessed.answer}
    if found is not None and kind in ("classify", "write"):
        measure = "accuracy_f1" if found.headline == "mean" else found.headline
        number = found.kind == "number"
        values["task"] |= {"answer": "number"} if number else {"measure": measure}
    if kind == "write":
        values["task"] |= GLUE[found.name] if found else {"answer": "stretch"} if form == "answer" else {}
    if kind == "answer" or values["task"].get("answer") == "stretch":
        values["data"] = {"length": 384}
    usual = values.get("data", {}).get("length", LabelledConfig.length)
    if shape is not None and shape.length < usual:
        values["data"] = {"length": shape.length}
    values["data"] = {"train": str(train), **({"dev": str(dev)} if dev else {}), **values.get("data", {})}
    values["data"] |= {"labels": list(guessed.labels)} if guessed.labels else {}
    values["data"] |= {"separator": guessed.separator} if guessed.separator else {}
    values |= {name: dict(section) for name, section in DEFAULTS.items()}
    few = 0 < guessed.rows < FEW and kind not in lesson.FEATURES
    if few:
        _suit_few(values, guessed.rows, shape.width if shape else None)
    if kind == "write":
        values["optimizer"]["rate"] = WRITING_RATE
    if kind in lesson.FEATURES:
        values["optimizer"] |= {"rate": FEATURES_RATE, "decay": 0.0}
    if member:
        values |= {name: {**values[name], **section} for name, section in FROM_CHANCE.items()}
        values["task"]["translates"] = found is None  # GLUE asks for classes and numbers
    built: FineTune = config.build(config.override(values, overrides, EXTENTS), FineTune, "finetune")
    if guessed.said:
        SAY.print(guessed.said, markup=False)
    if few:
        epochs = built.train.epochs
        length = f"{epochs:g} epoch{'s' * (epochs != 1)}, " if epochs else ""
        how = f"{length}batches of {built.data.items}, learning rate {built.optimizer.rate:g}"
        changes = "train.epochs, data.items and optimizer.rate change it"
        SAY.print(f"{guessed.rows:,} rows are few: {how}; {changes}", markup=False)
    return built


def check(model: Path) -> None:
    """Refuse a model that is not there, before data are read and a task is guessed from them."""
    if not _is_written(model) and (model.exists() or str(model) not in FAMILY):
        folders.check(folders.model_folder(model))


def _suit_few(values: dict[str, Any], rows: int, width: int | None) -> None:
    """Defaults for few rows: smaller batches and more epochs, so that there are enough updates to learn from.

    Mosbach et al. 2021: what fails on few examples is mostly too few updates; they take 20 epochs. Networks narrower
    than BERT-base take larger steps, and wider ones smaller.
    """
    items = 16 if rows >= 300 else 8
    epochs = min(MOST_EPOCHS, max(values["train"]["epochs"], math.ceil(UPDATES * items / rows)))
    values["data"] |= {"items": items}
    values["train"] |= {"epochs": float(epochs)}
    if width is not None:
        values["optimizer"] |= {"rate": float(f"{values['optimizer']['rate'] * min(4.0, 768 / width):.1g}")}


def _read(
    path: Path, data: Path, out: Path, *, dev: Path | None, task: str | None, seeds: int, overrides: Sequence[str]
) -> FineTune:
    """The recipe in a file, for the data and the folder that the command line names."""
    values = config.override(config.values(recipes.find(path)), overrides, EXTENTS)
    train, dev = lesson.behind(data, dev, glue.recognise(data), _columns(values))
    values["data"] = {**values.get("data", {}), "train": str(train)}
    values["data"] |= {"dev": str(dev)} if dev else {}
    values |= {"out": str(out), "seeds": seeds}
    values |= {"task": {**values.get("task", {}), "kind": task}} if task else {}
    return config.build(values, FineTune, str(path))


def _is_written(model: Path) -> bool:
    """Whether in the place of a model there is a recipe: a TOML file, or the name of one."""
    return model.suffix == ".toml" or (not model.exists() and _is_recipe(str(model)))


def _is_recipe(name: str) -> bool:
    """Whether a recipe of this name comes with bertsmith, and learns from labelled examples."""
    return name in recipes.names() and "task" in config.values(recipes.find(name))


def _columns(values: Mapping[str, Any]) -> Columns:
    """The columns that settings name, as far as they name any."""
    said = _section(values, "data")
    texts, labels = (tuple(map(str, named)) if isinstance(named := said.get(name), list) else None for name in LISTED)
    label, separator = ((value := said.get(name)) and str(value) for name in ("label", "separator"))
    return Columns(texts=texts, label=label, labels=labels, separator=separator)


def _section(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """What settings say of a section, if it is one."""
    said = values.get(name, {})
    return said if isinstance(said, Mapping) else {}


def finetune(recipe: FineTune) -> dict[str, Any]:
    """Fine-tune as the recipe says, once for each seed. Leaves the best model, and a result with its protocol."""
    with Lock(recipe.out):
        if recipe.model is not None:
            place = folders.model_folder(recipe.model)
            base, tokenizer = folders.read(place), Tokenizer.load(place).for_tasks()
            data = lesson.read(recipe)
        else:
            data = lesson.read(recipe)
            base, tokenizer = _from_chance(recipe, data)
        for line in lesson.told(data):
            SAY.print(line)
        encoded = lesson.encode(recipe, base.config, tokenizer, data)
        for name, cut, items in zip(("training", "dev"), encoded.cut, (encoded.train, encoded.dev), strict=True):
            if cut:
                length = recipe.data.length
                most = getattr(recipe.task.settings, "most", None)
                long = f"{length} tokens" + (f", or what is to be written is longer than {most}," if most else "")
                SAY.print(f"{cut:,} of {len(items):,} {name} texts are longer than {long} and are cut")
        settle(recipe, MAY_CHANGE)  # now that nothing is wrong with it: a mistake may be mended in the same folder
        runs: list[dict[str, Any]] = []
        for number in range(recipe.seeds):
            one = replace(recipe, out=recipe.out / f"seed-{number}", train=_seeded(recipe, number))
            done = one.out / RESULT
            if not done.exists():
                task, figures, found = run(one, base, tokenizer, data, encoded)
                headline = next(iter(figures))
                if all(_beats(figures[headline], other["figures"][headline]) for other in runs):
                    _export(recipe, task, tokenizer, data, found["details"])
                files.write_json(done, {"seed": one.train.seed, "headline": headline, "figures": figures, **found})
                shutil.rmtree(one.out / "checkpoints", ignore_errors=True)
            runs.append(files.read_json(done))
        result = _result(recipe, data, encoded, runs)
        files.write_json(recipe.out / RESULT, result)
        best = max(range(len(runs)), key=lambda at: _order(runs[at]["figures"][result["headline"]]))
        evaluation.write(recipe.out, _title(recipe), result, log.read(recipe.out / f"seed-{best}" / log.NAME))
        if (recipe.out / "model").is_dir():
            network = recipe.network.kind if recipe.network else None
            files.put(recipe.out / "model" / "README.md", tuned_card(recipe.task.kind, result, network).encode())
    return result


def _from_chance(recipe: FineTune, data: Data) -> tuple[Opened, Tokenizer]:
    """A network without weights, and pieces that both sides of the training examples are made of."""
    assert recipe.network is not None
    place = recipe.out / "tokenizer"
    if isinstance(recipe.tokenizer, Path):
        tokenizer = Tokenizer.load(recipe.tokenizer)
    elif place.is_dir() and (recipe.out / "recipe.toml").exists():  # else of a start that was refused
        tokenizer = Tokenizer.load(place)
    else:
        examples = (one for one in data.train.examples if isinstance(one, Example))
        sides = (side for one in examples for side in (*one.texts, str(one.label)))
        tokenizer = learn(sides, recipe.tokenizer or PIECES)
        tokenizer.save(place)
    shape = replace(recipe.network.settings, vocabulary=tokenizer.vocabulary)
    SAY.print(f"{recipe.network.kind} from chance: {shape.count:,} weights, {tokenizer.vocabulary:,} pieces")
    return Opened(config=shape, state={}, parts=frozenset(), learnt=None, raw={}), tokenizer


def show(result: Mapping[str, Any], out: Path) -> None:
    """The figures of a run, on the terminal."""
    details = result.get("details") or {}
    several = any(found["low"] is not None for found in result["summary"].values())  # seeds
    table = Table("", *(("mean", "95 % interval", "deviation") if several else ("score",)), box=None)
    for name, found in result["summary"].items():
        ends = "" if found["low"] is None else f"{found['low']:.4f} to {found['high']:.4f}"
        spread = (ends, f"{found['deviation']:.4f}") if several else ()
        table.add_row(evaluation.plain_text(name_of(name, details)), f"{found['mean']:.4f}", *spread)
    SAY.print(table)
    for line in evaluation.beside(result):
        SAY.print(line, markup=False)
    SAY.print(f"model {out / 'model'}, result {out / RESULT}, page {out / evaluation.PAGE}", markup=False)


def run(
    recipe: FineTune, base: Opened, tokenizer: Tokenizer, data: Data, encoded: Encoded
) -> tuple[Task, dict[str, float], dict[str, Any]]:
    """One seed: train, and measure on the dev set: figures, and what a report has to say about them."""
    device = machine.device(recipe.train.device)
    task, feed, optimizer, graphs = learner(recipe, base, tokenizer, data, encoded, device)
    budget = CUDA_BUDGET if device.type == "cuda" else 8192
    measure = Measure(task, data.dev.examples, encoded.dev, device, budget, Prior.of(data.train.examples))
    began = time.monotonic()
    with Display(f"{recipe.task.kind}, seed {recipe.train.seed}:") as display:
        trainer = Trainer(
            task,
            feed,
            optimizer,
            recipe.schedule,
            recipe.train,
            folder=recipe.out,
            measure=measure,
            headline=True,
            untrained=recipe.network is None,  # at first weights, a writer would only write as long as it may
            precision=machine.precision(recipe.train.precision, device),
            speed=Speed(None, lambda attended: task.trunk.config.flops(attended, 0.0)),
            display=display,
            graphs=graphs,
            tensorboard=False,
        )
        figures = trainer.fit()
        if recipe.keep == "best":
            trainer.recall()
            figures = trainer.best
        found = {"details": measure.findings(figures), "untrained": _untrained(recipe.out)}
    if isinstance(task, Classify):
        task.fold()
    if recipe.adapt.kind == "lora":
        adapter.write(recipe.out / "adapter", task, recipe.adapt, str(recipe.model))
    # Who writes learns as a whole, and who reads features leaves the network as it is: nothing is to be undone.
    if not isinstance(task, Write) and recipe.task.kind not in lesson.FEATURES:
        adapt.finish(task)
    step = figures.pop("step")
    return task.eval(), {**figures, "step": step, "seconds": round(time.monotonic() - began, 2)}, found


def learner(
    recipe: FineTune, base: Opened, tokenizer: Tokenizer, data: Data, encoded: Encoded, device: torch.device
) -> tuple[Task, Feed, Optimizer, bool]:
    """The task with the folder's weights in it, its batches and its optimizer; and whether steps can be recorded."""
    task = lesson.task_of(recipe, base.config, data)
    # From chance, matrices keep a vector's length, as the Transformer's did; heads on a trained one begin small.
    trained = base.state and isinstance(base.config, TransformerConfig)
    initialise(task, recipe.train.seed, 0.02 if trained else base.config.width**-0.5)
    known = _weights(task, base)
    task.load_state_dict(known, strict=False)
    if isinstance(task, Classify) and not any(name.startswith("classifier.") for name in known):
        prior = Prior.of(data.train.examples)
        if prior.mean is not None:
            task.standardise(prior.mean, prior.deviation)
    adapt.prepare(task, recipe.adapt, recipe.train.seed)
    task = task.to(device)
    mould = _mould(recipe, encoded, tokenizer)
    source = Shuffled(encoded.train, recipe.data.items, recipe.train.seed)
    feed = Feed(source, partial(task.collate, mould=mould), data.fingerprint, recipe.data.workers)
    graphs = device.type == "cuda"
    rates = adapt.rates(task, recipe.adapt)
    hidden = task.matrices() if recipe.adapt.kind == "full" else {}  # Muon is not for LoRA's thin matrices
    return task, feed, Optimizer(task, recipe.optimizer, rates, capturable=graphs, hidden=hidden), graphs


def _weights(task: Task, base: Opened) -> dict[str, torch.Tensor]:
    """What the model folder has for this task: the trunk and the pooler, and heads only if they mean the same."""
    learnt, own, state = base.learnt, task.state_dict(), base.state
    same = (
        learnt is not None
        and TASKS[learnt.task] is type(task)
        and learnt.labels == task.labels
        and learnt.pooling == getattr(task, "pooling", "first")
    )
    if dialect_of(base.config).shares:  # what guessing words has learnt, a task begins with
        guessed = {name.removeprefix("head."): one for name, one in state.items() if name.startswith("head.")}
        state = {f"pooler.{name}": one for name, one in guessed.items()} | state
    parts = ("trunk.", "pooler.", *(("classifier.", "span.") if same else ()))
    return {name: weight for name, weight in state.items() if name in own and name.startswith(parts)}


def _beats(score: float, other: float) -> bool:
    return math.isnan(other) or score > other


def _order(score: float) -> float:
    return -math.inf if math.isnan(score) else score


def _untrained(folder: Path) -> dict[str, float] | None:
    """The figures before the first step, by the log; None where they were not measured."""
    for record in log.read(folder / log.NAME):
        if record.get("kind") == "untrained":
            return {name: float(value) for name, value in record.items() if name not in ("kind", "step")}
    return None


def _title(recipe: FineTune) -> str:
    began = recipe.network.kind if recipe.network else evaluation.called(recipe.model or Path())
    return f"{began}, fine-tuned on {recipe.data.train.name}"


def _seeded(recipe: FineTune, number: int) -> Any:
    return replace(recipe.train, seed=recipe.train.seed + number)


def _mould(recipe: FineTune, encoded: Encoded, tokenizer: Tokenizer) -> Mould:
    """Few shapes of batch, each a multiple of about an eighth of the usual one: a GPU plays recorded steps, and a CPU
    prepares its half-precision kernels once for each shape."""
    sample = encoded.train[:: max(1, len(encoded.train) // 4096)]
    usual = np.mean([sum(map(len, item.rows)) for item in sample]) * recipe.data.items
    bucket = max(64, 64 * round(usual / 512))
    return Mould(items=recipe.data.items, length=recipe.data.length, bucket=bucket, padding=tokenizer.padding)


def _result(recipe: FineTune, data: Data, encoded: Encoded, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Figures of all seeds with mean, deviation and interval, and the protocol that made them."""
    headline = runs[0]["headline"]
    others = runs[0]["figures"].keys() - {headline, "step", "seconds"}
    names = [headline, *sorted(others)]
    summary = {}
    for name in names:
        found = interval([one["figures"][name] for one in runs])
        summary[name] = {"mean": found.mean, "deviation": found.deviation, "low": found.low, "high": found.high}
    protocol = {
        "selection": "the best of the evaluations on the dev set" if recipe.keep == "best" else "the last step",
        "measured_on": str(recipe.data.dev or recipe.data.train),
        "data": lesson.told(data),
        "examples": {"train": len(data.train.examples), "dev": len(data.dev.examples)},
        "items": {"train": len(encoded.train), "dev": len(encoded.dev)},
        "cut": sum(encoded.cut),
        "data_sha256": data.fingerprint,
        "recipe": config.dump(recipe),
        "machine": machine.describe(machine.device(recipe.train.device)),
    }
    best = max(runs, key=lambda one: _order(one["figures"][headline]))  # whose model is kept
    details, untrained, score = best.get("details") or {}, best.get("untrained"), best["figures"][headline]
    return {
        "headline": headline,
        "summary": summary,
        "runs": [{name: part for name, part in one.items() if name != "details"} for one in runs],
        "details": details,
        "untrained": untrained,
        "warnings": warnings(details, headline, score, untrained and untrained.get(headline)) if details else [],
        "protocol": protocol,
    }


def _export(recipe: FineTune, task: Task, tokenizer: Tokenizer, data: Data, details: Mapping[str, Any]) -> None:
    """The model folder: weights, settings, labels and tokenizer, and what was learnt from: `evaluate` compares."""
    shape, kind = task.trunk.config, recipe.task.kind
    if kind in lesson.FEATURES:
        return  # a Bi-LSTM on frozen features has no folder that others could open
    learnt = None
    extra: dict[str, Any] = dict(tokenizer.numbers(dialect_of(shape).specials))
    if isinstance(task, Write):  # which has no head, so that nothing else would tell
        extra["bertsmith"] = {"task": kind, "labels": task.labels, **asdict(task.config)}
    elif kind != "embed":
        learnt = Learnt(task=kind, labels=task.labels)
        if isinstance(task, Classify):
            learnt = replace(learnt, answer=task.config.answer, pooling=task.pooling)
    if kind == "answer" and recipe.task.settings.threshold is not None:
        extra["bertsmith"] = {"threshold": recipe.task.settings.threshold}
    source = lesson.learnt_from(recipe, data) | {"length": recipe.data.length, **Prior.of(data.train.examples).plain()}
    if "calibration" in details:
        source["temperature"] = details["calibration"]["temperature"]  # for information: predictions go without it
    extra["bertsmith"] = {**extra.get("bertsmith", {}), LEARNT_FROM: source}
    with folders.writing(recipe.out / "model") as folder:
        folders.write(folder, shape, task.state_dict(), extra, learnt)
        tokenizer.save(folder, length=shape.length, segments=shape.segments > 1)
        if kind == "embed":
            pooling = recipe.task.settings.pooling
            sentence.write(folder, SentenceConfig(pooling=pooling, length=recipe.data.length), shape.width)
