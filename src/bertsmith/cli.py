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
OnBadLine = Annotated[
    Literal["skip", "replace", "fail"],
    typer.Option("--on-bad-line", help="Lines with invalid bytes, or too long ones: skip, replace the bytes, or fail."),
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
        from bertsmith import files

        files.check_folder(out)
    return out


def _file(out: Path | None) -> Path | None:
    """The same of a file."""
    if out is not None:
        from bertsmith import files

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
Seed = Annotated[int, typer.Option(help="Random seed; the same seed gives the same run.")]
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
    on_bad_line: OnBadLine = "replace",
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
    from bertsmith.commands import make as making

    pieces: dict[str, Any] = {"lowercase": lowercase, "strip_accents": strip_accents}
    reading: dict[str, Any] = {"field": field, "policy": on_bad_line, "layout": layout, "plain": read_as == "text"}
    making.make(texts, out, budget=budget, seed=seed, began=began, **pieces, **reading)


@app.command(rich_help_panel=MAKE)
def demo(
    out: Out = Path("runs/demo"),
    budget: Annotated[str, typer.Option(help="How long it may take in all.")] = "5m",
) -> None:
    """Make a small BERT from the text that comes with bertsmith, and let it fill some blanks."""
    began = time.monotonic()
    from bertsmith.commands import make as making

    making.demo(out, budget=budget, began=began)


@app.command(rich_help_panel=MAKE)
def tokenizer(
    texts: Texts,
    out: Out,
    kind: Annotated[
        Literal["words", "wordpiece", "bpe", "unigram", "t5"],
        typer.Option(help="WordPiece, byte-level BPE, Unigram, T5's Unigram with sentinels, or whole words."),
    ] = "wordpiece",
    vocabulary: Annotated[int, typer.Option(help="Vocabulary size.")] = 30_522,
    lowercase: CaseOfText = None,
    strip_accents: Accents = None,
    extend: Annotated[Path | None, typer.Option(help="A model folder whose vocabulary gets more pieces.")] = None,
    more: Annotated[int, typer.Option(help="How many, with --extend.")] = 1_000,
    field: Field = "text",
    on_bad_line: OnBadLine = "replace",
    layout: Shape = "auto",
    read_as: As = "auto",
) -> None:
    """Train a vocabulary, or extend that of a model, and report how well it fits the text."""
    from bertsmith.commands import prepare
    from bertsmith.text.tokenizer import TokenizerConfig

    if extend is not None:
        prepare.extend(
            texts, out, extend, more, field=field, policy=on_bad_line, layout=layout, plain=read_as == "text"
        )
        return
    settings = TokenizerConfig(kind=kind, vocabulary=vocabulary, lowercase=lowercase, strip_accents=strip_accents)
    prepare.tokenizer(texts, out, settings, field=field, policy=on_bad_line, layout=layout, plain=read_as == "text")


@app.command(rich_help_panel=MAKE)
def prepare(
    texts: Texts,
    out: Out,
    tokenizer: Annotated[Path, typer.Option("--tokenizer", help="A folder with tokenizer.json.")],
    validation_share: Annotated[float, typer.Option(help="The share of the text held out for validation.")] = 0.01,
    workers: Annotated[int | None, typer.Option(help="Processes; all cores if not given.")] = None,
    field: Field = "text",
    on_bad_line: OnBadLine = "replace",
    layout: Shape = "auto",
    read_as: As = "auto",
) -> None:
    """Tokenise a text once, into shards that training maps into memory. Goes on where it was interrupted."""
    from bertsmith.commands import prepare

    prepare.prepare(
        texts,
        out,
        tokenizer,
        valid=validation_share,
        workers=workers,
        field=field,
        policy=on_bad_line,
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
    from bertsmith.commands import pretrain as pretraining

    pretraining.pretrain(pretraining.with_paths(pretraining.read_recipe(recipe, overrides or []), data, out))


@app.command(rich_help_panel=LOOK)
def check(
    recipe: RecipeName,
    overrides: Overrides = None,
    data: Annotated[Path | None, typer.Option(help="What `bertsmith prepare` wrote, for the time it takes.")] = None,
) -> None:
    """Read a recipe without running it: parameters, memory and time."""
    from bertsmith.commands import pretrain as pretraining

    pretraining.check(pretraining.with_paths(pretraining.read_recipe(recipe, overrides or []), data, None))


@app.command(name="list", rich_help_panel=LOOK)
def listing() -> None:
    """The members of the family, the objectives and the recipes."""
    from bertsmith.commands import pretrain as pretraining

    pretraining.list_all()


@app.command(rich_help_panel=USE)
def fill(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    texts: Annotated[
        list[str] | None, typer.Argument(help="Texts with [MASK] in them; standard input if none.")
    ] = None,
    top_k: Annotated[int, typer.Option(min=1, help="How many words for each blank.")] = 5,
    as_json: Json = False,
) -> None:
    """Fill the blanks of a text."""
    from bertsmith.commands import predict as using

    using.fill(model, texts, top_k=top_k, as_json=as_json)


@app.command(rich_help_panel=TEACH)
def finetune(
    model: Annotated[
        Path,
        typer.Argument(help="A model folder; a member with random weights, as transformer-small; or a recipe."),
    ],
    data: Annotated[
        Path, typer.Argument(help="A labelled file, or a folder with train and dev files, as GLUE has them.")
    ],
    out: Out,
    overrides: Overrides = None,
    dev: Annotated[Path | None, typer.Option(help="A file to choose the best weights by.")] = None,
    task: Annotated[
        str | None,
        typer.Option(
            help="text-classification, regression, multi-label, token-classification (ner, pos), question-answering, "
            "multiple-choice, sentence-similarity, text-to-text (translation, summarization) or features; "
            "guessed from the file if not given."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Random seeds; scores are the mean with a 95 % interval.")] = 1,
) -> None:
    """Fine-tune: classification, regression, NER, question answering, multiple choice, embeddings, text to text."""
    from bertsmith.commands import finetune as teaching

    teaching.finetune(model, data, out, dev=dev, task=task, seeds=seeds, overrides=overrides or [])


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
        Literal["glue", "layers", "blimp", "probes", "few-shot"] | None,
        typer.Option(help="GLUE; frozen features by layer; minimal pairs (BLiMP); linear probes; few-shot prompts."),
    ] = None,
    suite_data: Annotated[
        Path | None, typer.Option("--data", help="The suite's data: a folder, a file or an archive.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each row that is trained, or shown examples.")] = 3,
    limit: Annotated[
        int | None, typer.Option(help="At most so many pairs of a phenomenon, examples of a probe, or texts of a task.")
    ] = None,
    shots: Annotated[str | None, typer.Option(help="Examples in the prompt, as in 0,1,2,4,8.")] = None,
) -> None:
    """Measure a fine-tuned model on a labelled file; or any model by a suite, which goes on where it was stopped."""
    from bertsmith.commands import evaluate as measuring

    words = [*([data] if data is not None else []), *(overrides or [])]
    measuring.evaluate(model, words, suite=suite, data=suite_data, out=out, seeds=seeds, limit=limit, shots=shots)


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
    tuning: Annotated[str, typer.Option(help='How they are learnt, as in "optimizer.learning_rate=1e-3".')] = "",
    blimp: Annotated[Path | None, typer.Option(help="Minimal pairs: a folder, a file or an archive.")] = None,
    limit: Annotated[int, typer.Option(help="Minimal pairs of each phenomenon at most.")] = 200,
    lowercase: Annotated[
        bool, typer.Option("--lowercase/--cased", help="Whether Paris and paris are one word, in pieces of words.")
    ] = True,
) -> None:
    """Train several recipes on one text at equal compute, and draw what each has learnt. Goes on where it stopped."""
    from bertsmith.commands import race as racing
    from bertsmith.runs.race_metrics import MetricsConfig

    rules = racing.Rules(budget=budget, equal=equal, points=points)
    named = [task for task in tasks.split(",") if task]
    asked = MetricsConfig(
        glue=glue, tasks=named, seeds=seeds, finetune_overrides=tuning.split(), blimp=blimp, limit=limit
    )
    racing.race(recipes, out, rules=rules, metrics=asked, data=data, texts=texts or [], lowercase=lowercase)


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
    from bertsmith.commands import predict as using

    using.predict(model, inputs or [], out=out, texts=texts or [])


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
    layer_join: Annotated[Literal["sum", "concatenate"], typer.Option(help="How several layers become one.")] = "sum",
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"], typer.Option(help="auto: the fastest this machine has.")
    ] = "auto",
) -> None:
    """A vector for each line. The same command goes on where it was interrupted."""
    from bertsmith.commands import predict as using

    chosen = {"pooling": pooling, "layers": tuple(layers) if layers else None}
    given = {name: value for name, value in chosen.items() if value is not None}
    using.embed(model, inputs or [], out, layer_join=layer_join, precision=precision, **given)


