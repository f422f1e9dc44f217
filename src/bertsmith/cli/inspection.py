"""Verbs that look inside a model or look something up: check, list, inspect."""

from pathlib import Path
from typing import Annotated

import typer

from bertsmith.cli.application import INSPECT, app
from bertsmith.cli.options import ImageSize, Overrides, RecipeName, check_file


@app.command(rich_help_panel=INSPECT)
def check(
    recipe: RecipeName,
    overrides: Overrides = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder that `bertsmith prepare` wrote, to estimate the time of epochs.")
    ] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="Plan for so many GPUs instead of this machine.")] = None,
    gpu: Annotated[str, typer.Option(help="Their kind: h200, h100 or a100.")] = "h200",
) -> None:
    """Check a pretraining recipe without running it: parameters, memory, speed and time."""
    from bertsmith.commands import check as command
    from bertsmith.commands import pretrain

    command.check(pretrain.with_paths(pretrain.read_recipe(recipe, overrides or []), data, None), gpus, gpu)


@app.command(name="list", rich_help_panel=INSPECT)
def list_all() -> None:
    """List the models of the family, the pretraining objectives, the tasks and the recipes."""
    from bertsmith.commands import catalogue as command

    command.list_all()


@app.command(rich_help_panel=INSPECT)
def inspect(
    models: Annotated[
        list[Path],
        typer.Argument(
            help="Model folders to be compared; or a run's `checkpoints`, to see them over training; or a model of "
            "images, and images."
        ),
    ],
    out: Annotated[
        Path, typer.Option(callback=check_file, help="Output page: .html; .json and .png hold its figures.")
    ],
    texts: Annotated[
        list[str] | None,
        typer.Option("--text", help="A text to read, or two separated by a tab; may be repeated, to compare them."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(help="Text file: one text per line; for recurrent models a page of text, whose cells are drawn."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="What the decoder of T5 or of a translation model reads; by default its own output."),
    ] = None,
    map_file: Annotated[
        Path | None,
        typer.Option(
            "--map", help="File of words or texts, or table with labels: draw a map of them (PCA, t-SNE, UMAP)."
        ),
    ] = None,
    word: Annotated[str | None, typer.Option(help="With --map: a map of the occurrences of this word.")] = None,
    max_length: Annotated[int | None, typer.Option(help="Tokens of each text that are read, at most.")] = None,
    attributions: Annotated[
        bool,
        typer.Option(
            "--attributions/--no-attributions", help="Which words decided: integrated gradients, the slowest part."
        ),
    ] = True,
    png: Annotated[bool, typer.Option("--png", help="Also write pictures as PNG files (matplotlib).")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Also write the figures as a JSON file.")] = False,
    size: ImageSize = "model",
) -> None:
    """See inside: one page of what models look at (attention), predict layer by layer, and know.

    Heads with their kinds, the prediction head on every layer, what changes when a word is masked or replaced, the
    words that decided, nearest neighbours and a map; of recurrent models (RNN, LSTM, GRU), with --file, gradient flow
    through time and interpretable cells. Of images: heads and rollout over the image, the class by layer, and the
    patches that decided.
    """
    from bertsmith.commands import inspect as command
    from bertsmith.commands.inspect_images import inspect_images

    of_text: dict[str, object] = {
        "text": texts,
        "file": file,
        "target": target,
        "map": map_file,
        "word": word,
        "png": png,
    }
    of_text |= {"max-length": max_length}
    if inspect_images(models, out, attribute=attributions, as_json=as_json, size=size, of_text=of_text) is not None:
        return
    command.inspect(
        models,
        texts or [],
        out,
        file=file,
        target=target,
        max_length=max_length,
        map_file=map_file,
        word=word,
        attribute=attributions,
        pictures=png,
        as_json=as_json,
    )
