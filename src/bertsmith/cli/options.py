"""Arguments and options that several verbs share."""

from pathlib import Path
from typing import Annotated, Literal

import typer

READING, TOKENIZER = "Reading text", "Tokenizer"  # panels of options


def check_folder(out: Path | None) -> Path | None:
    """Refuse a folder that cannot be written, before any work is done."""
    if out is not None:
        from bertsmith import files

        files.check_folder(out)
    return out


def check_destination(out: Path) -> Path:
    """Refuse a folder that cannot be written; an address is asked later."""
    from bertsmith.data.address import is_address

    if not is_address(out):
        check_folder(out)
    return out


def check_file(out: Path | None) -> Path | None:
    """Refuse a file that cannot be written, before any work is done."""
    if out is not None:
        from bertsmith import files

        files.check_file(out)
    return out


# Text to read.
Texts = Annotated[
    list[str],
    typer.Argument(
        help="Files, folders, globs, addresses such as s3://bucket/texts, or - for standard input: .txt .md .html .csv "
        ".jsonl .parquet .pdf .docx."
    ),
]
Field = Annotated[
    str, typer.Option(help="Column or field with the text in .csv, .tsv, .jsonl and .parquet.", rich_help_panel=READING)
]
OnBadLine = Annotated[
    Literal["skip", "replace", "fail"],
    typer.Option(
        "--on-bad-line",
        help="Invalid UTF-8 or an overlong line: skip the line, replace the bytes, or fail.",
        rich_help_panel=READING,
    ),
]
Layout = Annotated[
    Literal["auto", "lines", "running"],
    typer.Option(
        "--layout",
        help="lines: one sentence per line, a blank line between documents; running: plain running text.",
        rich_help_panel=READING,
    ),
]
ReadAs = Annotated[
    Literal["auto", "text"],
    typer.Option(
        "--as",
        help="text: read every file as plain text, whatever its suffix (source code, for example).",
        rich_help_panel=READING,
    ),
]
Clean = Annotated[
    bool,
    typer.Option(
        "--clean",
        help="First drop near-duplicates, other languages, rubbish and repeated lines, as `bertsmith clean` does.",
        rich_help_panel=READING,
    ),
]
Decontaminate = Annotated[
    list[str] | None,
    typer.Option(
        help="With cleaning: an evaluation file, in any format that finetune reads, whose texts are removed by their "
        "13-grams; may be given several times.",
        rich_help_panel=READING,
    ),
]
Input = Annotated[
    list[str] | None,
    typer.Argument(
        help="Files (lines, JSON lines or tables, also compressed) or texts in quotes, standard input by default; of a "
        "model of images, images and folders."
    ),
]

# A tokenizer.
AutoLowercase = Annotated[
    bool | None,
    typer.Option(
        "--lowercase/--cased",
        help="Lowercase the text, or keep its case; by default, whatever suits the language.",
        rich_help_panel=TOKENIZER,
    ),
]
StripAccents = Annotated[
    bool | None,
    typer.Option(
        "--strip-accents/--keep-accents",
        help="Turn ä into a, or keep accents; by default, stripped in lowercased English only.",
        rich_help_panel=TOKENIZER,
    ),
]

# A recipe, a model, an output.
RecipeName = Annotated[str, typer.Argument(help="Recipe: a name such as bert-base (`bertsmith list`), or a TOML file.")]
Overrides = Annotated[list[str] | None, typer.Argument(help="Recipe settings to change, such as train.steps=1000.")]
ModelFolder = Annotated[
    Path, typer.Argument(help="Model folder: one that bertsmith wrote, or a Hugging Face model on disk.")
]
LearningRate = Annotated[float | None, typer.Option(help="Peak learning rate; by default, the recipe's.")]
Out = Annotated[Path, typer.Option("--out", callback=check_folder, help="Output folder.")]
Destination = Annotated[
    Path,
    typer.Option("--out", callback=check_destination, help="Output folder, or an address such as s3://bucket/shards."),
]
ImageSize = Annotated[
    Literal["model", "own"],
    typer.Option("--size", help="Of images: the size that the model was trained on, or each image's own."),
]
Precision = Annotated[
    Literal["float32", "bfloat16"],
    typer.Option(help="Number format of the weights; bfloat16 is faster, and may change a text."),
]
TopK = Annotated[int, typer.Option("--top-k", min=1, help="Number of results to show.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
