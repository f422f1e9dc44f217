"""The verb that serves models over HTTP."""

from typing import Annotated, Literal

import typer

from bertsmith.cli.application import SERVE, app


@app.command(rich_help_panel=SERVE)
def serve(
    models: Annotated[
        list[str], typer.Argument(help="Model folders, each as FOLDER or NAME=FOLDER; the name goes into requests.")
    ],
    host: Annotated[str, typer.Option(help="Address to listen on; by default, only this machine can connect.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="Port; 0: any that is free.", min=0, max=65535)] = 8000,
    fronts: Annotated[
        int | None,
        typer.Option(
            help="Processes that accept and tokenise; by default 1 up to four cores, then one for two.", min=1, max=64
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="Device of the models: auto, cpu, cuda, cuda:1.")] = "auto",
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"],
        typer.Option(help="Number format of embeddings; auto: the fastest of this machine."),
    ] = "auto",
) -> None:
    """Serve models over HTTP: embeddings as OpenAI's, reranking, classes, tags, answers, blanks, scores, text.

    SIGTERM ends the server when every accepted request is answered, and SIGHUP loads the models anew.
    """
    from bertsmith.commands import serve as command

    command.serve(models, host=host, port=port, fronts=fronts, device=device, precision=precision)
