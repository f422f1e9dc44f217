"""Verbs that look inside a model or look something up: check, list, inspect."""

from pathlib import Path
from typing import Annotated

import typer

from bertsmith.cli.application import INSPECT, app
from bertsmith.cli.options import Overrides, RecipeName, check_file


@app.command(rich_help_panel=INSPECT)
def check(
    recipe: RecipeName,
    overrides: Overrides = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder that `bertsmith prepare` wrote, to estimate the time of epochs.")
    ] = None,
) -> None:
    """Check a pretraining recipe without running it: parameters, memory, speed and time."""
    from bertsmith.commands import pretrain as command

    command.check(command.with_paths(command.read_recipe(recipe, overrides or []), data, None))


@app.command(name="list", rich_help_panel=INSPECT)
def list_all() -> None:
    """List the models of the family, the pretraining objectives, the tasks and the recipes."""
    from bertsmith.commands import catalogue as command

    command.list_all()


@app.command(rich_help_panel=INSPECT)
def inspect(
    models: Annotated[list[Path], typer.Argument(help="Folders of recurrent language models, to be compared.")],
    text: Annotated[Path, typer.Option(help="Text file to run them on.")],
    out: Annotated[Path, typer.Option(callback=check_file, help="Output page: .html.")],
    png: Annotated[bool, typer.Option("--png", help="Also write the pictures as PNG files (matplotlib).")] = False,
) -> None:
    """Draw the gradient flow through time and interpretable cells of recurrent models (RNN, LSTM, GRU)."""
    from bertsmith.commands import inspect as command

    command.inspect(models, text, out, pictures=png)
