"""The verb that serves models over HTTP."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from bertsmith.cli.application import SERVE, app

LIMITS = "Limits"  # a panel of options


@app.command(rich_help_panel=SERVE)
def serve(
    models: Annotated[
        list[str], typer.Argument(help="Model folders, each as FOLDER or NAME=FOLDER; the name goes into requests.")
    ],
    host: Annotated[
        str, typer.Option(help="Address to listen on; with the default only this machine can connect.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0: any that is free.", min=0, max=65535)] = 8000,
    key: Annotated[
        str | None,
        typer.Option(
            help="Key that requests have to send as Authorization: Bearer KEY. Other users of this machine can see the "
            "command line, but not a file, nor the environment variable BERTSMITH_KEY."
        ),
    ] = None,
    key_file: Annotated[Path | None, typer.Option(help="File with the key.")] = None,
    fronts: Annotated[
        int | None,
        typer.Option(
            help="Processes that accept and tokenise; by default 1 up to four cores, then one for two.", min=1, max=64
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="Device of the models: auto, cpu, cuda, cuda:1.")] = "auto",
    backend: Annotated[
        Literal["auto", "torch", "onnx", "onnx-int8"],
        typer.Option(help="What computes: torch; of folders that `export` wrote, ONNX Runtime."),
    ] = "auto",
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"],
        typer.Option(help="Number format of embeddings; auto: the fastest of this machine."),
    ] = "auto",
    max_requests: Annotated[
        int, typer.Option(help="Requests that wait or are computed; one more gets 429.", min=1, rich_help_panel=LIMITS)
    ] = 96,
    max_queue: Annotated[
        int,
        typer.Option(help="Tokens of these requests together; 0: as the device allows.", min=0, rich_help_panel=LIMITS),
    ] = 0,
    max_tokens: Annotated[int, typer.Option(help="Tokens of a request.", min=1, rich_help_panel=LIMITS)] = 65_536,
    max_inputs: Annotated[int, typer.Option(help="Texts of a request.", min=1, rich_help_panel=LIMITS)] = 2_048,
    max_body: Annotated[int, typer.Option(help="Bytes of a request.", min=1, rich_help_panel=LIMITS)] = 8 << 20,
    max_connections: Annotated[
        int, typer.Option(help="Open connections of each front.", min=1, rich_help_panel=LIMITS)
    ] = 1_024,
) -> None:
    """Serve models over HTTP: embeddings as OpenAI's, reranking, classes, tags, answers, masks, scores, text.

    SIGTERM ends the server when every accepted request is answered, and SIGHUP loads the models anew.
    """
    from bertsmith.commands import serve as command

    limits = {"queue_requests": max_requests, "queue_tokens": max_queue, "request_tokens": max_tokens}
    limits |= {"inputs": max_inputs, "body_bytes": max_body, "connections": max_connections}
    computed = {"device": device, "backend": backend, "precision": precision}
    where = {"host": host, "port": port, "fronts": fronts, "key": key, "key_file": key_file}
    command.serve(models, **where, limits=limits, **computed)  # type: ignore[arg-type]
