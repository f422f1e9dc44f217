"""The command line: verbs, and no logic. Heavy imports live inside the verbs, so that help answers at once."""

import errno
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from bertsmith.errors import BertsmithError, RunError

# What a person wants to do: the verbs stand under these titles in the help, in this order.
MAKE, TEACH, USE = "Make a model from text", "Teach a model a task, and measure it", "Use a model"
WORDS, LOOK = "Word vectors", "Look inside, and look up"
PANELS = (MAKE, TEACH, USE, WORDS, LOOK)


class Verbs(TyperGroup):
    """The verbs in the order of their titles."""

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

Texts = Annotated[
    list[str],
    typer.Argument(
        help="Files, folders, globs, or - for standard input: .txt .md .html .csv .jsonl .parquet .pdf .docx."
    ),
]
Field = Annotated[str, typer.Option(help="The field or column that holds the text in .jsonl, .parquet, .csv and .tsv.")]
Bad = Annotated[
    Literal["skip", "replace", "fail"],
    typer.Option("--bad", help="What to do with bytes that are not text, and with endless lines."),
]
Shape = Annotated[
    Literal["auto", "lines", "running"],
    typer.Option("--layout", help="One sentence a line with blank lines between documents, or running text."),
]
As = Annotated[
    Literal["auto", "text"],
    typer.Option("--as", help="text: read every file as plain text, whatever its ending; source code, for one."),
]
RecipeName = Annotated[str, typer.Argument(help="A recipe by name, as bert-base (`bertsmith list`), or a TOML file.")]
Overrides = Annotated[list[str] | None, typer.Argument(help="Changes to the recipe, as in train.steps=1000.")]


def _folder(out: Path | None) -> Path | None:
    """A folder that cannot be written is refused before any work is done."""
    if out is not None:
        from bertsmith.data import files

        files.check_folder(out)
    return out


def _file(out: Path | None) -> Path | None:
    """The same of a file."""
    if out is not None:
        from bertsmith.data import files

        files.check_file(out)
    return out


