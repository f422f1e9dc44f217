"""Verbs for word vectors: word2vec, similar, analogy."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from bertsmith.cli.application import WORD_VECTORS, app
from bertsmith.cli.options import Field, Json, Layout, OnBadLine, Out, ReadAs, Texts, TopK

WordVectors = Annotated[Path, typer.Argument(help="Folder of word vectors, or a file in a word2vec format.")]


@app.command(rich_help_panel=WORD_VECTORS)
def word2vec(
    texts: Texts,
    out: Out,
    kind: Annotated[
        Literal["skip-gram", "cbow"],
        typer.Option(help="skip-gram: a word predicts its neighbours; cbow: the neighbours predict the word."),
    ] = "skip-gram",
    width: Annotated[int, typer.Option(help="Dimensions of a vector.")] = 100,
    window: Annotated[int, typer.Option(help="Context window: maximum number of neighbours on each side.")] = 5,
    negatives: Annotated[int, typer.Option(help="Negative samples per positive pair.")] = 5,
    subsample: Annotated[
        float, typer.Option(help="Subsampling threshold: words above this frequency are dropped at random.")
    ] = 1e-3,
    min_count: Annotated[int, typer.Option(help="Minimum frequency; rarer words get no vector.")] = 5,
    lowercase: Annotated[
        bool, typer.Option("--lowercase/--cased", help="Lowercase the text, or keep its case.")
    ] = True,
    epochs: Annotated[float | None, typer.Option(help="Passes over the text; 5 by default.")] = None,
    budget: Annotated[str | None, typer.Option(help="Training time, instead of epochs: 90s, 10m, 2h.")] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Initial learning rate; by default, 0.025 for skip-gram and 0.15 for cbow.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    as_text: Annotated[
        bool, typer.Option("--text", help="Also write vectors.txt, in the text format of word2vec.")
    ] = False,
    field: Field = "text",
    on_bad_line: OnBadLine = "replace",
    layout: Layout = "auto",
    read_as: ReadAs = "auto",
) -> None:
    """Train word2vec: one vector for each word of a text. Run the same command again to resume."""
    from bertsmith.commands import word2vec as command

    train = {"epochs": epochs, "budget": budget, "learning_rate": learning_rate, "seed": seed}
    recipe = command.build_recipe(
        out,
        min_count=min_count,
        lowercase=lowercase,
        model={"kind": kind, "width": width},
        sampling={"window": window, "negatives": negatives, "subsample": subsample},
        train={name: value for name, value in train.items() if value is not None},
    )
    command.train_vectors(
        texts, recipe, as_text=as_text, field=field, on_bad_line=on_bad_line, layout=layout, plain=read_as == "text"
    )


@app.command(rich_help_panel=WORD_VECTORS)
def similar(
    model: WordVectors,
    words: Annotated[list[str] | None, typer.Argument(help="Words.")] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(
            help="File of word pairs with human similarity ratings, such as WordSim-353; prints the rank correlation."
        ),
    ] = None,
    top_k: TopK = 10,
    as_json: Json = False,
) -> None:
    """The words most similar to a word, by cosine similarity."""
    from bertsmith.commands import word2vec as command

    command.similar(model, words or [], pairs_file=pairs, top_k=top_k, as_json=as_json)


@app.command(rich_help_panel=WORD_VECTORS)
def analogy(
    model: WordVectors,
    words: Annotated[list[str] | None, typer.Argument(help="Three words: king man woman.")] = None,
    questions: Annotated[
        Path | None, typer.Option(help="File of analogies in the format of Google's test set; prints the accuracy.")
    ] = None,
    method: Annotated[Literal["add", "multiply"], typer.Option(help="3CosAdd or 3CosMul.")] = "add",
    top_k: TopK = 5,
    as_json: Json = False,
) -> None:
    """Analogies: king - man + woman = queen."""
    from bertsmith.commands import word2vec as command

    command.analogy(model, words or [], questions_file=questions, method=method, top_k=top_k, as_json=as_json)
