"""Fine-tuning: train a task once per seed, evaluate it on the dev set, and keep the best model."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertsmith import files, terminal
from bertsmith.data.feed import Feed
from bertsmith.data.labelled.examples import Example
from bertsmith.data.sampler import BatchSampler
from bertsmith.insight import evaluation
from bertsmith.insight.model_card import finetuned_card
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf.folder import ModelFolder
from bertsmith.models.hf.layouts import layout_of
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.init import initialise
from bertsmith.recipe import FineTune, check_kind, settle
from bertsmith.runs import task_data
from bertsmith.runs.finetuning_export import export
from bertsmith.runs.finetuning_result import RESULT, best_run, build_result
from bertsmith.runs.micro_batches import divide
from bertsmith.runs.seeds import check_data, fit, train_seeds
from bertsmith.runs.task_data import EncodedData, TaskData
from bertsmith.tasks import TASKS, adapt, adapter
from bertsmith.tasks.base import Bucket, Task
from bertsmith.tasks.classification import SequenceClassification
from bertsmith.tasks.findings import Prior
from bertsmith.tasks.measure import DevEvaluator
from bertsmith.tasks.text_to_text import TextToText
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig
from bertsmith.text.tokenizer import train as train_tokenizer
from bertsmith.train import hardware, log
from bertsmith.train.optimizers import Optimizer
from bertsmith.train.processes import ALONE, Processes, joined
from bertsmith.train.step import Step

CONSOLE = terminal.console()
MAY_CHANGE = frozenset(  # settings that may differ when a run is resumed; the contents of its data may not
    {"out", "data.train", "data.dev", "data.workers", "seeds"}
    | {f"train.{name}" for name in ("device", "checkpoints", "keep_checkpoints")}
)
# The tokenizer of a network that is trained from scratch: it ends a text with a special token, and begins with none.
DEFAULT_TOKENIZER = TokenizerConfig(kind="t5", vocabulary=8_192)
# Tokens in one forward pass of an evaluation.
CUDA_EVALUATION_TOKENS, CPU_EVALUATION_TOKENS = 131_072, 8_192


def finetune(recipe: FineTune) -> dict[str, Any]:
    """Fine-tune once per seed. Writes the model of the best seed, result.json and a report."""
    device = hardware.select_device(recipe.train.device)
    with joined(device, recipe.out, recipe.train) as processes:
        check_kind(recipe)
        recipe = divide(recipe, processes)
        if recipe.model is not None:
            folder = folders.model_folder(recipe.model)
            base, tokenizer = folders.read(folder), Tokenizer.load(folder).for_tasks()
            data = task_data.read(recipe)
        else:
            data = task_data.read(recipe)
            base, tokenizer = _from_scratch(recipe, data, processes)
        for line in task_data.summary_lines(data):
            CONSOLE.print(line)
        encoded = task_data.encode(recipe, base.config, tokenizer, data)
        for line in _truncation_lines(recipe, encoded):
            CONSOLE.print(line)
        if processes.main:
            check_data(recipe.out, data.identity)
            settle(recipe, MAY_CHANGE)  # only now: a recipe with a mistake must not block the corrected one
        processes.wait()
        runs = train_seeds(
            recipe,
            processes,
            data.identity,
            lambda seeded: run_seed(seeded, base, tokenizer, data, encoded, processes),
            lambda task, details: export(recipe, task, tokenizer, data, details),
        )
        if processes.main:
            _write_result(recipe, build_result(recipe, data, encoded, runs), best_run(runs))
        processes.wait()
    return files.read_json(recipe.out / RESULT)


def _write_result(recipe: FineTune, result: dict[str, Any], best: int) -> None:
    """Write result.json, the report, and the card of the best seed's model."""
    files.write_json(recipe.out / RESULT, result)
    curves = log.read(recipe.out / f"seed-{best}" / log.NAME)
    evaluation.write(recipe.out, _title(recipe), result, curves)
    if (recipe.out / "model").is_dir():
        network = recipe.network.kind if recipe.network else None
        files.write_atomic(
            recipe.out / "model" / "README.md", finetuned_card(recipe.task.kind, result, network).encode()
        )


