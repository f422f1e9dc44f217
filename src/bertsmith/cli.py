"""The command line: verbs, and no logic. Heavy imports live inside the verbs, so that help answers at once."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from bertsmith.errors import BertsmithError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Turn a folder of text into your own BERT.",
    epilog="Start with: bertsmith make my-texts/ --budget 10m --out runs/mine",
)

Texts = Annotated[
    list[str],
    typer.Argument(help="Files, folders, globs, or - for standard input: .txt .jsonl .parquet, also .gz .xz .zst."),
]
Field = Annotated[str, typer.Option(help="The field that holds the text in .jsonl and .parquet.")]
Bad = Annotated[
    Literal["skip", "replace", "fail"],
    typer.Option("--bad", help="What to do with bytes that are not text, and with endless lines."),
]
Shape = Annotated[
    Literal["auto", "lines", "running"],
    typer.Option("--layout", help="One sentence a line with blank lines between documents, or running text."),
]
Overrides = Annotated[list[str] | None, typer.Argument(help="Changes to the recipe, as in train.steps=1000.")]
Out = Annotated[Path, typer.Option("--out", help="The folder to write.")]


@app.command()
def make(
    texts: Texts,
    out: Out,
    budget: Annotated[str, typer.Option(help="How long it may take in all: 90s, 10m, 2h.")] = "10m",
    field: Field = "text",
    bad: Bad = "replace",
    layout: Shape = "auto",
    lowercase: Annotated[
        bool, typer.Option("--lowercase/--cased", help="Whether Paris and paris are one word.")
    ] = True,
    seed: Annotated[int, typer.Option(help="Two runs with one seed are the same run.")] = 0,
) -> None:
    """From a folder of text to a trained, validated model, in one command."""
    from bertsmith import run

    run.make(texts, out, budget=budget, seed=seed, lowercase=lowercase, field=field, policy=bad, layout=layout)


@app.command()
def demo(
    out: Out = Path("runs/demo"),
    budget: Annotated[str, typer.Option(help="How long it may take in all.")] = "5m",
) -> None:
    """Make a small BERT from the text that comes with bertsmith, and let it fill some blanks."""
    from bertsmith import run

    run.demo(out, budget=budget)


@app.command()
def tokenizer(
    texts: Texts,
    out: Out,
    kind: Annotated[
        Literal["wordpiece", "bpe", "unigram"], typer.Option(help="How words are cut into pieces.")
    ] = "wordpiece",
    vocabulary: Annotated[int, typer.Option(help="How many pieces.")] = 30_522,
    lowercase: Annotated[
        bool, typer.Option("--lowercase/--cased", help="Whether Paris and paris are one word.")
    ] = True,
    extend: Annotated[Path | None, typer.Option(help="A model folder whose vocabulary gets more pieces.")] = None,
    more: Annotated[int, typer.Option(help="How many, with --extend.")] = 1_000,
    field: Field = "text",
    bad: Bad = "replace",
    layout: Shape = "auto",
) -> None:
    """Train a vocabulary, or extend that of a model, and report how well it fits the text."""
    from bertsmith import run
    from bertsmith.text.tokenizer import TokenizerConfig

    if extend is not None:
        run.extend(texts, out, extend, more, field=field, policy=bad, layout=layout)
        return
    settings = TokenizerConfig(kind=kind, vocabulary=vocabulary, lowercase=lowercase)
    run.tokenizer(texts, out, settings, field=field, policy=bad, layout=layout)


@app.command()
def prepare(
    texts: Texts,
    out: Out,
    tokenizer: Annotated[Path, typer.Option("--tokenizer", help="A folder with tokenizer.json.")],
    valid: Annotated[float, typer.Option(help="The share of documents kept for validation.")] = 0.01,
    workers: Annotated[int | None, typer.Option(help="Processes; all cores if not given.")] = None,
    field: Field = "text",
    bad: Bad = "replace",
    layout: Shape = "auto",
) -> None:
    """Tokenise a text once, into shards that training maps into memory. Goes on where it was interrupted."""
    from bertsmith import run

    run.prepare(texts, out, tokenizer, valid=valid, workers=workers, field=field, policy=bad, layout=layout)


@app.command()
def pretrain(recipe: Path, overrides: Overrides = None) -> None:
    """Train what a recipe describes. The same command goes on with a run that was stopped or killed."""
    from bertsmith import run

    run.pretrain(run.read(recipe, overrides or []))


@app.command()
def check(recipe: Path, overrides: Overrides = None) -> None:
    """Read a recipe without running it: parameters, memory and time."""
    from bertsmith import run

    run.check(run.read(recipe, overrides or []))


@app.command(name="list")
def listing() -> None:
    """The members of the family, the objectives and the recipes."""
    from bertsmith import run

    run.listing()


@app.command()
def fill(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    texts: Annotated[
        list[str] | None, typer.Argument(help="Texts with [MASK] in them; standard input if none.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many words for each blank.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Fill the blanks of a text."""
    from bertsmith import run

    run.fill(model, texts, top=top, as_json=as_json)


