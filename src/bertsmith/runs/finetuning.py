"""Fine-tuning: train a task once for each seed, measure it on the dev set, and keep the best model with its result."""

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

from bertsmith import config, files, terminal
from bertsmith.data.feed import Feed
from bertsmith.data.labelled.examples import Example
from bertsmith.data.sampler import BatchSampler
from bertsmith.insight import evaluation
from bertsmith.insight.model_card import finetuned_card
from bertsmith.metrics.intervals import confidence_interval
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf import sentence_transformers
from bertsmith.models.hf.finetuned import FinetunedTask
from bertsmith.models.hf.folder import TRAINED_ON, ModelFolder
from bertsmith.models.hf.layouts import layout_of
from bertsmith.models.hf.sentence_transformers import SentenceConfig
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.init import initialise
from bertsmith.recipe import FineTune, settle
from bertsmith.runs import task_data
from bertsmith.runs.task_data import EncodedData, TaskData
from bertsmith.tasks import TASKS, adapt, adapter
from bertsmith.tasks.base import Bucket, Task
from bertsmith.tasks.classification import SequenceClassification
from bertsmith.tasks.findings import Prior, warnings
from bertsmith.tasks.measure import DevEvaluator
from bertsmith.tasks.text_to_text import TextToText
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig
from bertsmith.text.tokenizer import train as learn
from bertsmith.train import hardware, log
from bertsmith.train.display import Display
from bertsmith.train.lock import Lock
from bertsmith.train.optimizers import Optimizer
from bertsmith.train.trainer import Speed, Trainer

CONSOLE = terminal.console()
MAY_CHANGE = frozenset({"out", "data.workers", "train.device", "seeds", "train.checkpoints", "train.keep_checkpoints"})
DEFAULT_TOKENIZER = TokenizerConfig(
    kind="t5", vocabulary=8_192
)  # of a network from chance: they end a text and begin none
CUDA_EVALUATION_TOKENS = 131_072  # tokens in one pass of an evaluation
RESULT = "result.json"


def finetune(recipe: FineTune) -> dict[str, Any]:
    """Fine-tune as the recipe says, once for each seed. Leaves the best model, and a result with its protocol."""
    with Lock(recipe.out):
        if recipe.model is not None:
            place = folders.model_folder(recipe.model)
            base, tokenizer = folders.read(place), Tokenizer.load(place).for_tasks()
            data = task_data.read(recipe)
        else:
            data = task_data.read(recipe)
            base, tokenizer = _from_scratch(recipe, data)
        for line in task_data.summary_lines(data):
            CONSOLE.print(line)
        encoded = task_data.encode(recipe, base.config, tokenizer, data)
        for name, cut, items in zip(("training", "dev"), encoded.truncated, (encoded.train, encoded.dev), strict=True):
            if cut:
                length = recipe.data.max_length
                most = getattr(recipe.task.settings, "max_new_tokens", None)
                long = f"{length} tokens" + (f", or what is to be written is longer than {most}," if most else "")
                CONSOLE.print(f"{cut:,} of {len(items):,} {name} texts are longer than {long} and are cut")
        settle(recipe, MAY_CHANGE)  # now that nothing is wrong with it: a mistake may be mended in the same folder
        runs: list[dict[str, Any]] = []
        for number in range(recipe.seeds):
            one = replace(recipe, out=recipe.out / f"seed-{number}", train=_seed_config(recipe, number))
            done = one.out / RESULT
            if not done.exists():
                task, figures, found = run_seed(one, base, tokenizer, data, encoded)
                headline = next(iter(figures))
                if all(_is_better(figures[headline], other["metrics"][headline]) for other in runs):
                    _export(recipe, task, tokenizer, data, found["details"])
                files.write_json(done, {"seed": one.train.seed, "headline": headline, "metrics": figures, **found})
                shutil.rmtree(one.out / "checkpoints", ignore_errors=True)
            runs.append(files.read_json(done))
        result = _result(recipe, data, encoded, runs)
        files.write_json(recipe.out / RESULT, result)
        best = max(range(len(runs)), key=lambda at: _nan_last(runs[at]["metrics"][result["headline"]]))
        evaluation.write(recipe.out, _title(recipe), result, log.read(recipe.out / f"seed-{best}" / log.NAME))
        if (recipe.out / "model").is_dir():
            network = recipe.network.kind if recipe.network else None
            files.write_atomic(
                recipe.out / "model" / "README.md", finetuned_card(recipe.task.kind, result, network).encode()
            )
    return result


def _from_scratch(recipe: FineTune, data: TaskData) -> tuple[ModelFolder, Tokenizer]:
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
        tokenizer = learn(sides, recipe.tokenizer or DEFAULT_TOKENIZER)
        tokenizer.save(place)
    shape = replace(recipe.network.settings, vocabulary=tokenizer.vocabulary)
    CONSOLE.print(
        f"{recipe.network.kind} from chance: {shape.parameter_count:,} weights, {tokenizer.vocabulary:,} pieces"
    )
    return ModelFolder(config=shape, state_dict={}, parts=frozenset(), finetuned=None, config_json={}), tokenizer