def _truncation_lines(recipe: FineTune, encoded: EncodedData) -> Iterator[str]:
    """For each set with texts that are too long, their number."""
    sets = ("training", "dev"), encoded.truncated, (encoded.train, encoded.dev)
    for name, truncated, items in zip(*sets, strict=True):
        if truncated:
            limit = f"{recipe.data.max_length} tokens"
            if most := getattr(recipe.task.settings, "max_new_tokens", None):
                limit += f", or their target is longer than {most},"
            yield f"{truncated:,} of {len(items):,} {name} texts are longer than {limit} and are truncated"


def _from_scratch(recipe: FineTune, data: TaskData, processes: Processes) -> tuple[ModelFolder, Tokenizer]:
    """A network without weights, and a tokenizer that is trained on the sources and targets of the examples."""
    assert recipe.network is not None
    folder = recipe.out / "tokenizer"
    if not processes.main:
        processes.wait()  # the main process alone trains a tokenizer; the others load the one that it has written
    begun = folder.is_dir() and (recipe.out / "recipe.toml").exists()  # without a recipe, an earlier start was refused
    if isinstance(recipe.tokenizer, Path):
        tokenizer = Tokenizer.load(recipe.tokenizer)
    elif begun or not processes.main:
        tokenizer = Tokenizer.load(folder)
    else:
        examples = (one for one in data.train.examples if isinstance(one, Example))
        texts = (text for one in examples for text in (*one.texts, str(one.label)))
        tokenizer = train_tokenizer(texts, recipe.tokenizer or DEFAULT_TOKENIZER)
        tokenizer.save(folder)
    if processes.main:
        processes.wait()
    shape = replace(recipe.network.settings, vocabulary=tokenizer.vocabulary)
    CONSOLE.print(
        f"{recipe.network.kind} from scratch: {shape.parameter_count:,} parameters, {tokenizer.vocabulary:,} tokens"
    )
    return ModelFolder(config=shape, state_dict={}, parts=frozenset(), finetuned=None, config_json={}), tokenizer


def run_seed(
    recipe: FineTune,
    base: ModelFolder,
    tokenizer: Tokenizer,
    data: TaskData,
    encoded: EncodedData,
    processes: Processes = ALONE,
) -> tuple[Task, dict[str, float], dict[str, Any]]:
    """Train with one seed and evaluate on the dev set: the task, its metrics, and the details for the report."""
    device = hardware.select_device(recipe.train.device)
    task, feed, optimizer = build_training(recipe, base, tokenizer, data, encoded, device, processes)
    batch_tokens = CUDA_EVALUATION_TOKENS if device.type == "cuda" else CPU_EVALUATION_TOKENS
    evaluator = DevEvaluator(task, data.dev.examples, encoded.dev, device, batch_tokens, Prior.of(data.train.examples))
    precision = hardware.select_precision(recipe.train.precision, device)
    metrics, findings = fit(
        recipe,
        Step(task, optimizer, recipe.train, precision, processes),
        feed,
        evaluator,
        title=recipe.task.kind,
        flops_per_token=lambda attended: task.trunk.config.flops(attended, 0.0),
        evaluate_untrained=recipe.network is None,  # an untrained decoder would generate up to the maximum length
    )
    if not processes.main:
        return task, metrics, {}
    if isinstance(task, SequenceClassification):
        task.fold_standardisation()
    if recipe.adapt.kind == "lora":
        adapter.save(recipe.out / "adapter", task, recipe.adapt, str(recipe.model))
    # Text to text trains the whole network, and frozen features train none of it: neither has adapters to merge.
    if not isinstance(task, TextToText) and recipe.task.kind not in task_data.FEATURE_TASKS:
        adapt.merge_and_unfreeze(task)
    return task.eval(), metrics, findings


