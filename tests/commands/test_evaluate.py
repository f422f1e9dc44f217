"""`bertsmith evaluate MODEL FILE`: a fine-tuned model, ours or another's, on any labelled file."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tasks.small import CASES, shape, tokenizer
from typer.testing import CliRunner

from bertsmith.cli import app
from bertsmith.commands import evaluate, finetune
from bertsmith.errors import BertsmithError, FolderError, RecipeError, RunError, TextError
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf import sentence_transformers
from bertsmith.models.hf.finetuned import FinetunedTask
from bertsmith.models.transformer import Transformer
from bertsmith.nn.init import initialise
from bertsmith.objectives.masked import MaskedLM
from bertsmith.runs import finetuning, task_recipe

FAST = ["train.device=cpu", "train.precision=float32", "data.batch_size=16", "data.max_length=16", "data.workers=1"]


def rows(path: Path, count: int, names: tuple[str, str] = ("purr", "bark"), head: str = "story,animal") -> Path:
    lines = [head, *(f"the old {('cat', 'dog')[n % 2]} sees the {n % 7} river,{names[n % 2]}" for n in range(count))]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    objective = MaskedLM(Transformer(shape(max_length=32)), MaskedLM.Config(pairs="nsp"))
    initialise(objective, 0)
    folders.write(folder, shape(max_length=32), objective.state_dict())
    tokenizer().save(folder)
    return folder


@pytest.fixture(scope="module")
def learnt(base: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A run that classifies cats and dogs, and its result."""
    folder = tmp_path_factory.mktemp("learnt")
    train = rows(folder / "train.csv", 96)
    settings = [*FAST, "optimizer.learning_rate=0.003", "train.steps=30", 'data.texts=["story"]', "data.label=animal"]
    dev = rows(folder / "dev.csv", 40)
    recipe = task_recipe.build_recipe(
        base, train, folder / "run", dev=dev, task="classify", seeds=1, overrides=settings
    )
    return folder / "run", finetuning.finetune(recipe)


def kept(folder: Path, name: str, **learnt: Any) -> Path:
    """A folder as other libraries write it: a network with a head, without a record of its training."""
    task = CASES[name].task()
    folders.write(folder, shape(), task.state_dict(), finetuned=FinetunedTask(labels=task.labels, **learnt))
    tokenizer().save(folder)
    return folder


# --------------------------------------------------------------------------------------- what fine-tuning leaves


def test_fine_tuning_writes_a_report_with_baselines_and_the_untrained_score(learnt: tuple[Path, dict]) -> None:
    run, result = learnt
    assert result["details"]["baseline"]["metrics"]["accuracy"] == 0.5
    assert 0 <= result["untrained"]["accuracy"] <= 1
    assert "details" not in result["runs"][0]
    assert json.loads((run / "result.json").read_text())["details"] == result["details"]
    assert "Class by class" in (run / "report.html").read_text()
    assert "Training loss" in (run / "report.html").read_text()
    figures = result["runs"][0]["metrics"]
    assert result["details"]["metrics"]["accuracy"] == figures["accuracy"]