def run_seed(
    recipe: FineTune, base: ModelFolder, tokenizer: Tokenizer, data: TaskData, encoded: EncodedData
) -> tuple[Task, dict[str, float], dict[str, Any]]:
    """One seed: train, and measure on the dev set: figures, and what a report has to say about them."""
    device = hardware.select_device(recipe.train.device)
    task, feed, optimizer, graphs = build_training(recipe, base, tokenizer, data, encoded, device)
    budget = CUDA_EVALUATION_TOKENS if device.type == "cuda" else 8192
    measure = DevEvaluator(task, data.dev.examples, encoded.dev, device, budget, Prior.of(data.train.examples))
    began = time.monotonic()
    with Display(f"{recipe.task.kind}, seed {recipe.train.seed}:") as display:
        trainer = Trainer(
            task,
            feed,
            optimizer,
            recipe.schedule,
            recipe.train,
            folder=recipe.out,
            compute_metrics=measure,
            metric_name=measure.metric_name,
            keep_best=True,
            evaluate_untrained=recipe.network is None,  # at first weights, a writer would only write as long as it may
            precision=hardware.select_precision(recipe.train.precision, device),
            speed=Speed(None, lambda attended: task.trunk.config.flops(attended, 0.0)),
            display=display,
            graphs=graphs,
            tensorboard=False,
        )
        figures = trainer.fit()
        if recipe.keep == "best":
            trainer.load_best()
            figures = trainer.best_metrics
        found = {"details": measure.findings(figures), "untrained": _untrained_scores(recipe.out)}
    if isinstance(task, SequenceClassification):
        task.fold_standardisation()
    if recipe.adapt.kind == "lora":
        adapter.save(recipe.out / "adapter", task, recipe.adapt, str(recipe.model))
    # Who writes learns as a whole, and who reads features leaves the network as it is: nothing is to be undone.
    if not isinstance(task, TextToText) and recipe.task.kind not in task_data.FEATURE_TASKS:
        adapt.merge_and_unfreeze(task)
    step = figures.pop("step")
    return task.eval(), {**figures, "step": step, "seconds": round(time.monotonic() - began, 2)}, found


def build_training(
    recipe: FineTune,
    base: ModelFolder,
    tokenizer: Tokenizer,
    data: TaskData,
    encoded: EncodedData,
    device: torch.device,
) -> tuple[Task, Feed, Optimizer, bool]:
    """The task with the folder's weights in it, its batches and its optimizer; and whether steps can be recorded."""
    task = task_data.build_task(recipe, base.config, data)
    # From chance, matrices keep a vector's length, as the Transformer's did; heads on a trained one begin small.
    trained = base.state_dict and isinstance(base.config, TransformerConfig)
    initialise(task, recipe.train.seed, 0.02 if trained else base.config.width**-0.5)
    known = _pretrained_weights(task, base)
    task.load_state_dict(known, strict=False)
    if isinstance(task, SequenceClassification) and not any(name.startswith("classifier.") for name in known):
        prior = Prior.of(data.train.examples)
        if prior.mean is not None:
            task.standardise(prior.mean, prior.deviation)
    adapt.adapt_task(task, recipe.adapt, recipe.train.seed)
    task = task.to(device)
    mould = _bucket(recipe, encoded, tokenizer)
    source = BatchSampler(encoded.train, recipe.data.batch_size, recipe.train.seed)
    feed = Feed(source, partial(task.collate, bucket=mould), data.fingerprint, recipe.data.workers)
    graphs = device.type == "cuda"
    rates = adapt.learning_rate_scales(task, recipe.adapt)
    hidden = task.hidden_matrices() if recipe.adapt.kind == "full" else {}  # Muon is not for LoRA's thin matrices
    return task, feed, Optimizer(task, recipe.optimizer, rates, capturable=graphs, hidden_matrices=hidden), graphs


def _pretrained_weights(task: Task, base: ModelFolder) -> dict[str, torch.Tensor]:
    """What the model folder has for this task: the trunk and the pooler, and heads only if they mean the same."""
    learnt, own, state = base.finetuned, task.state_dict(), base.state_dict
    same = (
        learnt is not None
        and TASKS[learnt.task] is type(task)
        and learnt.labels == task.labels
        and learnt.pooling == getattr(task, "pooling", "first")
    )
    if layout_of(base.config).shares_head:  # what guessing words has learnt, a task begins with
        guessed = {name.removeprefix("mlm_head."): one for name, one in state.items() if name.startswith("mlm_head.")}
        state = {f"pooler.{name}": one for name, one in guessed.items()} | state
    parts = ("trunk.", "pooler.", *(("classifier.", "span.") if same else ()))
    return {name: weight for name, weight in state.items() if name in own and name.startswith(parts)}


def _is_better(score: float, other: float) -> bool:
    return math.isnan(other) or score > other