def build_training(
    recipe: FineTune,
    base: ModelFolder,
    tokenizer: Tokenizer,
    data: TaskData,
    encoded: EncodedData,
    device: torch.device,
    processes: Processes = ALONE,
) -> tuple[Task, Feed, Optimizer]:
    """The task with the pretrained weights, its feed, and its optimizer, whose steps a GPU captures as CUDA graphs."""
    task = task_data.build_task(recipe, base.config, data)
    # A network from scratch is initialised at width**-0.5, as the Transformer; new heads on a trained one at 0.02.
    trained = base.state_dict and isinstance(base.config, TransformerConfig)
    initialise(task, recipe.train.seed, 0.02 if trained else base.config.width**-0.5)
    weights = _pretrained_weights(task, base)
    task.load_state_dict(weights, strict=False)
    if isinstance(task, SequenceClassification) and not any(name.startswith("classifier.") for name in weights):
        prior = Prior.of(data.train.examples)
        if prior.mean is not None:
            task.standardise(prior.mean, prior.deviation)
    adapt.adapt_task(task, recipe.adapt, recipe.train.seed)
    task = task.to(device)
    bucket = _bucket(recipe, encoded, tokenizer)
    sampler = BatchSampler(encoded.train, recipe.data.batch_size, recipe.train.seed)
    feed = Feed(sampler, partial(task.collate, bucket=bucket), data.identity, recipe.data.workers)
    rates = adapt.learning_rate_scales(task, recipe.adapt)
    hidden = task.hidden_matrices() if recipe.adapt.kind == "full" else {}  # Muon is not for LoRA's low-rank matrices
    capturable = device.type == "cuda"
    optimizer = Optimizer(
        task,
        recipe.optimizer,
        rates,
        capturable=capturable,
        hidden_matrices=hidden,
        processes=processes if recipe.train.shard_optimizer else ALONE,
    )
    return task, feed, optimizer


def _pretrained_weights(task: Task, base: ModelFolder) -> dict[str, torch.Tensor]:
    """The weights of the folder that fit this task: trunk and pooler, and a head of the same task and labels."""
    before, own, state = base.finetuned, task.state_dict(), base.state_dict
    same = (
        before is not None
        and TASKS[before.task] is type(task)
        and before.labels == task.labels
        and before.pooling == getattr(task, "pooling", "first")
    )
    if layout_of(base.config).shares_head:  # the pooler starts from the masked language model's head
        head = {name.removeprefix("mlm_head."): one for name, one in state.items() if name.startswith("mlm_head.")}
        state = {f"pooler.{name}": one for name, one in head.items()} | state
    parts = ("trunk.", "pooler.", *(("classifier.", "span.") if same else ()))
    return {name: weight for name, weight in state.items() if name in own and name.startswith(parts)}


def _bucket(recipe: FineTune, encoded: EncodedData, tokenizer: Tokenizer) -> Bucket:
    """Shape buckets: batches are padded to a multiple of about an eighth of the usual number of tokens.

    A GPU captures one CUDA graph, and a CPU prepares its bfloat16 kernels once, for each shape.
    """
    sample = encoded.train[:: max(1, len(encoded.train) // 4096)]
    usual = np.mean([sum(map(len, item.rows)) for item in sample]) * recipe.data.batch_size
    multiple = max(64, 64 * round(usual / 512))
    return Bucket(
        batch_size=recipe.data.batch_size,
        max_length=recipe.data.max_length,
        pad_to_multiple_of=multiple,
        padding=tokenizer.padding_id,
    )


def _title(recipe: FineTune) -> str:
    model = recipe.network.kind if recipe.network else evaluation.model_name(recipe.model or Path())
    return f"{model}, fine-tuned on {recipe.data.train.name}"