Input = Annotated[
    list[str] | None, typer.Argument(help="Files of lines, JSON lines or tables; standard input if none.")
]
ModelFolder = Annotated[Path, typer.Argument(help="A model folder: ours, or any BERT of Hugging Face.")]


@app.command()
def finetune(
    model: ModelFolder,
    data: Annotated[
        Path, typer.Argument(help="A labelled file, or a folder with train and dev files, as GLUE has them.")
    ],
    out: Out,
    overrides: Overrides = None,
    dev: Annotated[Path | None, typer.Option(help="A file to choose the best weights by.")] = None,
    task: Annotated[
        Literal["classify", "tag", "answer", "choose", "embed", "features"] | None,
        typer.Option(help="What to learn; guessed from the file if not given."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many runs that differ in nothing but chance.")] = 1,
) -> None:
    """Teach a model a task: a class, a number, labels, tags, answers, endings or vectors."""
    from bertsmith import tune

    tune.show(
        tune.finetune(tune.recipe(model, data, out, dev=dev, task=task, seeds=seeds, overrides=overrides or [])), out
    )


@app.command()
def evaluate(
    model: ModelFolder,
    data: Annotated[Path, typer.Option("--data", help="The suite's data: a folder, a file or an archive.")],
    out: Out,
    overrides: Overrides = None,
    suite: Annotated[
        Literal["glue", "layers", "blimp", "probes"],
        typer.Option(help="GLUE; features from layers; minimal pairs; linear probes."),
    ] = "glue",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each row that is trained.")] = 3,
    most: Annotated[int | None, typer.Option(help="Pairs of a phenomenon, or examples of a probe, at most.")] = None,
) -> None:
    """Measure a model by a whole suite, and leave one table. Goes on where it was stopped."""
    from bertsmith import suites

    suites.evaluate(suite, model, data, out, seeds=seeds, most=most, overrides=overrides or [])


@app.command()
def predict(
    model: ModelFolder,
    inputs: Input = None,
    out: Annotated[Path | None, typer.Option("--out", help="A file for the JSON lines.")] = None,
) -> None:
    """What a fine-tuned model says of each line, as JSON lines in the same order."""
    from bertsmith import apply

    apply.predict(model, inputs or [], out=out)


@app.command()
def embed(
    model: ModelFolder,
    out: Annotated[Path, typer.Option("--out", help="A file ending in .npy or .parquet.")],
    inputs: Input = None,
    pooling: Annotated[
        Literal["mean", "first"] | None, typer.Option(help="All tokens or the first; else what the folder says.")
    ] = None,
    layers: Annotated[list[int] | None, typer.Option("--layer", help="0 the embedding, -1 the last; several.")] = None,
    join: Annotated[Literal["sum", "concatenate"], typer.Option(help="How several layers become one.")] = "sum",
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"], typer.Option(help="auto: the fastest this machine has.")
    ] = "auto",
) -> None:
    """A vector for each line."""
    from bertsmith import apply

    chosen = {"pooling": pooling, "layers": tuple(layers) if layers else None}
    given = {name: value for name, value in chosen.items() if value is not None}
    apply.embed(model, inputs or [], out, join=join, precision=precision, **given)


@app.command()
def score(
    model: ModelFolder,
    inputs: Input = None,
    form: Annotated[
        Literal["within_word", "original"], typer.Option(help="Whether later pieces of the same word are hidden, too.")
    ] = "within_word",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """How likely each line is: its pseudo-log-likelihood; and the perplexity of all."""
    from bertsmith import apply

    apply.score(model, inputs or [], form=form, as_json=as_json)


@app.command()
def neighbours(
    model: ModelFolder,
    among: Annotated[list[str], typer.Option("--among", help="Files of lines to look among.")],
    texts: Annotated[list[str] | None, typer.Argument(help="Texts; standard input if none.")] = None,
    top: Annotated[int, typer.Option(min=1, help="How many for each text.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """The lines that mean nearly the same as a text."""
    from bertsmith import apply

    apply.neighbours(model, texts or [], among, top=top, as_json=as_json)


def main() -> None:
    """Run a verb. A person's mistake is told in one line, without a traceback."""
    try:
        app()
    except BertsmithError as error:
        print(f"bertsmith: {error}", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        sys.stderr.close()
        sys.exit(1)