Out = Annotated[Path, typer.Option("--out", callback=_folder, help="The folder to write.")]
Case = Annotated[bool, typer.Option("--lowercase/--cased", help="Whether Paris and paris are one word.")]
CaseOfText = Annotated[
    bool | None,
    typer.Option("--lowercase/--cased", help="Whether Paris and paris are one word; if not said, by the language."),
]
Accents = Annotated[
    bool | None,
    typer.Option("--strip-accents/--keep-accents", help="Whether ä becomes a; if not said, in English alone."),
]
Seed = Annotated[int, typer.Option(help="Two runs with one seed are the same run.")]
ModelFolder = Annotated[Path, typer.Argument(help="A model folder: ours, or any BERT of Hugging Face.")]
WordModel = Annotated[Path, typer.Argument(help="A folder of word vectors, or a file in word2vec's formats.")]
Input = Annotated[
    list[str] | None,
    typer.Argument(help="Files of lines, JSON lines or tables, also packed; texts in quotes; standard input if none."),
]
Precision = Annotated[
    Literal["float32", "bfloat16"], typer.Option(help="bfloat16 is faster, and a text may come out differently.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]


def _version(asked: bool) -> bool:
    if asked:
        import bertsmith

        print(f"bertsmith {bertsmith.__version__}")
        raise typer.Exit
    return asked


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Turn a folder of text into your own BERT."""


@app.command(rich_help_panel=MAKE)
def make(
    texts: Texts,
    out: Out,
    budget: Annotated[str, typer.Option(help="How long it may take in all: 90s, 10m, 2h.")] = "10m",
    field: Field = "text",
    bad: Bad = "replace",
    layout: Shape = "auto",
    read_as: As = "auto",
    lowercase: CaseOfText = None,
    strip_accents: Accents = None,
    seed: Annotated[
        int | None, typer.Option(help="Two runs with one seed are the same run. A new run takes 0.")
    ] = None,
) -> None:
    """From a folder of text to a trained, validated model, in one command."""
    began = time.monotonic()  # imports are part of the budget
    from bertsmith import maker

    pieces: dict[str, Any] = {"lowercase": lowercase, "strip_accents": strip_accents}
    reading: dict[str, Any] = {"field": field, "policy": bad, "layout": layout, "plain": read_as == "text"}
    maker.make(texts, out, budget=budget, seed=seed, began=began, **pieces, **reading)


@app.command(rich_help_panel=MAKE)
def demo(
    out: Out = Path("runs/demo"),
    budget: Annotated[str, typer.Option(help="How long it may take in all.")] = "5m",
) -> None:
    """Make a small BERT from the text that comes with bertsmith, and let it fill some blanks."""
    began = time.monotonic()
    from bertsmith import maker

    maker.demo(out, budget=budget, began=began)


@app.command(rich_help_panel=MAKE)
def tokenizer(
    texts: Texts,
    out: Out,
    kind: Annotated[
        Literal["words", "wordpiece", "bpe", "unigram", "t5"],
        typer.Option(help="How words are cut into pieces; or left whole."),
    ] = "wordpiece",
    vocabulary: Annotated[int, typer.Option(help="How many pieces.")] = 30_522,
    lowercase: CaseOfText = None,
    strip_accents: Accents = None,
    extend: Annotated[Path | None, typer.Option(help="A model folder whose vocabulary gets more pieces.")] = None,
    more: Annotated[int, typer.Option(help="How many, with --extend.")] = 1_000,
    field: Field = "text",
    bad: Bad = "replace",
    layout: Shape = "auto",
    read_as: As = "auto",
) -> None:
    """Train a vocabulary, or extend that of a model, and report how well it fits the text."""
    from bertsmith import prepare
    from bertsmith.text.tokenizer import TokenizerConfig

    if extend is not None:
        prepare.extend(texts, out, extend, more, field=field, policy=bad, layout=layout, plain=read_as == "text")
        return
    settings = TokenizerConfig(kind=kind, vocabulary=vocabulary, lowercase=lowercase, strip_accents=strip_accents)
    prepare.tokenizer(texts, out, settings, field=field, policy=bad, layout=layout, plain=read_as == "text")


@app.command(rich_help_panel=MAKE)
def prepare(
    texts: Texts,
    out: Out,
    tokenizer: Annotated[Path, typer.Option("--tokenizer", help="A folder with tokenizer.json.")],
    valid: Annotated[float, typer.Option(help="The share of the text kept for validation.")] = 0.01,
    workers: Annotated[int | None, typer.Option(help="Processes; all cores if not given.")] = None,
    field: Field = "text",
    bad: Bad = "replace",
    layout: Shape = "auto",
    read_as: As = "auto",
) -> None:
    """Tokenise a text once, into shards that training maps into memory. Goes on where it was interrupted."""
    from bertsmith import prepare

    prepare.prepare(
        texts,
        out,
        tokenizer,
        valid=valid,
        workers=workers,
        field=field,
        policy=bad,
        layout=layout,
        plain=read_as == "text",
    )


@app.command(rich_help_panel=MAKE)
def pretrain(
    recipe: RecipeName,
    overrides: Overrides = None,
    data: Annotated[Path | None, typer.Option(help="What `bertsmith prepare` wrote; else as the recipe says.")] = None,
    out: Annotated[
        Path | None, typer.Option(callback=_folder, help="The folder to write; else as the recipe says.")
    ] = None,
) -> None:
    """Train what a recipe describes. The same command goes on with a run that was stopped or killed."""
    from bertsmith import run

    run.pretrain(run.placed(run.read(recipe, overrides or []), data, out))


@app.command(rich_help_panel=LOOK)
def check(
    recipe: RecipeName,
    overrides: Overrides = None,
    data: Annotated[Path | None, typer.Option(help="What `bertsmith prepare` wrote, for the time it takes.")] = None,
) -> None:
    """Read a recipe without running it: parameters, memory and time."""
    from bertsmith import run

    run.check(run.placed(run.read(recipe, overrides or []), data, None))


@app.command(name="list", rich_help_panel=LOOK)
def listing() -> None:
    """The members of the family, the objectives and the recipes."""
    from bertsmith import run

    run.listing()


@app.command(rich_help_panel=USE)
def fill(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    texts: Annotated[
        list[str] | None, typer.Argument(help="Texts with [MASK] in them; standard input if none.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many words for each blank.")] = 5,
    as_json: Json = False,
) -> None:
    """Fill the blanks of a text."""
    from bertsmith import apply

    apply.fill(model, texts, top=top, as_json=as_json)


@app.command(rich_help_panel=TEACH)
def finetune(
    model: Annotated[
        Path,
        typer.Argument(help="A model folder; a member that begins from chance, as transformer-small; or a recipe."),
    ],
    data: Annotated[
        Path, typer.Argument(help="A labelled file, or a folder with train and dev files, as GLUE has them.")
    ],
    out: Out,
    overrides: Overrides = None,
    dev: Annotated[Path | None, typer.Option(help="A file to choose the best weights by.")] = None,
    task: Annotated[
        Literal["classify", "tag", "answer", "choose", "embed", "features", "write"] | None,
        typer.Option(help="What to learn; guessed from the file if not given, and of a T5 always write."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many runs that differ in nothing but chance.")] = 1,
) -> None:
    """Teach a model a task: a class, a number, labels, tags, answers, endings, vectors or texts."""
    from bertsmith import tune

    tune.check(model)
    tune.show(
        tune.finetune(tune.recipe(model, data, out, dev=dev, task=task, seeds=seeds, overrides=overrides or [])), out
    )


@app.command(rich_help_panel=TEACH)
def evaluate(
    model: ModelFolder,
    data: Annotated[
        str | None,
        typer.Argument(help="A labelled file as finetune reads it, or a folder with a test or dev file."),
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Changes, as in data.label=stars; of a suite, to its recipes.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", callback=_folder, help="A folder for result.json and the page; a suite needs one."),
    ] = None,
    suite: Annotated[
        Literal["glue", "layers", "blimp", "probes", "shots"] | None,
        typer.Option(help="GLUE; features from layers; minimal pairs; linear probes; examples in the prompt."),
    ] = None,
    suite_data: Annotated[
        Path | None, typer.Option("--data", help="The suite's data: a folder, a file or an archive.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each row that is trained, or shown examples.")] = 3,
    most: Annotated[
        int | None, typer.Option(help="Pairs of a phenomenon, examples of a probe, or texts of a task, at most.")
    ] = None,
    shots: Annotated[str | None, typer.Option(help="How many examples a prompt shows, as in 0,1,2,4,8.")] = None,
) -> None:
    """Measure a fine-tuned model on a labelled file; or any model by a suite, which goes on where it was stopped."""
    from bertsmith import evaluate as measuring

    words = [*([data] if data is not None else []), *(overrides or [])]
    measuring.evaluate(model, words, suite=suite, data=suite_data, out=out, seeds=seeds, most=most, shots=shots)


@app.command(rich_help_panel=MAKE)
def race(
    recipes: Annotated[
        list[str],
        typer.Argument(help='Recipes, as bert-base or "bert-base section.key=value"; a lone override is for all.'),
    ],
    out: Out,
    data: Annotated[Path | None, typer.Option(help="A prepared text, for all of them.")] = None,
    texts: Annotated[
        list[str] | None, typer.Option("--text", help="Files to prepare, in the pieces that each recipe reads.")
    ] = None,
    budget: Annotated[str, typer.Option(help="How long each may train: 90s, 5m, 2h.")] = "5m",
    equal: Annotated[
        Literal["time", "flops"], typer.Option(help="The same time for all, or the FLOPs of the first.")
    ] = "time",
    points: Annotated[int, typer.Option(help="At how many points of the budget models are scored.")] = 4,
    glue: Annotated[Path | None, typer.Option(help="A folder with tasks of GLUE, to be fine-tuned on.")] = None,
    tasks: Annotated[str, typer.Option(help="Which of them, as in CoLA,SST-2; all if none is named.")] = "",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each task.")] = 1,
    tuning: Annotated[str, typer.Option(help='How they are learnt, as in "optimizer.rate=1e-3".')] = "",
    blimp: Annotated[Path | None, typer.Option(help="Minimal pairs: a folder, a file or an archive.")] = None,
    most: Annotated[int, typer.Option(help="Pairs of each phenomenon at most.")] = 200,
    lowercase: Annotated[
        bool, typer.Option("--lowercase/--cased", help="Whether Paris and paris are one word, in pieces of words.")
    ] = True,
) -> None:
    """Train several recipes on one text at equal compute, and draw what each has learnt. Goes on where it stopped."""
    from bertsmith import race as racing
    from bertsmith.measures import Questions

    rules = racing.Rules(budget=budget, equal=equal, points=points)
    named = [task for task in tasks.split(",") if task]
    asked = Questions(glue=glue, tasks=named, seeds=seeds, tuning=tuning.split(), blimp=blimp, most=most)
    racing.race(recipes, out, rules=rules, questions=asked, data=data, texts=texts or [], lowercase=lowercase)


@app.command(rich_help_panel=USE)
def predict(
    model: ModelFolder,
    inputs: Input = None,
    texts: Annotated[
        list[str] | None, typer.Option("--text", help="A text of one word, or any other; several.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", callback=_file, help="A file for the JSON lines; of answers, .json is SQuAD's format."),
    ] = None,
) -> None:
    """What a fine-tuned model says of each text, in order. Reads the files that it can be taught from.

    With --out the same command goes on where it was interrupted.
    """
    from bertsmith import apply

    apply.predict(model, inputs or [], out=out, texts=texts or [])


@app.command(rich_help_panel=USE)
def embed(
    model: ModelFolder,
    out: Annotated[Path, typer.Option("--out", callback=_file, help="A file ending in .npy or .parquet.")],
    inputs: Input = None,
    pooling: Annotated[
        Literal["mean", "first", "last"] | None,
        typer.Option(help="All tokens, the first or the last; else what the folder says."),
    ] = None,
    layers: Annotated[list[int] | None, typer.Option("--layer", help="0 the embedding, -1 the last; several.")] = None,
    join: Annotated[Literal["sum", "concatenate"], typer.Option(help="How several layers become one.")] = "sum",
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"], typer.Option(help="auto: the fastest this machine has.")
    ] = "auto",
) -> None:
    """A vector for each line. The same command goes on where it was interrupted."""
    from bertsmith import apply

    chosen = {"pooling": pooling, "layers": tuple(layers) if layers else None}
    given = {name: value for name, value in chosen.items() if value is not None}
    apply.embed(model, inputs or [], out, join=join, precision=precision, **given)


@app.command(rich_help_panel=USE)
def score(
    model: ModelFolder,
    inputs: Input = None,
    form: Annotated[
        Literal["within_word", "original"], typer.Option(help="Whether later pieces of the same word are hidden, too.")
    ] = "within_word",
    out: Annotated[
        Path | None, typer.Option("--out", callback=_file, help="A file for the scores, as JSON lines.")
    ] = None,
    as_json: Json = False,
) -> None:
    """How likely each line is: its pseudo-log-likelihood; and the perplexity of all.

    With --out the same command goes on where it was interrupted.
    """
    from bertsmith import apply

    apply.score(model, inputs or [], form=form, as_json=as_json, out=out)


@app.command(rich_help_panel=USE)
def neighbours(
    model: ModelFolder,
    texts: Annotated[
        list[str] | None, typer.Argument(help="Texts, or lines of standard input if none; or words.")
    ] = None,
    among: Annotated[
        list[str] | None, typer.Option("--among", help="Files of lines to look among; none: the words of word vectors.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many for each text.")] = 5,
    as_json: Json = False,
) -> None:
    """The lines that mean nearly the same as a text; or, of word vectors, the words nearest to a word."""
    from bertsmith import apply, words

    if among is None:
        words.similar(model, texts or [], judged=None, top=top, as_json=as_json)
    else:
        apply.neighbours(model, texts or [], among, top=top, as_json=as_json)


@app.command(rich_help_panel=USE)
def generate(
    model: Annotated[Path, typer.Argument(help="The folder of a model that tells the next token, as GPT does.")],
    prompts: Annotated[
        list[str] | None, typer.Argument(help="Beginnings of texts; lines of standard input if none.")
    ] = None,
    most: Annotated[int, typer.Option(help="New tokens at most.")] = 40,
    least: Annotated[int, typer.Option(help="And at least.")] = 0,
    temperature: Annotated[float, typer.Option(help="Below 1: bolder about what is likely; 0: the likeliest.")] = 0.8,
    top_k: Annotated[int, typer.Option(help="Draw from so many of the likeliest tokens; 0: from all.")] = 50,
    top_p: Annotated[float, typer.Option(help="And from those that have this share between them.")] = 0.95,
    beams: Annotated[int, typer.Option(help="With more than one: look for the likeliest whole, draw nothing.")] = 1,
    penalty: Annotated[float, typer.Option(help="Of beams: above 0 favours longer texts.")] = 1.0,
    samples: Annotated[int, typer.Option(help="Texts for each prompt.")] = 1,
    seed: Annotated[int, typer.Option(help="The same seed, prompt and model: the same text.")] = 0,
    precision: Precision = "float32",
    as_json: Json = False,
) -> None:
    """Go on with a text."""
    from bertsmith import apply

    drawn = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "samples": samples, "seed": seed}
    whole = {"most": most, "least": least, "beams": beams, "penalty": penalty, "precision": precision}
    apply.generate(model, prompts or [], as_json=as_json, **drawn, **whole)


@app.command(rich_help_panel=LOOK)
def look(
    models: Annotated[list[Path], typer.Argument(help="Folders of recurrent models, to be seen side by side.")],
    text: Annotated[Path, typer.Option(help="A text to look at them with.")],
    out: Annotated[Path, typer.Option(callback=_file, help="The page to write.")],
    png: Annotated[bool, typer.Option("--png", help="And PNGs beside it, by matplotlib.")] = False,
) -> None:
    """Draw what recurrent models feel through time, and what single cells of theirs know."""
    from bertsmith import look

    look.look(models, text, out, pictures=png)


@app.command(rich_help_panel=WORDS)
def vectors(
    texts: Texts,
    out: Out,
    kind: Annotated[
        Literal["skip-gram", "cbow"], typer.Option(help="A word tells its neighbours, or they together tell it.")
    ] = "skip-gram",
    width: Annotated[int, typer.Option(help="Numbers in a vector.")] = 100,
    window: Annotated[int, typer.Option(help="Neighbours on each side at most.")] = 5,
    negatives: Annotated[int, typer.Option(help="False neighbours for each true one.")] = 5,
    sample: Annotated[float, typer.Option(help="Words above this part of the text are dropped now and then.")] = 1e-3,
    least: Annotated[int, typer.Option(help="A word that is met less often has no vector.")] = 5,
    lowercase: Case = True,
    epochs: Annotated[float | None, typer.Option(help="How often the text is read; 5 if nothing is said.")] = None,
    budget: Annotated[str | None, typer.Option(help="Or how long it may take: 90s, 10m, 2h.")] = None,
    rate: Annotated[float | None, typer.Option(help="How fast it learns at first; what suits the kind.")] = None,
    seed: Seed = 0,
    as_text: Annotated[
        bool, typer.Option("--text", help="Beside the folder's vectors.bin, vectors.txt in word2vec's text format.")
    ] = False,
    field: Field = "text",
    bad: Bad = "replace",
    layout: Shape = "auto",
    read_as: As = "auto",
) -> None:
    """Learn a vector for each word of a text: word2vec. The same command goes on with a run that was stopped."""
    from bertsmith import words

    learnt = {"epochs": epochs, "budget": budget, "rate": rate, "seed": seed}
    recipe = words.recipe(
        out,
        least=least,
        lowercase=lowercase,
        model={"kind": kind, "width": width},
        neighbours={"window": window, "negatives": negatives, "sample": sample},
        train={name: value for name, value in learnt.items() if value is not None},
    )
    words.vectors(texts, recipe, as_text=as_text, field=field, policy=bad, layout=layout, plain=read_as == "text")


@app.command(rich_help_panel=WORDS)
def similar(
    model: WordModel,
    words: Annotated[list[str] | None, typer.Argument(help="Words.")] = None,
    judged: Annotated[
        Path | None, typer.Option("--pairs", help="Judged pairs, as WordSim-353 has them: how well is it agreed?")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many for each word.")] = 10,
    as_json: Json = False,
) -> None:
    """The words that mean nearly the same as a word, by their vectors."""
    from bertsmith import words as root

    root.similar(model, words or [], judged=judged, top=top, as_json=as_json)


@app.command(rich_help_panel=WORDS)
def analogy(
    model: WordModel,
    words: Annotated[list[str] | None, typer.Argument(help="Three words: king man woman.")] = None,
    asked: Annotated[
        Path | None, typer.Option("--questions", help="A file of questions, as Google's: how many are answered?")
    ] = None,
    method: Annotated[Literal["add", "multiply"], typer.Option(help="3CosAdd or 3CosMul.")] = "add",
    top: Annotated[int, typer.Option(min=1, help="How many answers.")] = 5,
    as_json: Json = False,
) -> None:
    """What is to the third word as the first is to the second: king man woman gives queen."""
    from bertsmith import words as root

    root.analogy(model, words or [], asked=asked, method=method, top=top, as_json=as_json)


@app.command(rich_help_panel=USE)
def translate(
    model: Annotated[Path, typer.Argument(help="The folder of a model that has learnt to write texts about texts.")],
    inputs: Annotated[
        list[str] | None, typer.Argument(help="Files of lines, also .gz .xz .zst; standard input if none.")
    ] = None,
    beams: Annotated[int, typer.Option(help="How many beginnings are gone on with; 1: the likeliest alone.")] = 5,
    penalty: Annotated[float, typer.Option(help="Above 0 favours longer texts; 1: the mean of a token counts.")] = 1.0,
    precision: Precision = "float32",
    against: Annotated[
        Path | None, typer.Option(help="What people wrote, line by line: BLEU is told at the end.")
    ] = None,
    alignment: Annotated[
        Path | None, typer.Option(help="A picture of what each word was taken from: .html, or .png with matplotlib.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Translate: a line for each line, in order. Or whatever else a model has learnt to write."""
    from bertsmith import apply

    how = {"beams": beams, "penalty": penalty, "precision": precision}
    apply.translate(model, inputs or [], against=against, as_json=as_json, picture=alignment, **how)


def main() -> None:
    """Run a verb. A person's mistake, and what a machine lacks, is told in one line, without a traceback."""
    try:
        app()
    except BertsmithError as error:
        from bertsmith.terminal import plain

        print(f"bertsmith: {plain(error)}", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        sys.stderr.close()
        sys.exit(1)
    except (MemoryError, OSError, RuntimeError) as error:
        if (line := lacks(error)) is None:
            raise
        print(f"bertsmith: {line}", file=sys.stderr)
        sys.exit(1)


def lacks(error: BaseException) -> RunError | None:
    """What this machine has too little of, in one line: memory, or files that may be open; None of any other fault."""
    said, files = str(error).lower(), isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)
    if files or "too many open files" in said:
        remedy = "Give fewer workers (--workers, data.workers=0), or raise the limit with: ulimit -n 4096"
        return RunError("files", "more are open than this system allows", remedy)
    memory = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
    gpu = type(error).__name__ == "OutOfMemoryError" or "cuda error: out of memory" in said  # torch's own
    if not (memory or gpu or "can't allocate memory" in said or "out of memory" in said):
        return None
    place = "GPU memory" if gpu or "cuda" in said else "memory"
    remedy = "Take smaller batches (data.tokens=, data.items=), shorter texts (data.length=) or a smaller model"
    return RunError(place, "there is not enough of it", remedy)
