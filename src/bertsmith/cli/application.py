"""The Typer application of the command line, and the panels under which its help lists the verbs."""

from typing import Any

import typer
from typer.core import TyperGroup

PRETRAIN, FINETUNE, USE = "Pretrain a model on text", "Fine-tune a model, and evaluate it", "Use a model"
SERVE, WORD_VECTORS, INSPECT = "Serve models", "Word vectors", "Look inside, and look up"
PANELS = (PRETRAIN, FINETUNE, USE, SERVE, WORD_VECTORS, INSPECT)  # in the order of the help


class Verbs(TyperGroup):
    """The group of all verbs, listed panel by panel; within a panel, in the order of their definition."""

    def list_commands(self, ctx: Any) -> list[str]:
        titles = {name: getattr(verb, "rich_help_panel", None) for name, verb in self.commands.items()}
        return sorted(titles, key=lambda name: PANELS.index(titles[name]) if titles[name] in PANELS else len(PANELS))


app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Turn a folder of text into your own BERT.",
    epilog="Start with: bertsmith make my-texts/ --budget 10m --out runs/mine",
)


def _print_version(wanted: bool) -> bool:
    if wanted:
        import bertsmith

        print(f"bertsmith {bertsmith.__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def options(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """Turn a folder of text into your own BERT: pretrain, fine-tune, evaluate, use, and export to transformers."""
