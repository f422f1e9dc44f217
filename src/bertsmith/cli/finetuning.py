"""Verbs that fine-tune a model on labelled data and evaluate it: finetune, evaluate."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bertsmith.cli.application import FINETUNE, app
from bertsmith.cli.options import LearningRate, ModelFolder, Out, Overrides, check_folder


@app.command(rich_help_panel=FINETUNE)
def finetune(
    model: Annotated[
        Path,
        typer.Argument(
            help="Model folder; or, to train from random weights, a member such as transformer-small or vit-small, "
            "or a recipe."
        ),
    ],
    data: Annotated[
        Path,
        typer.Argument(
            help="Labelled file (.csv .tsv .jsonl .json .conll), or folder with train and dev files. Images: a folder "
            "for each class, a table with paths, or files of CIFAR-10 or MNIST."
        ),
    ],
    out: Out,
    overrides: Overrides = None,
    dev: Annotated[
        Path | None,
        typer.Option(
            help="Labelled file, or images, to evaluate on; by default, the folder's, or a part of the training data."
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            help="text-classification, regression, multi-label, token-classification (ner, pos), question-answering, "
            "multiple-choice, sentence-similarity, text-to-text (translation, summarization) or features; "
            "by default, guessed from the file."
        ),
    ] = None,
    epochs: Annotated[float | None, typer.Option(help="Passes over the data; by default, by its size.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Optimizer steps instead of epochs.")] = None,
    budget: Annotated[str | None, typer.Option(help="Time of training instead of epochs, such as 10m or 2h.")] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Examples per update; by default, by the size of the training data.")
    ] = None,
    learning_rate: LearningRate = None,
    teacher: Annotated[
        Path | None,
        typer.Option(help="Images: model folder of a network whose predictions are learnt, too (distillation)."),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of runs with different seeds; scores are the mean with a 95 % interval. By default one."
        ),
    ] = None,
) -> None:
    """Fine-tune: classification, regression, NER, question answering, multiple choice, embeddings, translation, images.

    Any other recipe setting follows the data: data.label=stars optimizer.weight_decay=0.1 adapt.kind=lora.
    """
    from bertsmith.commands import finetune as command
    from bertsmith.commands.arguments import FINETUNE_KEYS, options_as_overrides

    options: dict[str, Any] = {
        "epochs": epochs,
        "steps": steps,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
    }
    options |= {"budget": budget, "teacher": teacher}
    changes = [*options_as_overrides(options, FINETUNE_KEYS), *(overrides or [])]
    command.finetune(model, data, out, dev=dev, task=task, seeds=seeds, overrides=changes)


@app.command(rich_help_panel=FINETUNE)
def evaluate(
    model: ModelFolder,
    data: Annotated[
        str | None,
        typer.Argument(help="Labelled file as for finetune, or folder with a test or dev file; not with --suite."),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Settings to change, such as data.label=stars; with --suite, those of its recipes."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", callback=check_folder, help="Output folder for result.json and report; required by --suite."
        ),
    ] = None,
    suite: Annotated[
        Literal["glue", "layers", "blimp", "probes", "few-shot"] | None,
        typer.Option(
            help="glue: fine-tune on each task; layers: frozen features of each layer; blimp: minimal pairs; "
            "probes: linear probes; few-shot: prompts with examples."
        ),
    ] = None,
    suite_data: Annotated[
        Path | None, typer.Option("--data", help="Data of the suite: a folder, a file or an archive.")
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With --suite glue, layers or few-shot: number of runs with different seeds, or draws of examples; "
            "3 by default.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            help="With --suite blimp, probes or few-shot: number of pairs per phenomenon, or examples, at most."
        ),
    ] = None,
    shots: Annotated[
        str | None, typer.Option(help="With --suite few-shot: numbers of examples in the prompt, such as 0,1,2,4,8.")
    ] = None,
) -> None:
    """Evaluate a fine-tuned model on a labelled file, or any model on a benchmark suite.

    Run the same command again to resume a suite.
    """
    from bertsmith.commands import evaluate as command

    arguments = [*([data] if data is not None else []), *(overrides or [])]
    command.evaluate(model, arguments, suite=suite, data=suite_data, out=out, seeds=seeds, limit=limit, shots=shots)
