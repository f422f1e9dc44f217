"""`export`: a model as ONNX graphs, compared with the model that they were made of."""

from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

from bertsmith import files, terminal
from bertsmith.commands.evaluate import evaluate_model
from bertsmith.errors import FolderError, RecipeError, RunError
from bertsmith.inference.load import load_text_model
from bertsmith.inference.model import Model
from bertsmith.inference.onnx_comparison import compare, texts_per_second
from bertsmith.inference.onnx_export import PaddedModel, export_graph, quantise
from bertsmith.inference.onnx_session import import_onnx
from bertsmith.inference.save import MODEL_CARD
from bertsmith.insight.evaluation import model_name, plain_text
from bertsmith.models.hf import exported
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf import sentence_transformers as sentences
from bertsmith.tasks.findings import name_of

CONSOLE = terminal.console()
RESULT = "export.json"
MAX_DIFFERENCE = 1e-3  # between outputs in float32: a larger one is no rounding
MAX_LOSS = 0.01  # of the task's score, as a share of it, in int8
MIN_COSINE = 0.98  # between outputs in int8 and in float32, where no score decides


@dataclass(frozen=True)
class ExportedForm:
    """One form of the model: its weights in torch, its graph, or its graph in int8."""

    name: str
    bytes: int
    texts_per_second: float
    difference: float | None = None  # the largest, between its outputs and those of the weights
    cosine: float | None = None
    score: float | None = None  # the headline of the task on the labelled file


def export(
    model: Path, out: Path, *, onnx: bool = True, int8: bool = False, data: Path | None = None
) -> list[ExportedForm]:
    """Write an exported folder, and print how its graphs compare with the model."""
    if not onnx:
        raise RecipeError("export", "names no format", "Give --onnx; a model folder is a Hugging Face folder already")
    _check_out(out)
    for package in ("onnx", "onnxscript", "onnxruntime"):
        import_onnx(package, "export")
    source = folders.model_folder(model)
    if exported.is_exported(source):
        raise FolderError(source, "is an exported folder itself", "Name the model folder that it was made of")
    loaded = load_text_model(source, device="cpu")
    graph = PaddedModel(loaded)
    with folders.atomic_folder(out) as target:
        _write_folder(loaded, graph, target)
        export_graph(graph, target / exported.GRAPH)
        forms, score_name = _measured(loaded, target, data, int8)
        files.write_json(target / RESULT, {"model": model_name(source), "forms": [asdict(form) for form in forms]})
    _show(forms, score_name, out)
    return forms


def _check_out(out: Path) -> None:
    """Refuse a folder that is there and holds no graph: a model would be replaced by its export."""
    files.check_folder(out)
    if out.is_dir() and any(out.iterdir()) and not exported.is_exported(out):
        raise FolderError(out, "exists and is not an exported folder", "Choose a new one")


def _write_folder(loaded: Model, graph: PaddedModel, target: Path) -> None:
    """The files beside the graphs: configuration, tokenizer, pooling and model card."""
    source, shape = Path(loaded.path), graph.trunk.trunk.config
    exported.write_config(target, files.read_json(source / folders.CONFIG), graph.parts)
    loaded.tokenizer.save(
        target, max_length=shape.max_length, segments=shape.segments > 1 and loaded.tokenizer.marks_pairs
    )
    if loaded.embeds_sentences:
        sentences.write(target, loaded.sentence_config, shape.width)
    if (card := source / MODEL_CARD).is_file():
        files.write(target / MODEL_CARD, card.read_bytes())


def _measured(loaded: Model, target: Path, data: Path | None, int8: bool) -> tuple[list[ExportedForm], str]:
    """The weights and the graphs side by side. A graph that loses too much is refused."""
    weights = sum(path.stat().st_size for path in Path(loaded.path).glob("*.safetensors"))
    score, score_name = _score(loaded, data, quiet=False)
    forms = [ExportedForm("weights (torch)", weights, texts_per_second(loaded), score=score)]
    for backend in exported.GRAPHS if int8 else ["onnx"]:
        path = target / exported.GRAPHS[backend]
        if backend == "onnx-int8":
            quantise(target / exported.GRAPH, path)
        theirs = load_text_model(target, backend=backend)
        found = compare(loaded, theirs)
        own_score, _ = _score(theirs, data, quiet=True)
        form = ExportedForm(
            backend, path.stat().st_size, texts_per_second(theirs), found.largest, found.cosine, own_score
        )
        _check_loss(form, forms[0], score_name, str(loaded.path))
        forms.append(form)
    return forms, score_name


def _score(model: Model, data: Path | None, *, quiet: bool) -> tuple[float | None, str]:
    """The headline of the model's task on a labelled file, and its name."""
    if data is None:
        return None, ""
    result, _ = evaluate_model(model, data, quiet=quiet)
    headline = result["headline"]
    return result["summary"][headline]["mean"], name_of(headline, result["details"])


def _check_loss(form: ExportedForm, before: ExportedForm, score_name: str, model: str) -> None:
    """Refuse a graph that is not the model any more."""
    assert form.difference is not None
    assert form.cosine is not None
    if form.name == "onnx":
        if not form.difference <= MAX_DIFFERENCE:
            fact = f"its graph differs from it by up to {form.difference:.2g}, more than {MAX_DIFFERENCE:g}"
            raise RunError(model, fact, "Please report it")
    elif form.score is not None and before.score is not None:
        if not before.score - form.score <= MAX_LOSS * abs(before.score):
            fall = f"falls from {before.score:.4f} to {form.score:.4f}, by more than {MAX_LOSS:.0%}"
            raise RunError(model, f"in int8 {score_name} {fall}", "Export it without --int8")
    elif not form.cosine >= MIN_COSINE:
        fact = f"in int8 its outputs have a cosine of {form.cosine:.3f} with those in float32, less than {MIN_COSINE}"
        raise RunError(model, fact, "Export it without --int8, or let --data decide by the score of its task")


def _show(forms: list[ExportedForm], score_name: str, out: Path) -> None:
    """The table of all forms."""
    table = Table(box=None)
    table.add_column("", no_wrap=True)
    for name in ("MB", "largest difference", "cosine", *([plain_text(score_name)] if score_name else []), "texts/s"):
        table.add_column(name, justify="right")
    for form in forms:
        compared = ["", ""] if form.difference is None else [f"{form.difference:.1e}", f"{form.cosine:.4f}"]
        score = [f"{form.score:.4f}"] if form.score is not None else []
        table.add_row(form.name, f"{form.bytes / 1e6:,.1f}", *compared, *score, f"{form.texts_per_second:,.0f}")
    CONSOLE.print(table)
    CONSOLE.print(f"{' and '.join(exported.GRAPHS[form.name] for form in forms[1:])} in {out}")