def test_a_run_that_learns_nothing_gets_a_warning(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    train = rows(tmp_path / "train.csv", 32)
    settings = [*FAST, "optimizer.learning_rate=1e-9", "train.steps=1", 'data.texts=["story"]', "data.label=animal"]
    dev = rows(tmp_path / "dev.csv", 20)
    recipe = task_recipe.build_recipe(
        base, train, tmp_path / "run", dev=dev, task="classify", seeds=1, overrides=settings
    )
    result = finetuning.finetune(recipe)
    assert any("not better than" in line for line in result["warnings"])
    finetune.show(result, tmp_path / "run")
    assert "warning: " in capsys.readouterr().out
    assert "Look here first" in (tmp_path / "run" / "report.html").read_text()


# ------------------------------------------------------------------------------------------ evaluate MODEL FILE


def test_a_fine_tuned_model_is_evaluated_by_its_training_columns(
    learnt: tuple[Path, dict], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    data = rows(tmp_path / "test.csv", 60)
    evaluate.evaluate(learnt[0], [str(data)], suite=None, data=None, out=None, seeds=None, limit=None, shots=None)
    said = capsys.readouterr().out
    assert "60 examples: texts from 'story', label from 'animal'" in said
    assert "precision" in said
    assert "baseline: accuracy 0.5000, always predicting 'bark', the commonest class of training" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["test.csv"]
    result = evaluate.evaluate_file(learnt[0], data, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "result.json").read_text()) == result
    assert "Confusion matrix" in (tmp_path / "out" / "report.html").read_text()
    calibrated = result["details"]["calibration"]
    assert calibrated["temperature"] == learnt[1]["details"]["calibration"]["temperature"]
    assert calibrated["fitted"] == "on the dev set of the training"


def test_blocks_do_not_change_the_result(
    learnt: tuple[Path, dict], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = rows(tmp_path / "test.csv", 50)
    whole = evaluate.evaluate_file(learnt[0], data)
    monkeypatch.setattr(evaluate, "BATCH_EXAMPLES", 7)
    parts = evaluate.evaluate_file(learnt[0], data)
    assert parts["summary"]["accuracy"] == whole["summary"]["accuracy"]
    assert parts["details"]["confusion"] == whole["details"]["confusion"]


@pytest.mark.parametrize("columns", [{"texts": ["1"], "label": "2"}, {"texts": ["1"]}, {"label": "2"}, {}])
def test_a_tagger_is_evaluated_by_the_columns_that_it_was_trained_on(columns: dict[str, Any], tmp_path: Path) -> None:
    folder, task = tmp_path / "tag", CASES["tag"].task()
    source = {"kind": "tag", "texts": [], "label": None, "context_columns": 1} | columns
    learnt = FinetunedTask(task="tag", labels=task.labels)
    folders.write(folder, shape(), task.state_dict(), {"bertsmith": {"trained_on": source}}, learnt)
    tokenizer().save(folder)
    conll = tmp_path / "test.conll"
    conll.write_text("\n\n".join("1 the O B-X\n2 cat B-X O\n3 sees O O" for _ in range(5)) + "\n")
    result = evaluate.evaluate_file(folder, conll)
    words, tags = (columns.get("texts") or ["0"])[0], columns.get("label", "3")
    assert result["protocol"]["data"][0] == f"5 examples: words from column {words}, tags from column {tags}"
    short = tmp_path / "short.conll"  # without those columns, which are guessed
    short.write_text("\n\n".join("the O\ncat B-X" for _ in range(5)) + "\n")
    if columns.get("label"):
        data = evaluate.evaluate_file(folder, short)["protocol"]["data"]
        assert data[0] == "5 examples: words from column 0, tags from column 1"


def test_every_task_is_evaluated_with_a_foreign_folder(tmp_path: Path) -> None:
    conll = tmp_path / "test.conll"
    conll.write_text("\n\n".join("the O\ncat B-X\nsees O" for _ in range(5)) + "\n")
    tagged = evaluate.evaluate_file(kept(tmp_path / "tag", "tag", task="tag"), conll)
    assert tagged["headline"] == "f1"
    assert tagged["details"]["words"] == 15
    numbers = tmp_path / "numbers.csv"
    numbers.write_text("text,score\n" + "".join(f"the old cat {'sees ' * n},{n}.5\n" for n in range(6)))
    scored = evaluate.evaluate_file(kept(tmp_path / "number", "number", task="classify", problem="regression"), numbers)
    assert list(scored["summary"]) == ["spearman", "pearson", "mae", "rmse"]
    assert "the mean of this file" in scored["details"]["baseline"]["name"]


@pytest.mark.parametrize("names", [("0", "2"), ("No", "YES")])
def test_labels_match_by_index_or_in_another_case(
    names: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    model = kept(tmp_path / "model", "class", task="classify")
    result = evaluate.evaluate_file(model, rows(tmp_path / "test.csv", 20, names, "text,label"))
    found = {row["label"]: row["support"] for row in result["details"]["classes"]}
    assert {label: count for label, count in found.items() if count} == {"no": 10, "yes": 10}
    assert f"labels by the model's names: '{names[0]}' is 'no', '{names[1]}' is 'yes'" in capsys.readouterr().out


def test_all_shards_of_the_test_set_of_a_folder_are_evaluated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, data = kept(tmp_path / "model", "class", task="classify"), tmp_path / "data"
    data.mkdir()
    for name in ("dev.csv", "test-00000-of-00002.csv", "test-00001-of-00002.csv"):
        rows(data / name, 20, ("no", "yes"), "text,label")
    evaluate.evaluate_file(model, data)
    said = capsys.readouterr().out
    assert f"Of {data}: test-[0-9]*-of-00002.csv (2 files)\n40 examples: " in said


def test_an_unknown_label_counts_as_wrong_and_is_no_error(tmp_path: Path) -> None:
    model = kept(tmp_path / "model", "class", task="classify")
    result = evaluate.evaluate_file(model, rows(tmp_path / "test.csv", 20, ("no", "perhaps"), "text,label"))
    assert result["details"]["unknown"] == {"perhaps": 10}
    assert any("never learnt ('perhaps')" in line for line in result["warnings"])


def refusals(tmp_path: Path, base: Path) -> Iterator[tuple[type[BertsmithError], str, list[Any]]]:
    model, data = kept(tmp_path / "model", "class", task="classify"), rows(tmp_path / "test.csv", 4)
    other = rows(tmp_path / "other.csv", 20, ("good", "bad"), "text,label")
    fact = "none of its labels (bad, good) is one that the model knows (no, so-so, yes)"
    remedy = "Name the column of the label with data.label='...', or rename the labels."
    yield TextError, f"{other}: {fact}. {remedy}", [model, other]
    teach = f"Fine-tune it first: bertsmith finetune {base} DATA --out {base}-tuned."
    yield FolderError, f"{base}: was not fine-tuned. {teach}", [base, data]
    yield RunError, f"{data}: is a file. Name a folder.", [model, data, data]
    remedy = "Choose another folder for the evaluation."
    yield RunError, f"{model}: is the folder of a model. {remedy}", [model, data, model]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.toml").touch()
    yield RunError, f"{tmp_path / 'run'}: is the folder of a run. {remedy}", [model, data, tmp_path / "run"]
    empty = tmp_path / "empty"
    empty.mkdir()
    yield TextError, f"{empty}: holds no test file and no dev file. Name the file itself.", [model, empty]


def test_data_that_cannot_be_evaluated_is_refused_in_one_line(base: Path, tmp_path: Path) -> None:
    for kind, line, arguments in refusals(tmp_path, base):
        with pytest.raises(kind) as caught:
            evaluate.evaluate_file(*arguments)
        assert str(caught.value) == line


def test_no_data_and_a_suite_without_a_folder_are_refused_in_one_line(base: Path, tmp_path: Path) -> None:
    how: dict[str, Any] = {"suite": None, "data": None, "out": None, "seeds": None, "limit": None, "shots": None}
    for words in ([], ["train.steps=3"]):
        with pytest.raises(RecipeError) as caught:
            evaluate.evaluate(base, words, **how)
        remedy = "Name a labelled file: bertsmith evaluate MODEL test.csv; or --suite and its --data."
        assert str(caught.value) == f"evaluate: there is no data. {remedy}"
    with pytest.raises(RecipeError) as caught:
        evaluate.evaluate(base, [str(tmp_path)], **{**how, "suite": "blimp"})
    assert str(caught.value) == "--out: the suite blimp needs an output folder. Give one: --out runs/evaluation."


def test_the_test_file_of_a_folder_is_evaluated(tmp_path: Path) -> None:
    model = kept(tmp_path / "model", "class", task="classify")
    rows(tmp_path / "dev.csv", 4, ("no", "yes"), "text,label")
    assert evaluate.evaluate_file(model, tmp_path)["details"]["examples"] == 4
    rows(tmp_path / "test.csv", 6, ("no", "yes"), "text,label")
    assert evaluate.evaluate_file(model, tmp_path)["details"]["examples"] == 6


def test_sentence_embeddings_are_evaluated_by_retrieval(base: Path, tmp_path: Path) -> None:
    folder = tmp_path / "vectors"
    task = CASES["pairs"].task()
    folders.write(folder, shape(), task.state_dict())
    tokenizer().save(folder)
    sentence_transformers.write(folder, sentence_transformers.SentenceConfig(), shape().width)
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("anchor,positive\n" + "".join(f"the old {w},a green {w}\n" for w in ("cat", "dog", "river")))
    result = evaluate.evaluate_file(folder, pairs)
    assert result["headline"] == "accuracy"
    assert result["details"]["baseline"]["metrics"]["accuracy"] == pytest.approx(1 / 3)


def test_the_command_line_takes_a_file_or_a_suite(learnt: tuple[Path, dict], tmp_path: Path) -> None:
    data = rows(tmp_path / "test.csv", 10)
    done = CliRunner().invoke(app, ["evaluate", str(learnt[0]), str(data), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out" / "report.html").exists()


# ------------------------------------------------------------------------------------- a file for another task

ROWS = "".join(f"the cat {n} sees,{('no', 'yes')[n % 2]}\n" for n in range(10))
PASSAGE = {"context": "the cat sees the dog", "qas": [{"id": "1", "question": "who sees", "answers": []}]}
WRONG = {
    "tags.conll": "\n\n".join("the O\ncat B-X\nsees O" for _ in range(5)) + "\n",
    "tags.jsonl": 4 * (json.dumps({"tokens": ["the", "cat"], "ner_tags": ["O", "B-X"]}) + "\n"),
    "classes.csv": f"text,label\n{ROWS}",
    "numbers.csv": "text,score\n" + "".join(f"the cat {n} sees,{n}.5\n" for n in range(10)),
    "choices.csv": "text,ending0,ending1,label\n"
    + "".join(f"the cat {n} sees,a dog,a bird,{n % 2}\n" for n in range(9)),
    "squad.json": json.dumps({"version": "1.1", "data": [{"title": "x", "paragraphs": [PASSAGE]}]}),
}
TAUGHT: dict[str, dict[str, Any]] = {
    "class": {"task": "classify"},
    "number": {"task": "classify", "problem": "regression"},
    "tag": {"task": "tag"},
    "answer": {"task": "answer"},
    "choose": {"task": "choose"},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "model", "said"),
    [
        (
            "tags.conll",
            "class",
            "tagged tokens, and the model classifies texts. Give it a table with a column of texts and",
        ),
        ("tags.conll", "number", "tagged tokens, and the model predicts a number for a text. Give it a table with"),
        (
            "tags.conll",
            "answer",
            "tagged tokens, and the model answers questions about passages. Give it SQuAD's JSON,",
        ),
        ("tags.jsonl", "class", "tagged tokens, and the model classifies texts. Give it"),
        ("squad.json", "class", "questions about passages, and the model classifies texts. Give it"),
        (
            "squad.json",
            "tag",
            "questions about passages, and the model tags tokens. Give it a file in CoNLL's columns,",
        ),
        ("classes.csv", "tag", "texts with classes, and the model tags tokens. Give it"),
        ("classes.csv", "answer", "texts with classes, and the model answers questions about passages. Give it"),
        (
            "classes.csv",
            "choose",
            "texts with classes, and the model chooses one of several endings. Give it a table with",
        ),
        (
            "classes.csv",
            "number",
            "texts with classes, and the model predicts a number for a text. Give it a table with",
        ),
        ("numbers.csv", "class", "texts with numbers, and the model classifies texts. Give it"),
        ("choices.csv", "class", "multiple-choice questions, and the model classifies texts. Give it"),
        ("choices.csv", "tag", "multiple-choice questions, and the model tags tokens. Give it"),
    ],
)
def test_a_file_for_another_task_is_refused_with_both_tasks(name: str, model: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(WRONG[name])
    with pytest.raises(TextError) as caught:
        evaluate.evaluate_file(kept(tmp_path / "model", model, **TAUGHT[model]), path)
    assert str(caught.value).startswith(f"{path}: holds {said}")


def test_the_class_of_an_f1_is_named_on_terminal_report_and_model_card(
    learnt: tuple[Path, dict], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    result = evaluate.evaluate_file(learnt[0], rows(tmp_path / "test.csv", 20), tmp_path / "out")
    evaluate.show(result, None)
    finetune.show(learnt[1], learnt[0])
    said = capsys.readouterr().out
    assert said.count("F1 of 'purr'") == 4  # alone and in the mean with accuracy, twice each
    assert "macro F1 of" not in said
    assert result["details"]["positive"] == "purr"
    for place in (tmp_path / "out" / "report.html", learnt[0] / "report.html", learnt[0] / "model" / "README.md"):
        assert "F1 of " in place.read_text(), place


@pytest.mark.parametrize("length", [2, 65])
def test_a_length_that_the_model_does_not_read_is_refused(tmp_path: Path, length: int) -> None:
    model = kept(tmp_path / "model", "class", task="classify")
    data = rows(tmp_path / "test.csv", 4, ("no", "yes"), "text,label")
    how: dict[str, Any] = {"suite": None, "data": None, "out": None, "seeds": None, "limit": None, "shots": None}
    with pytest.raises(RecipeError, match=rf"^data\.max_length: is {length}\. Give 8 to 64\.$"):
        evaluate.evaluate(model, [str(data), f"data.max_length={length}"], **how)
