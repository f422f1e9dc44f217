"""The inputs of inference commands, and their output files, which an interrupted command resumes."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from bertsmith import terminal
from bertsmith.data.images.image_files import is_image_path
from bertsmith.data.labelled import unlabelled
from bertsmith.data.output import Output, changed_input_error, fingerprint
from bertsmith.errors import TextError
from bertsmith.inference.image_model import ImageModel
from bertsmith.inference.model import Model
from bertsmith.models.hf.folder import check_exists, model_folder


def checked_inputs(model: Path, inputs: Sequence[str], texts: Sequence[str] = ()) -> list[str]:
    """The input files, all of which exist, followed by texts that were given literally."""
    if image := next(filter(is_image_path, inputs), None):
        check_exists(model_folder(model))  # a name that is mistyped might be that of a model of images
        raise TextError(image, "is of images, and the model reads text", "Take a model folder of ViT or DeiT")
    unlabelled.check_files(inputs)
    return [*inputs, *map(unlabelled.LiteralText, texts)]


def output_settings(model: Model | ImageModel, verb: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that determines the rows of an output: a file written with other settings is not resumed."""
    return {
        "verb": verb,
        "model": fingerprint(Path(model.path)),
        "device": model.device.type,
        "options": {name: str(value) for name, value in options.items()},
    }


def remaining_inputs(
    output: Output, read: Callable[[], Iterator[Any]], key: Callable[[Any], str], names: Sequence[str]
) -> Iterator[Any]:
    """The inputs that have no row in the output yet."""
    passes = 0

    def inputs() -> Iterator[Any]:
        nonlocal passes
        passes += 1
        if passes > 1 and (not names or "-" in names):  # standard input cannot be read twice
            raise changed_input_error("standard input")
        return read()

    remaining = output.resume(inputs, key)
    if output.rows:
        notice(f"{output.out}: resuming after {output.rows:,} rows")
    elif output.restart_reason:
        notice(f"{output.part}: was written with {output.restart_reason}, so it is written anew")
    return remaining


def notice(text: str) -> None:
    """A line on standard error."""
    print(f"bertsmith: {terminal.escape_control(text)}", file=sys.stderr, flush=True)


def notice_once() -> Callable[[str], None]:
    """`notice` that prints each line once, even when the inputs are read several times."""
    return cache(notice)