def _nan_last(score: float) -> float:
    return -math.inf if math.isnan(score) else score


def _untrained_scores(folder: Path) -> dict[str, float] | None:
    """The figures before the first step, by the log; None where they were not measured."""
    for record in log.read(folder / log.NAME):
        if record.get("kind") == "untrained":
            return {name: float(value) for name, value in record.items() if name not in ("kind", "step")}
    return None


def _title(recipe: FineTune) -> str:
    began = recipe.network.kind if recipe.network else evaluation.model_name(recipe.model or Path())
    return f"{began}, fine-tuned on {recipe.data.train.name}"


def _seed_config(recipe: FineTune, number: int) -> Any:
    return replace(recipe.train, seed=recipe.train.seed + number)


def _bucket(recipe: FineTune, encoded: EncodedData, tokenizer: Tokenizer) -> Bucket:
    """Few shapes of batch, each a multiple of about an eighth of the usual one: a GPU plays recorded steps, and a CPU
    prepares its half-precision kernels once for each shape."""
    sample = encoded.train[:: max(1, len(encoded.train) // 4096)]
    usual = np.mean([sum(map(len, item.rows)) for item in sample]) * recipe.data.batch_size
    bucket = max(64, 64 * round(usual / 512))
    return Bucket(
        batch_size=recipe.data.batch_size,
        max_length=recipe.data.max_length,
        pad_to_multiple_of=bucket,
        padding=tokenizer.padding_id,
    )


def _result(
    recipe: FineTune, data: TaskData, encoded: EncodedData, runs: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Figures of all seeds with mean, deviation and interval, and the protocol that made them."""
    headline = runs[0]["headline"]
    others = runs[0]["metrics"].keys() - {headline, "step", "seconds"}
    names = [headline, *sorted(others)]
    summary = {}
    for name in names:
        found = confidence_interval([one["metrics"][name] for one in runs])
        summary[name] = {"mean": found.mean, "deviation": found.deviation, "low": found.low, "high": found.high}
    protocol = {
        "selection": "the best of the evaluations on the dev set" if recipe.keep == "best" else "the last step",
        "measured_on": str(recipe.data.dev or recipe.data.train),
        "data": task_data.summary_lines(data),
        "examples": {"train": len(data.train.examples), "dev": len(data.dev.examples)},
        "items": {"train": len(encoded.train), "dev": len(encoded.dev)},
        "cut": sum(encoded.truncated),
        "data_sha256": data.fingerprint,
        "recipe": config.dump(recipe),
        "machine": hardware.describe(hardware.select_device(recipe.train.device)),
    }
    best = max(runs, key=lambda one: _nan_last(one["metrics"][headline]))  # whose model is kept
    details, untrained, score = best.get("details") or {}, best.get("untrained"), best["metrics"][headline]
    return {
        "headline": headline,
        "summary": summary,
        "runs": [{name: part for name, part in one.items() if name != "details"} for one in runs],
        "details": details,
        "untrained": untrained,
        "warnings": warnings(details, headline, score, untrained and untrained.get(headline)) if details else [],
        "protocol": protocol,
    }


def _export(recipe: FineTune, task: Task, tokenizer: Tokenizer, data: TaskData, details: Mapping[str, Any]) -> None:
    """The model folder: weights, settings, labels and tokenizer, and what was learnt from: `evaluate` compares."""
    shape, kind = task.trunk.config, recipe.task.kind
    if kind in task_data.FEATURE_TASKS:
        return  # a Bi-LSTM on frozen features has no folder that others could open
    learnt = None
    extra: dict[str, Any] = dict(tokenizer.special_ids(layout_of(shape).special_tokens))
    if isinstance(task, TextToText):  # which has no head, so that nothing else would tell
        extra["bertsmith"] = {"task": kind, "labels": task.labels, **asdict(task.config)}
    elif kind != "embed":
        learnt = FinetunedTask(task=kind, labels=task.labels)
        if isinstance(task, SequenceClassification):
            learnt = replace(learnt, problem=task.config.problem, pooling=task.pooling)
    if kind == "answer" and recipe.task.settings.null_threshold is not None:
        extra["bertsmith"] = {"null_threshold": recipe.task.settings.null_threshold}
    source = task_data.training_columns(recipe, data) | {
        "length": recipe.data.max_length,
        **Prior.of(data.train.examples).to_dict(),
    }
    if "calibration" in details:
        source["temperature"] = details["calibration"]["temperature"]  # for information: predictions go without it
    extra["bertsmith"] = {**extra.get("bertsmith", {}), TRAINED_ON: source}
    with folders.atomic_folder(recipe.out / "model") as folder:
        folders.write(folder, shape, task.state_dict(), extra, learnt)
        tokenizer.save(folder, max_length=shape.max_length, segments=shape.segments > 1)
        if kind == "embed":
            pooling = recipe.task.settings.pooling
            sentence_transformers.write(
                folder, SentenceConfig(pooling=pooling, length=recipe.data.max_length), shape.width
            )
