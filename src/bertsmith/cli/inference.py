"""Verbs that use a model (inference): fill, predict, embed, search, score, generate, translate, export."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bertsmith.cli.application import USE, app
from bertsmith.cli.options import ImageSize, Input, Json, ModelFolder, Out, Precision, TopK, check_file

SAMPLING, BEAM_SEARCH = "Sampling", "Beam search"  # panels of options


@app.command(rich_help_panel=USE)
def fill(
    model: ModelFolder,
    texts: Annotated[
        list[str] | None, typer.Argument(help="Texts with [MASK]; by default, the lines of standard input.")
    ] = None,
    top_k: TopK = 5,
    as_json: Json = False,
) -> None:
    """Fill masks: the likeliest words for each [MASK] of a text."""
    from bertsmith.commands import fill as command

    command.fill(model, texts, top_k=top_k, as_json=as_json)


@app.command(rich_help_panel=USE)
def predict(
    model: ModelFolder,
    inputs: Input = None,
    texts: Annotated[
        list[str] | None,
        typer.Option("--text", help="A text given directly, even of one word; may be repeated."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", callback=check_file, help="Output file: .jsonl, or for question answering .json as SQuAD's."
        ),
    ] = None,
    size: ImageSize = "model",
) -> None:
    """Predict with a fine-tuned model: one JSON line per text or image, in order.

    Reads the same file formats as finetune, without labels; a model of images, files and folders. With --out, the same
    command resumes after an interruption.
    """
    from bertsmith.commands import predict as command

    command.predict(model, inputs or [], out=out, texts=texts or [], size=size)


@app.command(rich_help_panel=USE)
def embed(
    model: ModelFolder,
    out: Annotated[Path, typer.Option("--out", callback=check_file, help="Output file: .npy or .parquet.")],
    inputs: Input = None,
    pooling: Annotated[
        Literal["mean", "first", "last"] | None,
        typer.Option(help="Mean of all tokens, the first or the last token; by default, what the model folder says."),
    ] = None,
    layers: Annotated[
        list[int] | None,
        typer.Option("--layer", help="Layer: 0 is the embedding, -1 the last (the default); may be repeated."),
    ] = None,
    layer_join: Annotated[Literal["sum", "concatenate"], typer.Option(help="How several layers are combined.")] = "sum",
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"],
        typer.Option(help="Number format of the weights; auto: the fastest of this machine."),
    ] = "auto",
    size: ImageSize = "model",
) -> None:
    """Embed texts or images: one vector each. Run the same command again to resume after an interruption."""
    from bertsmith.commands import embed as command

    given: dict[str, Any] = {} if pooling is None else {"pooling": pooling}
    given |= {"layers": tuple(layers)} if layers else {}
    command.embed(model, inputs or [], out, layer_join=layer_join, precision=precision, size=size, **given)


@app.command(rich_help_panel=USE)
def search(
    model: Annotated[Path, typer.Argument(help="Model folder, or folder of word vectors.")],
    texts: Annotated[
        list[str] | None, typer.Argument(help="Queries, or images; by default, the lines of standard input.")
    ] = None,
    corpus: Annotated[
        list[str] | None,
        typer.Option(
            "--corpus", help="Files of lines, or images and folders, to search; may be repeated. Not for word vectors."
        ),
    ] = None,
    top_k: TopK = 5,
    as_json: Json = False,
    out: Annotated[
        Path | None, typer.Option("--out", callback=check_file, help="Of images: also a page that shows them, .html.")
    ] = None,
) -> None:
    """Semantic search: the lines or images of a corpus nearest to each query; with word vectors, the nearest words."""
    from bertsmith.commands import embed, word2vec

    if corpus is None:
        word2vec.similar(model, texts or [], pairs_file=None, top_k=top_k, as_json=as_json)
    else:
        embed.search(model, texts or [], corpus, top_k=top_k, as_json=as_json, out=out)


@app.command(rich_help_panel=USE)
def score(
    model: ModelFolder,
    inputs: Input = None,
    pll_form: Annotated[
        Literal["within_word", "original"],
        typer.Option(
            help="Of a masked model: also mask the later tokens of the same word (within_word), or only the token that "
            "is scored (original)."
        ),
    ] = "within_word",
    out: Annotated[
        Path | None, typer.Option("--out", callback=check_file, help="Output file for the scores, as JSON lines.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Score texts: the (pseudo-)log-likelihood of each line, and the perplexity of all.

    With --out, the same command resumes after an interruption.
    """
    from bertsmith.commands import score as command

    command.score(model, inputs or [], pll_form=pll_form, as_json=as_json, out=out)