@app.command(rich_help_panel=USE)
def score(
    model: ModelFolder,
    inputs: Input = None,
    pll_form: Annotated[
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
    from bertsmith.commands import predict as using

    using.score(model, inputs or [], pll_form=pll_form, as_json=as_json, out=out)


@app.command(rich_help_panel=USE)
def search(
    model: ModelFolder,
    texts: Annotated[
        list[str] | None, typer.Argument(help="Texts, or lines of standard input if none; or words.")
    ] = None,
    corpus: Annotated[
        list[str] | None, typer.Option("--corpus", help="Files of lines to search; none: the words of word vectors.")
    ] = None,
    top_k: Annotated[int, typer.Option(min=1, help="How many for each text.")] = 5,
    as_json: Json = False,
) -> None:
    """Semantic search: the lines nearest to a text; or, of word vectors, the words nearest to a word."""
    from bertsmith.commands import predict as using
    from bertsmith.commands import word2vec as word_vectors

    if corpus is None:
        word_vectors.similar(model, texts or [], pairs_file=None, top_k=top_k, as_json=as_json)
    else:
        using.search(model, texts or [], corpus, top_k=top_k, as_json=as_json)


@app.command(rich_help_panel=USE)
def generate(
    model: Annotated[Path, typer.Argument(help="The folder of a causal or text-to-text model, as GPT-2 or T5.")],
    prompts: Annotated[
        list[str] | None, typer.Argument(help="Beginnings of texts; lines of standard input if none.")
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(help="New tokens at most.")] = 40,
    min_new_tokens: Annotated[int, typer.Option(help="New tokens at least.")] = 0,
    temperature: Annotated[float, typer.Option(help="Softmax temperature; 0: greedy decoding.")] = 0.8,
    top_k: Annotated[int, typer.Option(help="Sample from the k likeliest tokens; 0: from all.")] = 50,
    top_p: Annotated[
        float, typer.Option(help="Nucleus sampling: from the likeliest tokens with this probability together.")
    ] = 0.95,
    num_beams: Annotated[int, typer.Option(help="Beam width; above 1, beam search instead of sampling.")] = 1,
    length_penalty: Annotated[float, typer.Option(help="Of beam search: above 0 favours longer texts.")] = 1.0,
    samples: Annotated[int, typer.Option(help="Texts for each prompt.")] = 1,
    seed: Annotated[int, typer.Option(help="The same seed, prompt and model: the same text.")] = 0,
    precision: Precision = "float32",
    as_json: Json = False,
) -> None:
    """Generate text from a prompt."""
    from bertsmith.commands import predict as using

    drawn = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "samples": samples, "seed": seed}
    whole: dict[str, Any] = {"max_new_tokens": max_new_tokens, "min_new_tokens": min_new_tokens, "num_beams": num_beams}
    whole |= {"length_penalty": length_penalty, "precision": precision}
    using.generate(model, prompts or [], as_json=as_json, **drawn, **whole)


@app.command(rich_help_panel=LOOK)
def inspect(
    models: Annotated[list[Path], typer.Argument(help="Folders of recurrent models, to be seen side by side.")],
    text: Annotated[Path, typer.Option(help="A text to look at them with.")],
    out: Annotated[Path, typer.Option(callback=_file, help="The page to write.")],
    png: Annotated[bool, typer.Option("--png", help="And PNGs beside it, by matplotlib.")] = False,
) -> None:
    """Draw gradient flow through time and interpretable cells of recurrent models."""
    from bertsmith.commands import inspect as inspecting

    inspecting.inspect(models, text, out, pictures=png)


@app.command(rich_help_panel=WORDS)
def word2vec(
    texts: Texts,
    out: Out,
    kind: Annotated[
        Literal["skip-gram", "cbow"], typer.Option(help="A word predicts its neighbours, or they predict the word.")
    ] = "skip-gram",
    width: Annotated[int, typer.Option(help="Numbers in a vector.")] = 100,
    window: Annotated[int, typer.Option(help="Neighbours on each side at most.")] = 5,
    negatives: Annotated[int, typer.Option(help="Negative samples for each true neighbour.")] = 5,
    subsample: Annotated[
        float, typer.Option(help="Subsampling: words above this share of the text are dropped at random.")
    ] = 1e-3,
    min_count: Annotated[int, typer.Option(help="Words that occur less often have no vector.")] = 5,
    lowercase: Case = True,
    epochs: Annotated[float | None, typer.Option(help="Passes over the text; 5 by default.")] = None,
    budget: Annotated[str | None, typer.Option(help="Or how long it may take: 90s, 10m, 2h.")] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="The first learning rate; by default what suits the kind.")
    ] = None,
    seed: Seed = 0,
    as_text: Annotated[
        bool, typer.Option("--text", help="Beside the folder's vectors.bin, vectors.txt in word2vec's text format.")
    ] = False,
    field: Field = "text",
    on_bad_line: OnBadLine = "replace",
    layout: Shape = "auto",
    read_as: As = "auto",
) -> None:
    """Learn a vector for each word of a text: word2vec. The same command goes on with a run that was stopped."""
    from bertsmith.commands import word2vec as word_vectors

    learnt = {"epochs": epochs, "budget": budget, "learning_rate": learning_rate, "seed": seed}
    recipe = word_vectors.build_recipe(
        out,
        min_count=min_count,
        lowercase=lowercase,
        model={"kind": kind, "width": width},
        sampling={"window": window, "negatives": negatives, "subsample": subsample},
        train={name: value for name, value in learnt.items() if value is not None},
    )
    word_vectors.train_vectors(
        texts, recipe, as_text=as_text, field=field, policy=on_bad_line, layout=layout, plain=read_as == "text"
    )


