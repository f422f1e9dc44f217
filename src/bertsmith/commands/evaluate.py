"""`evaluate`: a fine-tuned model on a labelled file, or any model on a benchmark suite."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from rich.progress import Progress
from rich.table import Table

from bertsmith import config, files, terminal
from bertsmith.commands.evaluate_images import RESULT, check_folder, evaluate_images
from bertsmith.data.labelled import glue, reader, splits
from bertsmith.data.labelled.bad_rows import count_dropped
from bertsmith.data.labelled.columns import GUESSED_COLUMNS, Columns
from bertsmith.data.labelled.examples import Example, Kind, Sentence
from bertsmith.data.labelled.mismatch import kind_of, mismatch
from bertsmith.data.labelled.reader import LabelledData
from bertsmith.errors import FolderError, RecipeError, TextError
from bertsmith.inference.load import load_text_model
from bertsmith.inference.model import Model
from bertsmith.inference.training_data import MIN_LENGTH
from bertsmith.insight import evaluation
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf import image_classifiers
from bertsmith.models.hf import sentence_transformers as sentences
from bertsmith.runs import image_recipe, suites, task_data
from bertsmith.runs.label_names import match_labels, unknown_labels
from bertsmith.tasks.base import Task, predict
from bertsmith.tasks.embedding import SentenceEmbedding
from bertsmith.tasks.findings import Prior, name_of, warnings
from bertsmith.tasks.measure import findings_of
from bertsmith.train import hardware

CONSOLE = terminal.console()
BATCH_EXAMPLES = 1024  # examples in memory at a time
MAX_CLASSES_SHOWN = 30  # in the table on the terminal


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The columns of the file. By default those that the model was trained on, or guessed."""

    texts: tuple[str, ...] | None = None
    label: str | None = None
    separator: str | None = None
    on_bad_row: Literal["skip", "fail"] = "skip"  # what to do with rows that cannot be read
    max_length: int | None = None  # tokens of a sequence; None: as in training, or the model's maximum


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """The settings of `evaluate` on the command line."""

    data: DataConfig = field(default_factory=DataConfig)


def evaluate(
    model: Path,
    arguments: Sequence[str],
    *,
    suite: str | None,
    data: Path | None,
    out: Path | None,
    seeds: int | None,
    limit: int | None,
    shots: str | None,
) -> None:
    """Evaluate on the file in the first argument, or run a suite, whose data may also be given with `--data`."""
    if data is None:
        if not arguments or ("=" in arguments[0] and not Path(arguments[0]).exists()):
            remedy = "Name a labelled file: bertsmith evaluate MODEL test.csv; or --suite and its --data"
            if suite is not None:
                remedy = f"Name the data of the suite {suite}: --data FOLDER"
            raise RecipeError("evaluate", "there is no data", remedy)
        data, arguments = Path(arguments[0]), arguments[1:]
    if suite is None and data.is_dir() and glue.recognise(data) is None and _is_glue(data):
        suite = "glue"
    if suite is None:
        refuse_suite_options({"--seeds": seeds, "--limit": limit, "--shots": shots})
        show(evaluate_file(model, data, out, overrides=arguments), out)
        return
    if out is None:
        raise RecipeError("--out", f"the suite {suite} needs an output folder", "Give one: --out runs/evaluation")
    if shots is not None and suite != "few-shot":
        raise RecipeError("--shots", f"the suite {suite} has no such option", "Leave it out")
    changes = [*arguments, *([f"shots=[{shots}]"] if shots is not None else [])]
    suites.run_suite(suite, model, data, out, seeds=seeds, limit=limit, overrides=changes)


def refuse_suite_options(given: Mapping[str, object]) -> None:
    """Refuse options that have no effect on a labelled file."""
    for option, value in given.items():
        if value is not None:
            raise RecipeError(option, "is for suites, and this is a labelled file", "Leave it out, or name a suite")