@app.command(rich_help_panel=USE)
def generate(
    model: Annotated[Path, typer.Argument(help="Folder of a causal or text-to-text model, such as GPT-2 or T5.")],
    prompts: Annotated[
        list[str] | None, typer.Argument(help="Prompts; by default, the lines of standard input.")
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(help="Maximum number of new tokens.")] = 40,
    min_new_tokens: Annotated[int, typer.Option(help="Minimum number of new tokens.")] = 0,
    temperature: Annotated[
        float, typer.Option(help="Softmax temperature; 0 is greedy decoding.", rich_help_panel=SAMPLING)
    ] = 0.8,
    top_k: Annotated[
        int, typer.Option(help="Sample from the k likeliest tokens; 0: from all.", rich_help_panel=SAMPLING)
    ] = 50,
    top_p: Annotated[
        float,
        typer.Option(
            help="Nucleus sampling: from the likeliest tokens with a total probability of p.",
            rich_help_panel=SAMPLING,
        ),
    ] = 0.95,
    samples: Annotated[int, typer.Option(help="Number of texts per prompt.", rich_help_panel=SAMPLING)] = 1,
    seed: Annotated[
        int, typer.Option(help="Random seed; the same seed gives the same text.", rich_help_panel=SAMPLING)
    ] = 0,
    num_beams: Annotated[
        int, typer.Option(help="Beam width; above 1, beam search instead of sampling.", rich_help_panel=BEAM_SEARCH)
    ] = 1,
    length_penalty: Annotated[
        float, typer.Option(help="Above 0, longer texts are favoured.", rich_help_panel=BEAM_SEARCH)
    ] = 1.0,
    precision: Precision = "float32",
    as_json: Json = False,
) -> None:
    """Generate text from a prompt, by sampling, greedy decoding or beam search."""
    from bertsmith.commands import generate as command

    search: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "samples": samples}
    search |= {"seed": seed, "num_beams": num_beams, "length_penalty": length_penalty}
    length: dict[str, Any] = {"max_new_tokens": max_new_tokens, "min_new_tokens": min_new_tokens}
    command.generate(model, prompts or [], as_json=as_json, precision=precision, **length, **search)


@app.command(rich_help_panel=USE)
def translate(
    model: Annotated[Path, typer.Argument(help="Folder of a model that was fine-tuned on text-to-text examples.")],
    inputs: Annotated[
        list[str] | None, typer.Argument(help="Files of lines, also .gz .xz .zst; standard input by default.")
    ] = None,
    num_beams: Annotated[int, typer.Option(help="Beam width; 1 is greedy decoding.")] = 5,
    length_penalty: Annotated[float, typer.Option(help="Above 0, longer texts are favoured.")] = 1.0,
    precision: Precision = "float32",
    reference: Annotated[
        Path | None, typer.Option(help="File of reference translations, line by line, to compute BLEU.")
    ] = None,
    alignment: Annotated[
        Path | None,
        typer.Option(help="Output file for a picture of the attention between the words: .html, or .png (matplotlib)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Translate, or any other text-to-text task: one line for each line, in order."""
    from bertsmith.commands import generate as command

    search: dict[str, Any] = {"num_beams": num_beams, "length_penalty": length_penalty, "precision": precision}
    command.translate(model, inputs or [], reference=reference, as_json=as_json, picture=alignment, **search)


@app.command(rich_help_panel=USE)
def export(
    model: ModelFolder,
    out: Out,
    onnx: Annotated[bool, typer.Option("--onnx", help="As an ONNX graph; there is no other format.")] = True,
    int8: Annotated[
        bool,
        typer.Option("--int8", help="Also with weights in int8: a quarter of the size; refused above 1 % loss."),
    ] = False,
    data: Annotated[Path | None, typer.Option(help="Labelled file to score the model on, before and after.")] = None,
) -> None:
    """Export to ONNX, for ONNX Runtime and optimum: checked against the model, with size and speed of both.

    The other verbs take the exported folder, too. A model folder itself opens in transformers.
    """
    from bertsmith.commands import export as command

    command.export(model, out, onnx=onnx, int8=int8, data=data)
