"""Fine-tuning speed compared with transformers' Trainer, in one run, on the same examples.

    python bench/finetune.py DATA [--model FOLDER] [--tasks SST-2 CoLA] [--out bench/results/finetune.json]

DATA holds GLUE's folders. Ours is the whole step of `bertsmith finetune`: batches, copying, forward, backward,
clipping, AdamW. The Trainer runs as in its reference script (padded to 128), then with everything that speeds it up
(padded to the longest of a batch, batches of similar lengths, workers), and then compiled. Both have the same model, 32
examples per batch, and bf16 where it is faster. The figure is examples per second over whole stretches, since batches
of similar lengths come from long to short, fifty at a time; warm-up and compilation are excluded.
"""

import argparse
import itertools
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from record import record

from bertsmith.models.family import FAMILY
from bertsmith.models.hf import folder as folders
from bertsmith.models.transformer import Transformer
from bertsmith.nn.init import initialise
from bertsmith.runs import finetuning, task_data, task_recipe
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.train import hardware
from bertsmith.train.display import Display
from bertsmith.train.step import Step
from bertsmith.train.step_metrics import Speed
from bertsmith.train.trainer import Trainer

STRETCHES = 3
LENGTH, ITEMS = 128, 32


def ours(recipe: Any, warm: int, steps: int, device: torch.device) -> float:
    """Examples a second of our trainer."""
    base, tokenizer = folders.read(recipe.model), Tokenizer.load(recipe.model)
    data = task_data.read(recipe)
    encoded = task_data.encode(recipe, base.config, tokenizer, data)
    task, feed, optimizer = finetuning.build_training(recipe, base, tokenizer, data, encoded, device)
    with tempfile.TemporaryDirectory() as folder, Display("ours") as display:
        trainer = Trainer(
            Step(task.train(), optimizer, recipe.train, hardware.select_precision("auto", device)),
            feed,
            recipe.schedule,
            recipe.train,
            folder=Path(folder),
            compute_metrics=dict,
            speed=Speed(None, lambda attended: 1.0),
            display=display,
            tensorboard=False,
        )
        seen, seconds = 0, 0.0
        with trainer.feed.loader(trainer.state.position, pin_memory=device.type == "cuda") as loader:
            for stretch in range(1 + STRETCHES):
                began = _now(device)
                for _, batch in itertools.islice(loader, warm if stretch == 0 else steps):
                    trainer.update([batch], 0.5)
                    seen += batch.counts["class"] if stretch else 0
                seconds += (_now(device) - began) if stretch else 0.0
    return seen / seconds


MODES = ("trainer", "trainer_grouped", "trainer_compiled")


def theirs(recipe: Any, warm: int, steps: int, device: torch.device, mode: str) -> float:
    """Examples a second of transformers' Trainer."""
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        TrainerCallback,
        TrainingArguments,
        default_data_collator,
    )

    data = task_data.read(recipe)
    tokenizer = AutoTokenizer.from_pretrained(recipe.model)
    texts = zip(*(example.texts for example in data.train.examples), strict=True)
    padding: Any = "max_length" if mode == "trainer" else False
    encoded = tokenizer(*map(list, texts), truncation=True, max_length=LENGTH, padding=padding)
    labels = [data.labels.index(str(example.label)) for example in data.train.examples]
    rows = [
        {name: column[number] for name, column in encoded.items()} | {"labels": label}
        for number, label in enumerate(labels)
    ]
    model = AutoModelForSequenceClassification.from_pretrained(recipe.model, num_labels=len(data.labels))

    class Watch(TrainerCallback):
        """Notes the time when a stretch begins and ends."""

        def __init__(self) -> None:
            self.marks: list[float] = []

        def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            done = state.global_step - warm
            if done >= 0 and done % steps == 0:
                self.marks.append(_now(device))

    watch = Watch()
    quick: dict[str, Any] = {}
    if mode != "trainer":
        quick = {"torch_compile": mode == "trainer_compiled", "dataloader_num_workers": 2}
        quick["train_sampling_strategy"] = "group_by_length"
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=ITEMS,
            max_steps=warm + STRETCHES * steps,
            learning_rate=5e-5,
            bf16=hardware.select_precision("auto", device) == torch.bfloat16,
            use_cpu=device.type == "cpu",
            logging_strategy="no",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            **quick,
        )
        collate = default_data_collator if mode == "trainer" else DataCollatorWithPadding(tokenizer)
        trainer = Trainer(model, arguments, data_collator=collate, train_dataset=rows, callbacks=[watch])
        trainer.train()
    return ITEMS * STRETCHES * steps / (watch.marks[-1] - watch.marks[0])


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def _random(folder: Path, size: str, tokenizer: Path) -> Path:
    """A model folder of this size at its first weights: as fast as a trained one."""
    loaded = Tokenizer.load(tokenizer)
    trunk = Transformer(replace(FAMILY[size], vocabulary=loaded.vocabulary))
    initialise(trunk, 0)
    state = {f"trunk.{name}": weight for name, weight in trunk.state_dict().items()}
    folders.write(folder, trunk.config, state, {"pad_token_id": loaded.padding_id})
    loaded.save(folder, max_length=trunk.config.max_length)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", type=Path, required=True, help="a model folder; sizes take its tokenizer")
    parser.add_argument("--sizes", nargs="*", default=["bert-base"], help="also these sizes, with random weights")
    parser.add_argument("--tasks", nargs="+", default=["SST-2", "CoLA"])
    parser.add_argument("--modes", nargs="+", default=MODES, choices=MODES, help="of the Trainer")
    parser.add_argument(
        "--warm", type=int, default=100, help="steps before the first stretch; ours takes twice as many"
    )
    parser.add_argument("--steps", type=int, default=100, help="in a stretch")
    parser.add_argument("--out", type=Path, default=Path("bench/results/finetuning.json"))
    given = parser.parse_args()
    device = hardware.select_device("auto")
    found = []
    with tempfile.TemporaryDirectory() as spare:
        models = {"folder": given.model}
        models |= {size: _random(Path(spare) / size, size, given.model) for size in given.sizes}
        for (name, model), task in itertools.product(models.items(), given.tasks):
            options = {"dev": None, "task": None, "seeds": 1, "overrides": []}
            recipe = task_recipe.build_recipe(model, given.data / task, Path(spare) / "run", **options)
            row: dict[str, Any] = {"model": model.name if name == "folder" else name, "task": task}
            row["ours"] = ours(recipe, 2 * given.warm, given.steps, device)
            for mode in given.modes:
                row[mode] = theirs(recipe, given.warm, given.steps, device, mode)
            row["ratio_to_best"] = row["ours"] / max(row[mode] for mode in given.modes)
            found.append(row)
            said = (f"{key}={value:,.1f}" if isinstance(value, float) else str(value) for key, value in row.items())
            print(" ".join(said), flush=True)
            _keep(given.out, found, device)


def _keep(out: Path, found: list[dict[str, Any]], device: torch.device) -> None:
    """After every row, so that an interrupted run keeps its results."""
    record(out, {"unit": "examples a second", "items": ITEMS, "rows": found}, hardware.describe(device))


if __name__ == "__main__":
    main()