def evaluate_file(model: Path, data: Path, out: Path | None = None, *, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The scores of a fine-tuned model on a labelled file or labelled images, with details and comparisons.

    With an output folder, also writes `result.json` and a report.
    """
    if image_classifiers.is_image_folder(model):
        return evaluate_images(model, data, out, overrides=overrides)
    if out is not None:
        check_folder(out)
    image_recipe.refuse_images(model, data)
    loaded = load_text_model(model)
    result, path = evaluate_model(loaded, data, overrides=overrides)
    if out is not None:
        with files.explain_os_errors(out):
            out.mkdir(parents=True, exist_ok=True)
        files.write_json(out / RESULT, result)
        evaluation.write(out, f"{evaluation.model_name(Path(loaded.path))} on {path.name}", result)
    return result


def evaluate_model(
    loaded: Model, data: Path, *, overrides: Sequence[str] = (), quiet: bool = False
) -> tuple[dict[str, Any], Path]:
    """The scores of a loaded model, by whatever backend computes it, and the labelled file they were measured on.

    `quiet` leaves out what the file holds, for a second model on the same file.
    """
    settings = config.build(config.override({}, overrides), EvaluateConfig, "evaluate").data
    task, source = _task(loaded), loaded.training_data
    read, path = _read(data, type(task).file_kind(task.config), settings, source)
    lines = [f"Of {data}: {splits.describe(path)}"] if data.is_dir() else []
    lines.append(f"{terminal.count_of(len(read.examples), 'example')}: {read.description}")
    lines += [f"  left out: {count_dropped(count, reason)}" for reason, count in read.dropped.items()]
    own = Prior.of(read.examples, source="this file")
    names = _match_labels(task.labels, own, path)
    if renamed := {one: other for one, other in names.items() if one != other}:
        shown = ", ".join(f"'{one}' is '{other}'" for one, other in list(renamed.items())[:8])
        lines.append(f"labels by the model's names: {shown}")
    for line in () if quiet else lines:
        CONSOLE.print(line)
    length = loaded.prediction_length if settings.max_length is None else settings.max_length
    if not MIN_LENGTH <= length <= loaded.max_length:
        raise RecipeError("data.max_length", f"is {length}", f"Give {MIN_LENGTH} to {loaded.max_length:,}")
    temperature = source.get("temperature")
    findings = findings_of(task, _prior(source), temperature if isinstance(temperature, float) else None)
    options: dict[str, Any] = {
        "device": loaded.device,
        "outputs": loaded.task_outputs if task is loaded.objective else task.outputs,
    }
    for block in _blocks(read.examples):
        renamed_block = [_rename_labels(example, names) for example in block]
        items = task.preprocess([_without_label(example) for example in block], loaded.tokenizer, length)
        findings.add(renamed_block, predict(task, renamed_block, items, detailed=True, **options))
    return _result(findings.to_dict(), loaded, path, read, length), path


def show(result: Mapping[str, Any], out: Path | None) -> None:
    """Print the scores, then precision, recall and F1 by class, then comparisons with baselines."""
    table, details = Table("", "score", box=None), result["details"]
    for name, one in result["summary"].items():
        table.add_row(evaluation.plain_text(name_of(name, details)), f"{one['mean']:.4f}")
    CONSOLE.print(table)
    rows = details.get("classes") or details.get("entities") or []
    if rows:
        by_class = Table("\nclass" if "classes" in details else "\nentity", box=None)
        for column in evaluation.COLUMNS:
            by_class.add_column(f"\n{column}", justify="right")
        for row in sorted(rows, key=lambda row: -row["support"])[:MAX_CLASSES_SHOWN]:
            scores = [f"{row[name]:.3f}" for name in ("precision", "recall", "f1")]
            by_class.add_row(evaluation.plain_text(row["label"]), *scores, f"{row['support']:,}")
        CONSOLE.print(by_class)
        if len(rows) > MAX_CLASSES_SHOWN:
            CONSOLE.print(f"the {MAX_CLASSES_SHOWN} largest of {len(rows):,} classes")
    for line in evaluation.comparison_lines(result):
        CONSOLE.print(line)
    if out is not None:
        CONSOLE.print(f"scores {out / RESULT}, report {out / evaluation.PAGE}")


def _task(loaded: Model) -> Task:
    """The task that the model was fine-tuned on; for a sentence-transformers folder, sentence embeddings."""
    if isinstance(loaded.objective, Task):
        return loaded.objective
    if sentences.read(Path(loaded.path)) is not None:
        pooling = loaded.sentence_config.pooling
        return SentenceEmbedding(loaded.trunk, SentenceEmbedding.Config(pooling=pooling)).eval()  # type: ignore[arg-type]
    remedy = f"Fine-tune it first: {folders.finetune_command(loaded.path)}"
    raise FolderError(loaded.path, "was not fine-tuned", remedy)


def _prior(source: Mapping[str, Any]) -> Prior | None:
    """The label distribution of the training data, as the folder has it."""
    counts, mean = source.get("counts"), source.get("mean")
    known = counts if isinstance(counts, dict) and all(isinstance(one, int) for one in counts.values()) else {}
    return Prior(counts=known, mean=mean if isinstance(mean, float) else None) if known or mean else None


def _read(data: Path, kind: Kind, settings: DataConfig, source: Mapping[str, Any]) -> tuple[LabelledData, Path]:
    """The examples of a file, by the columns that are given, by those of the training data, or by guessed ones."""
    given = Columns(texts=settings.texts, label=settings.label, separator=settings.separator)
    path = task_data.held_out_file(data, given)
    texts, label = source.get("texts"), source.get("label")
    one_context = source.get("context_columns") == 1
    named = texts or (kind == "tag" and label is not None)  # of tagged words either column may have been named alone
    if given == GUESSED_COLUMNS and named and one_context and glue.recognise(path) is None:
        try:
            trained_on = Columns(
                texts=tuple(map(str, texts or ())) or None, label=None if label is None else str(label)
            )
            if flags := source.get("labels"):
                trained_on = replace(trained_on, labels=tuple(map(str, flags)))
            if separator := source.get("separator"):
                trained_on = replace(trained_on, separator=str(separator))
            return reader.read(path, kind, trained_on, settings.on_bad_row), path
        except TextError:
            pass  # the file has other columns, which are guessed below
    # The index of an ending looks like a class.
    if kind != "choose" and given == GUESSED_COLUMNS and kind_of(path) == "choose":
        raise mismatch(path, kind) or AssertionError
    try:
        read = reader.read(path, kind, given, settings.on_bad_row)
    except TextError:
        if given == GUESSED_COLUMNS and (other := mismatch(path, kind, strictly=kind == "number")):
            raise other from None
        raise
    alone = kind == "pairs" and any(isinstance(one, Example) and len(one.texts) < 2 for one in read.examples[:1])
    if alone and (other := mismatch(path, kind)):
        raise other
    return read, path


def _match_labels(labels: Sequence[str], own: Prior, path: Path) -> dict[str, str]:
    """For each label of the file the model's label: the same, the same in another case, or the one with that index.

    Published models often have names where files have indices: LABEL_0 or NEGATIVE is 0.
    """
    seen = [label for label in own.counts if labels]
    if (found := match_labels(labels, seen)) is not None:
        return found
    if kind_of(path) == "number" and (other := mismatch(path, "classify", strictly=True)):
        raise other
    raise unknown_labels(labels, seen, path)


def _rename_labels(example: Any, names: Mapping[str, str]) -> Any:
    if not names:
        return example
    match example:
        case Sentence(tags=tuple(tags)):
            return replace(example, tags=tuple(names.get(tag, tag) for tag in tags))
        case Example(label=tuple(labels)):
            return replace(example, label=tuple(names.get(label, label) for label in labels))
        case Example(label=str(label)):
            return replace(example, label=names.get(label, label))
    return example


def _without_label(example: Any) -> Any:
    """The example without its label: a label that the model does not know counts as wrong, and is no error."""
    if isinstance(example, Sentence):
        return replace(example, tags=None)
    return replace(example, label=None) if isinstance(example, Example) else example


def _blocks(examples: Sequence[Any]) -> Iterator[list[Any]]:
    """Examples in blocks, with a progress bar on a terminal."""
    rest = iter(examples)
    with Progress(console=CONSOLE, transient=True, disable=not CONSOLE.is_terminal) as progress:
        bar = progress.add_task("evaluating", total=len(examples))
        while block := list(islice(rest, BATCH_EXAMPLES)):
            yield block
            progress.advance(bar, len(block))


def _result(findings: dict[str, Any], loaded: Model, path: Path, read: LabelledData, length: int) -> dict[str, Any]:
    metrics = findings["metrics"]
    headline = next(iter(metrics))
    summary = {name: {"mean": one, "deviation": 0.0, "low": None, "high": None} for name, one in metrics.items()}
    lines = [f"{terminal.count_of(len(read.examples), 'example')}: {read.description}"]
    lines += [f"left out: {count_dropped(count, reason)}" for reason, count in read.dropped.items()]
    protocol = {
        "model": str(loaded.path),
        "measured_on": str(path),
        "data": lines,
        "max_length": f"{length} tokens",
        "data_sha256": read.fingerprint,
        "machine": hardware.describe(loaded.device),
    }
    return {
        "headline": headline,
        "summary": summary,
        "details": findings,
        "warnings": warnings(findings, headline, metrics[headline]),
        "protocol": protocol,
    }


def _is_glue(data: Path) -> bool:
    return any(glue.recognise(path) for path in data.iterdir() if path.is_dir())