@app.command(rich_help_panel=WORDS)
def similar(
    model: WordModel,
    words: Annotated[list[str] | None, typer.Argument(help="Words.")] = None,
    judged: Annotated[
        Path | None, typer.Option("--pairs", help="Judged pairs, as WordSim-353 has them: how well is it agreed?")
    ] = None,
    top_k: Annotated[int, typer.Option(min=1, help="How many for each word.")] = 10,
    as_json: Json = False,
) -> None:
    """The words that mean nearly the same as a word, by their vectors."""
    from bertsmith.commands import word2vec as word_vectors

    word_vectors.similar(model, words or [], pairs_file=judged, top_k=top_k, as_json=as_json)


@app.command(rich_help_panel=WORDS)
def analogy(
    model: WordModel,
    words: Annotated[list[str] | None, typer.Argument(help="Three words: king man woman.")] = None,
    asked: Annotated[
        Path | None, typer.Option("--questions", help="A file of questions, as Google's: how many are answered?")
    ] = None,
    method: Annotated[Literal["add", "multiply"], typer.Option(help="3CosAdd or 3CosMul.")] = "add",
    top_k: Annotated[int, typer.Option(min=1, help="How many answers.")] = 5,
    as_json: Json = False,
) -> None:
    """What is to the third word as the first is to the second: king man woman gives queen."""
    from bertsmith.commands import word2vec as word_vectors

    word_vectors.analogy(model, words or [], questions_file=asked, method=method, top_k=top_k, as_json=as_json)


