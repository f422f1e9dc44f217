"""Verbs that pretrain a model on text: make, demo, clean, tokenizer, prepare, pretrain, race."""

import time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bertsmith.cli.application import PRETRAIN, app
from bertsmith.cli.options import (
    TOKENIZER,
    AutoLowercase,
    Clean,
    Decontaminate,
    Destination,
    Field,
    Layout,
    LearningRate,
    OnBadLine,
    Out,
    Overrides,
    ReadAs,
    RecipeName,
    StripAccents,
    Texts,
    check_folder,
)


@app.command(rich_help_panel=PRETRAIN)
def make(
    texts: Texts,
    out: Out,
    budget: Annotated[
        str | None,
        typer.Option(help="Wall-clock time for everything: 90s, 10m, 2h; by default 10m, or that of the run resumed."),
    ] = None,
    field: Field = "text",
    on_bad_line: OnBadLine = "replace",
    layout: Layout = "auto",
    read_as: ReadAs = "auto",
    lowercase: AutoLowercase = None,
    strip_accents: StripAccents = None,
    like: Annotated[
        Literal["smith", "bert", "roberta", "albert", "electra", "modernbert", "gpt", "gpt2", "t5"] | None,
        typer.Option(help="The model that is made: ours, smith, or another as in its paper."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed; 0 by default.")] = None,
    clean: Clean = False,
    decontaminate: Decontaminate = None,
    start: Annotated[
        Path | None,
        typer.Option("--from", help="Model folder to continue on the text, instead of training a new model."),
    ] = None,
    general_text: Annotated[
        Path | None,
        typer.Option(
            help="With --from: general text on which forgetting is measured; by default bertsmith's English sample."
        ),
    ] = None,
) -> None:
    """Go from a folder of text to a pretrained BERT with a report, in one command and within a time budget.

    Trains a tokenizer, tokenises the text, chooses model size and hyperparameters for this machine, and pretrains.
    With --from, continues a model on the text instead, and measures it before and after. Run the same command again to
    resume an interrupted run.
    """
    began = time.monotonic()  # imports are part of the budget
    from bertsmith.commands import make as command

    tokenizer: dict[str, Any] = {"lowercase": lowercase, "strip_accents": strip_accents}
    reading: dict[str, Any] = {"field": field, "on_bad_line": on_bad_line, "layout": layout, "plain": read_as == "text"}
    cleaning: dict[str, Any] = {"clean": clean, "decontaminate": decontaminate or []}
    continued: dict[str, Any] = {"start": start, "general_text": general_text, "like": like}
    command.make(texts, out, budget=budget, seed=seed, began=began, **continued, **tokenizer, **cleaning, **reading)


@app.command(rich_help_panel=PRETRAIN)
def demo(
    out: Annotated[
        Path | None,
        typer.Option("--out", callback=check_folder, help="Output folder; by default runs/demo or runs/demo-images."),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="Wall-clock time: 90s, 10m, 2h; by default 5m, and 1m of training with --images.")
    ] = None,
    images: Annotated[
        bool, typer.Option("--images", help="Images instead: draw shapes, and train a vision transformer to name them.")
    ] = False,
) -> None:
    """Make a small BERT from the sample text that comes with bertsmith, and let it fill some masks."""
    began = time.monotonic()
    if images:
        from bertsmith.commands import demo_images

        demo_images.demo(out or Path("runs/demo-images"), budget=budget or "1m")
        return
    from bertsmith.commands import make as command

    command.demo(out or Path("runs/demo"), budget=budget or "5m", began=began)


@app.command(rich_help_panel=PRETRAIN)
def clean(
    texts: Texts,
    out: Out,
    decontaminate: Decontaminate = None,
    personal: Annotated[
        bool, typer.Option("--personal", help="Replace e-mail, IP and street addresses by made-up ones.")
    ] = False,
    similarity: Annotated[
        float, typer.Option(help="Jaccard similarity of two documents from which the later one is a near-duplicate.")
    ] = 0.75,
    skip: Annotated[
        list[str] | None,
        typer.Option(help="Rule to leave out, such as language or near-duplicates; may be given several times."),
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Worker processes; one per core by default.")] = None,
    field: Field = "text",
    on_bad_line: OnBadLine = "replace",
    layout: Layout = "auto",
    read_as: ReadAs = "auto",
) -> None:
    """Clean text for pretraining: drop near-duplicates, other languages, rubbish, repeated lines and evaluation sets.

    Writes text that `make` and `prepare` read, clean.json, and a page with counts and examples of every rule. Run the
    same command again to resume it after an interruption.
    """
    from bertsmith.commands import clean as command

    reading: dict[str, Any] = {"field": field, "on_bad_line": on_bad_line, "layout": layout, "plain": read_as == "text"}
    rules: dict[str, Any] = {"similarity": similarity, "skip": skip or [], "personal": personal}
    command.clean(texts, out, decontaminate=decontaminate or [], workers=workers, **rules, **reading)


@app.command(rich_help_panel=PRETRAIN)
def tokenizer(
    texts: Texts,
    out: Out,
    kind: Annotated[
        Literal["words", "wordpiece", "bpe", "unigram", "t5"] | None,
        typer.Option(
            help="wordpiece (BERT, the default), bpe (byte-level: GPT-2, RoBERTa), unigram (ALBERT), t5 (Unigram with "
            "sentinels), or whole words.",
            rich_help_panel=TOKENIZER,
        ),
    ] = None,
    vocabulary: Annotated[
        int | None, typer.Option(help="Vocabulary size; 30,522 by default.", rich_help_panel=TOKENIZER)
    ] = None,
    lowercase: AutoLowercase = None,
    strip_accents: StripAccents = None,
    extend: Annotated[
        Path | None, typer.Option(help="Model folder whose vocabulary is extended, instead of training a new one.")
    ] = None,
    new_tokens: Annotated[
        int | None, typer.Option(help="With --extend: number of tokens to add, 1,000 by default.")
    ] = None,
    field: Field = "text",
    on_bad_line: OnBadLine = "replace",
    layout: Layout = "auto",
    read_as: ReadAs = "auto",
) -> None:
    """Train a tokenizer on text, or extend the vocabulary of a model, and report tokens per word."""
    from bertsmith.commands import prepare as command

    reading: dict[str, Any] = {"field": field, "on_bad_line": on_bad_line, "layout": layout, "plain": read_as == "text"}
    settings = {"kind": kind, "vocabulary": vocabulary, "lowercase": lowercase, "strip_accents": strip_accents}
    command.new_or_extended(texts, out, settings, model=extend, new_tokens=new_tokens, **reading)


@app.command(rich_help_panel=PRETRAIN)
def prepare(
    texts: Texts,
    out: Destination,
    tokenizer: Annotated[Path, typer.Option("--tokenizer", help="Folder with tokenizer.json.")],
    validation_share: Annotated[float, typer.Option(help="Share of the text held out for validation.")] = 0.01,
    workers: Annotated[int | None, typer.Option(help="Worker processes; one per core by default.")] = None,
    on: Annotated[
        str | None,
        typer.Option(help="Ray cluster that tokenises: ray://host:10001, or auto for one on this machine."),
    ] = None,
    field: Field = "text",
    on_bad_line: OnBadLine = "replace",
    layout: Layout = "auto",
    read_as: ReadAs = "auto",
    clean: Clean = False,
    decontaminate: Decontaminate = None,
) -> None:
    """Tokenise and deduplicate text once, into memory-mapped shards for `pretrain`.

    Run the same command again to resume it after an interruption.
    """
    from bertsmith.commands import prepare as command

    reading: dict[str, Any] = {"field": field, "on_bad_line": on_bad_line, "layout": layout, "plain": read_as == "text"}
    reading |= {"workers": workers, "on": on, "clean": clean, "decontaminate": decontaminate or []}
    command.prepare(texts, out, tokenizer, validation_share=validation_share, **reading)


@app.command(rich_help_panel=PRETRAIN)
def pretrain(
    recipe: RecipeName,
    overrides: Overrides = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder that `bertsmith prepare` wrote, or images; by default, the recipe's."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(callback=check_folder, help="Output folder; by default, the recipe's.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Optimizer steps; by default, the recipe's.")] = None,
    budget: Annotated[str | None, typer.Option(help="Training time instead of steps: 90s, 10m, 2h.")] = None,
    learning_rate: LearningRate = None,
) -> None:
    """Pretrain the model of a recipe on prepared text, or on images: `pretrain mae-small IMAGES --out DIR`.

    Run the same command again to resume from a checkpoint.
    """
    from bertsmith.commands import pretrain as command
    from bertsmith.commands import pretrain_images
    from bertsmith.commands.arguments import PRETRAIN_KEYS, options_as_overrides, path_before_overrides

    options = {"steps": steps, "budget": budget, "learning_rate": learning_rate}
    data, settings = path_before_overrides(data, overrides or [])
    changes = [*options_as_overrides(options, PRETRAIN_KEYS), *settings]
    if pretrain_images.reads_images(recipe):
        pretrain_images.pretrain(pretrain_images.read_recipe(recipe, data, out, changes))
        return
    command.pretrain(command.with_paths(command.read_recipe(recipe, changes), data, out))


@app.command(rich_help_panel=PRETRAIN)
def race(
    recipes: Annotated[
        list[str],
        typer.Argument(
            help='Recipes, such as bert-base or "bert-base objective.mask_rate=0.4"; a setting by itself is for all.'
        ),
    ],
    out: Out,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder that `bertsmith prepare` wrote, for all recipes; for networks of images, the images."
        ),
    ] = None,
    texts: Annotated[
        list[str] | None,
        typer.Option("--text", help="Or text files, which are prepared with the tokenizer that each recipe takes."),
    ] = None,
    budget: Annotated[str, typer.Option(help="Training time of each recipe: 90s, 5m, 2h.")] = "5m",
    equal: Annotated[
        Literal["time", "flops"],
        typer.Option(help="What all recipes get: the same training time, or the FLOPs that the first spends in it."),
    ] = "time",
    points: Annotated[int, typer.Option(help="Number of checkpoints that are scored, evenly spaced.")] = 4,
    glue: Annotated[Path | None, typer.Option(help="Folder of GLUE tasks to fine-tune each checkpoint on.")] = None,
    tasks: Annotated[str, typer.Option(help="GLUE tasks, such as CoLA,SST-2; by default, all in the folder.")] = "",
    seeds: Annotated[
        int, typer.Option(min=1, help="Runs with different seeds: of each GLUE task, or of each network of images.")
    ] = 1,
    finetune_overrides: Annotated[
        str, typer.Option(help='Fine-tuning settings, such as "optimizer.learning_rate=1e-3 train.epochs=5".')
    ] = "",
    blimp: Annotated[
        Path | None, typer.Option(help="BLiMP minimal pairs to score: a folder, a file or an archive.")
    ] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of minimal pairs per phenomenon.")] = 200,
    lowercase: Annotated[
        bool, typer.Option("--lowercase/--cased", help="With --text: lowercase the text, or keep its case.")
    ] = True,
) -> None:
    """Compare recipes: train each on the same text or images with equal compute, and plot score against cost.

    Run the same command again to resume it, or to add a recipe.
    """
    from bertsmith.commands import race as command
    from bertsmith.commands import race_images
    from bertsmith.runs.race_metrics import MetricsConfig

    rules = command.Rules(budget=budget, equal=equal, points=points)
    if race_images.reads_images(recipes):
        race_images.race(recipes, out, rules=rules, data=data, seeds=seeds)
        return
    metrics = MetricsConfig(
        glue=glue,
        tasks=[task for task in tasks.split(",") if task],
        seeds=seeds,
        finetune_overrides=finetune_overrides.split(),
        blimp=blimp,
        limit=limit,
    )
    command.race(recipes, out, rules=rules, metrics=metrics, data=data, texts=texts or [], lowercase=lowercase)