@app.command(rich_help_panel=USE)
def translate(
    model: Annotated[Path, typer.Argument(help="The folder of a model that has learnt to write texts about texts.")],
    inputs: Annotated[
        list[str] | None, typer.Argument(help="Files of lines, also .gz .xz .zst; standard input if none.")
    ] = None,
    num_beams: Annotated[int, typer.Option(help="Beam width; 1: greedy decoding.")] = 5,
    length_penalty: Annotated[float, typer.Option(help="Above 0 favours longer texts.")] = 1.0,
    precision: Precision = "float32",
    reference: Annotated[
        Path | None, typer.Option(help="Reference translations, line by line: BLEU is shown at the end.")
    ] = None,
    alignment: Annotated[
        Path | None, typer.Option(help="A picture of what each word was taken from: .html, or .png with matplotlib.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Translate: a line for each line, in order. Or whatever else a model has learnt to write."""
    from bertsmith.commands import predict as using

    how = {"num_beams": num_beams, "length_penalty": length_penalty, "precision": precision}
    using.translate(model, inputs or [], reference=reference, as_json=as_json, picture=alignment, **how)


def main() -> None:
    """Run a verb. A person's mistake, and what a machine lacks, is told in one line, without a traceback."""
    try:
        app()
    except BertsmithError as error:
        from bertsmith.terminal import escape_control

        print(f"bertsmith: {escape_control(error)}", file=sys.stderr)
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
    remedy = "Take smaller batches (data.batch_tokens=, data.batch_size=), shorter texts (data.max_length=) "
    remedy += "or a smaller model"
    return RunError(place, "there is not enough of it", remedy)
