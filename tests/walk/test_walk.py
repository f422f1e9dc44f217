"""A walk through the door: the commands that people type first, on the files that people have.

Nothing fails that should work, a command that is refused says in one line why and what to do, and each result is
better than its baseline or says that it is not. Runs by time are counted in steps here, so that a slow machine walks
the same way.
"""

import io
import json
import re
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from walk.folders import FOLDERS
from walk.labelled import LABELLED, ROWS, one_class_per_row
from workers import made_once

from bertsmith import cli
from bertsmith.inference.load import load
from bertsmith.runs import autoconfig
from bertsmith.train.clock import Clock

pytestmark = pytest.mark.slow("makes a model of every folder and fine-tunes it on every file")

STEPS = {"one big file": 40}  # the model that is fine-tuned below; the others take only a few
FEW_STEPS = 3
SHARE = 0.05  # of a small text, for validation
BETTER = re.compile(
    r"The model has (begun to learn|learnt): its validation loss is \d+\.\d\d nats below that of predicting"
)
NOT_BETTER = re.compile(
    r"The model has not learnt yet: (its validation loss is .* above|it predicts no better than word frequency)"
)
REFUSED = re.compile(r"bertsmith: [^\n]+: [^\n]+\. [^\n]+[.?]\n")  # place: fact. remedy.
PACES = ("train.epochs=3", "optimizer.learning_rate=2e-3", "data.batch_size=16")


@dataclass(frozen=True)
class Answer:
    """What a command has said, and its exit code."""

    code: Any
    out: str
    err: str


def bertsmith(*arguments: object) -> Answer:
    """The command line itself, in this process."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["bertsmith", *map(str, arguments)])
        patch.setenv("COLUMNS", "200")  # tables are not folded
        try:
            cli.main()
        except SystemExit as left:
            code = left.code
    return Answer(code, out.getvalue(), err.getvalue())


@dataclass(frozen=True)
class Made:
    """A model that was made from one of the folders."""

    said: Answer
    out: Path

    @property
    def vocabulary(self) -> dict[str, int]:
        vocabulary: dict[str, int] = json.loads((self.out / "model" / "tokenizer.json").read_text("utf-8"))["model"][
            "vocab"
        ]
        return vocabulary


class Models:
    """What `make` makes of each folder, once for all tests and workers."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self.factory = factory

    def of(self, name: str) -> Made:
        folder = made_once(self.factory, f"walk-{name}", lambda folder: self._make(name, folder))
        return Made(Answer(**json.loads((folder / "said.json").read_text("utf-8"))), folder / "run")

    def _make(self, name: str, folder: Path) -> None:
        (folder / "texts").mkdir()
        with pytest.MonkeyPatch.context() as patch:
            by_steps(patch, STEPS.get(name, FEW_STEPS))
            said = bertsmith("make", *FOLDERS[name](folder / "texts"), "--out", folder / "run", "--budget", "1h")
        (folder / "said.json").write_text(json.dumps(asdict(said)), "utf-8")


def by_steps(patch: pytest.MonkeyPatch, steps: int) -> None:
    """A run by time takes this many steps on any machine, and is chosen as on a slow one."""
    share = Clock.progress
    patch.setattr(autoconfig, "measure_pace", lambda recipe, device: 20.0)
    patch.setattr(
        Clock,
        "progress",
        lambda clock, step, epoch: share(clock, step, epoch) if clock.wall is None else min(1.0, step / steps),
    )


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return Models(tmp_path_factory)


@pytest.fixture(scope="module")
def base(models: Models) -> Path:
    """The run folder of a small model of English."""
    return models.of("one big file").out


# ---------------------------------------------------------------------------------------------------------------- text


@pytest.mark.exhaustive(suite=4)
@pytest.mark.parametrize("name", FOLDERS)
def test_make_turns_each_folder_into_a_model(name: str, models: Models) -> None:
    made = models.of(name)
    said = made.said.out
    assert (made.said.code, made.said.err) == (0, ""), made.said
    assert load(made.out, device="cpu").tokenizer.vocabulary > 100
    share = re.search(r"validation: .*\((\d+\.\d)% of the text\)", said)
    assert share is not None, said
    assert 0.9 * SHARE <= float(share[1]) / 100 <= 1.1 * SHARE
    assert "accents " in said
    assert "why: smith-tiny" in said
    verdict = next(line for line in said.splitlines() if line.startswith("The model has "))
    assert BETTER.match(verdict) or NOT_BETTER.match(verdict), verdict
    assert verdict in (made.out / "model" / "README.md").read_text(encoding="utf-8")
    assert (made.out / "report.html").exists()


def test_a_model_of_enough_text_and_time_has_learnt(models: Models) -> None:
    assert BETTER.search(models.of("one big file").said.out)


@pytest.mark.parametrize("name", ["German", "Latin-1"])
def test_german_keeps_its_umlauts(name: str, models: Models) -> None:
    made = models.of(name)
    assert "lowercased, accents kept: the text looks German" in made.said.out
    assert {"geschäft", "bäckerin", "schutzausrüstung"} <= made.vocabulary.keys()
    assert ("alt.txt: read as cp1252, not UTF-8" in made.said.out) == (name == "Latin-1")


def test_turkish_keeps_its_letters(models: Models) -> None:
    made = models.of("Turkish")
    assert "capitals kept, accents kept: the text looks Turkish, where i and ı are two letters" in made.said.out
    tokenizer = load(made.out, device="cpu").tokenizer
    oil, become = tokenizer.encode(["öl", "ol"])
    assert list(oil) != list(become)
    assert "öl" in made.vocabulary
    assert "kıyısında" in made.vocabulary


def test_scripts_without_capitals_are_left_as_they_are(models: Models) -> None:
    chinese, arabic = models.of("Chinese"), models.of("Arabic")
    assert "the Chinese script has no capitals" in chinese.said.out
    assert re.search(r"training: .* characters, ", chinese.said.out)
    assert " words, " not in chinese.said.out
    assert {"船", "长"} <= chinese.vocabulary.keys()
    assert "the Arabic script has no capitals" in arabic.said.out
    assert re.search(r"training: .* words, ", arabic.said.out)
    assert "القبطان" in arabic.vocabulary


def test_a_messy_folder_says_what_was_read_and_what_was_skipped(models: Models) -> None:
    made = models.of("messy")
    skipped = next(line for line in made.said.out.splitlines() if "skipped: " in line)
    assert "1 .png (not text)" in skipped
    assert "1 .py (not a text format: add --as text)" in skipped
    assert "text from column 'comment', the one with the longest texts" in made.said.out
    for library, ending in (("docx", ".docx"), ("pypdf", ".pdf")):
        assert (ending in skipped) == (find_spec(library) is None)
    assert not {"print", "let", "color", "http"} & made.vocabulary.keys()


def test_source_code_is_read_where_it_is_named(models: Models) -> None:
    made = models.of("code")
    assert {"def", "return", "range"} <= made.vocabulary.keys()
    assert "skipped: " not in made.said.out


# -------------------------------------------------------------------------------------------------------------- labels

# For each file: the task that is said, the baseline's name, and the rows that are measured.
TASKS = {
    "reviews": ("Task: classification, 2 classes in 'label'", "always predicting 'bad'"),
    "odd names": ("Task: classification, 2 classes in 'Urteil'", "always predicting 'schlecht'"),
    "packed": ("Task: classification, 2 classes in 'label'", "always predicting 'bad'"),
    "Latin-1": ("Task: classification, 2 classes in 'label'", "always predicting 'bad'"),
    "missing labels": ("Task: classification, 2 classes in 'label'", "always predicting 'bad'"),
    "prices": ("Task: regression, numbers from 12.51 to 16.05 in 'price'", "the mean of training"),
    "stars": ("Task: classification, 2 classes in 'stars'; task.problem=regression", "always predicting '1'"),
    "topics in one cell": (
        "Task: multi-label classification, 4 labels separated by ','",
        "always predicting 'sea' alone",
    ),
    "lists of labels": ("Task: multi-label classification, 3 labels in 'labels'", "always predicting 'sea' alone"),
    "a column for each label": ("a column of 0 and 1 for each of 3 labels (happy, angry, even)", "'angry' alone"),
    "questions and answers": ("Task: sentence embeddings from 'question' and 'answer'", "a random partner"),
    "similarity": ("Task: regression, numbers from 0 to 5.098 in 'score'", "the mean of training"),
    "entailment": ("Task: classification, 2 classes in 'label'", "always predicting 'contradiction'"),
    "entities": (
        "Task: token classification (NER, part-of-speech tags)",
        "always predicting 'O'",
    ),
    "SQuAD": (
        "Task: question answering, since there are questions and passages",
        "always predicting that there is no answer",
    ),
    "endings": ("Task: multiple choice, since there are several endings", "always choosing ending"),
}


def test_a_task_is_expected_of_each_file() -> None:
    assert TASKS.keys() == LABELLED.keys()
    assert len(LABELLED) >= 15


@pytest.mark.exhaustive(suite=6)
@pytest.mark.parametrize("name", TASKS)
def test_each_labelled_file_is_learnt_predicted_and_measured(name: str, base: Path, tmp_path: Path) -> None:
    file, run, measured = LABELLED[name](tmp_path), tmp_path / "run", tmp_path / "measured"
    task, baseline = TASKS[name]
    taught = bertsmith("finetune", base, file, "--out", run, *PACES)
    assert (taught.code, taught.err) == (0, ""), taught
    assert task in taught.out
    assert (run / "report.html").exists()
    is_better_or_says_not(taught.out, baseline, run / "result.json")

    predicted = bertsmith("predict", run, file)
    if name == "questions and answers":
        assert predicted.err.startswith(f"bertsmith: {run}: makes sentence embeddings, and predicts no labels. Use: ")
        embedded = bertsmith("embed", run, file, "--out", tmp_path / "vectors.npy")
        assert (embedded.code, len(np.load(tmp_path / "vectors.npy"))) == (0, ROWS), embedded
    else:
        said = r"bertsmith: \d+ texts are longer than the 32 tokens that the model was fine-tuned to read, .*\n"
        assert predicted.code == 0, predicted
        assert re.fullmatch(said if "are truncated" in taught.out else "", predicted.err), predicted
        assert len([json.loads(line) for line in predicted.out.splitlines()]) == ROWS
    refused = bertsmith("score", run, "a text to score")
    assert (refused.code, refused.out) == (1, "")
    assert "has no masked-word head. Scores need" in refused.err

    scored = bertsmith("evaluate", run, file, "--out", measured)
    assert (scored.code, scored.err) == (0, ""), scored
    rows = ROWS - 10 if name == "missing labels" else ROWS
    assert f"{rows} examples: " in scored.out
    assert (measured / "report.html").exists()
    is_better_or_says_not(scored.out, baseline, measured / "result.json")


def is_better_or_says_not(said: str, baseline: str, path: Path) -> None:
    """The baseline is shown, and a headline that is not above it has a warning."""
    shown = next(line for line in said.splitlines() if line.startswith("baseline: "))
    assert baseline in shown
    result = json.loads(path.read_text(encoding="utf-8"))
    headline, details = result["headline"], result["details"]
    score, plain = result["summary"][headline]["mean"], details["baseline"]["metrics"][headline]
    warned = [line for line in said.splitlines() if line.startswith("warning: ") and "is not better than" in line]
    assert bool(score > plain or score >= 1) != any(details["baseline"]["name"] in line for line in warned), said


def test_what_is_left_out_and_how_a_file_is_read_is_said(base: Path, tmp_path: Path) -> None:
    latin = bertsmith("finetune", base, LABELLED["Latin-1"](tmp_path), "--out", tmp_path / "latin", "train.steps=1")
    assert "label from 'label'; read as cp1252, not UTF-8" in latin.out
    gaps = bertsmith(
        "finetune", base, LABELLED["missing labels"](tmp_path), "--out", tmp_path / "gaps", "train.steps=1"
    )
    assert "left out: 10 rows without a label" in gaps.out


def test_a_regression_begins_at_the_mean_and_one_seed_has_one_column(base: Path, tmp_path: Path) -> None:
    """Numbers far from 0 are reached at once, whatever the learning rate."""
    said = bertsmith("finetune", base, LABELLED["prices"](tmp_path), "--out", tmp_path / "run", "train.epochs=1")
    assert "60 rows are few: 1 epoch, batch size" in said.out
    assert "deviation" not in said.out
    result = json.loads((tmp_path / "run" / "result.json").read_text(encoding="utf-8"))
    error, mean = result["summary"]["rmse"]["mean"], result["details"]["baseline"]["metrics"]["rmse"]
    assert error < 1.1 * mean


# ------------------------------------------------------------------------------------------------------------ mistakes


def test_a_mistake_is_answered_in_one_helpful_line(base: Path, tmp_path: Path) -> None:
    reviews, ids = LABELLED["reviews"](tmp_path), one_class_per_row(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "noise.bin").write_bytes(bytes(range(256)) * 64)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "config.json").write_text('{"model_type": "bert"}')
    (foreign / "model.safetensors").write_bytes(b"weights of somebody else")
    text, new, model = tmp_path / "text.txt", tmp_path / "new", base / "model"
    text.write_text("the baker sells bread .\n" * 50)
    refusals: dict[str, tuple[object, ...]] = {
        "nearly each row is its own class": ("finetune", base, ids, "--out", new),
        "Did you mean 'reviews.csv'?": ("finetune", base, tmp_path / "reviws.csv", "--out", new),
        "text.txt: is a file, not a folder": ("make", text, "--out", text),
        "is a folder without text files": ("make", tmp_path / "empty", "--out", new),
        "is not text": ("make", tmp_path / "noise.bin", "--out", new),
        "holds files that bertsmith has not written there (config.json, ": ("make", text, "--out", foreign),
        "has not written there (config.json, model": ("finetune", base, reviews, "--out", foreign),
        "written there (MANIFEST.json, README": ("pretrain", "bert-tiny", "--data", base / "data", "--out", model),
        "was not fine-tuned. Fine-tune it first": ("predict", model, "a text to predict"),
        "model: was not fine-tuned. Fine-tune it first": ("evaluate", model, reviews),
        "evaluate: there is no data. Name a labelled file": ("evaluate", model),
        "text.txt: has one column, and so no labels": (
            "finetune",
            base,
            tmp_path / "text.txt",
            "--task",
            "classify",
            "--out",
            new,
        ),
        "runn: is missing. Did you mean 'run'?": ("finetune", base.with_name("runn"), reviews, "--out", new),
        "nowhere: is missing. Name a model folder": ("fill", tmp_path / "nowhere", "a [MASK]"),
        "'soon' is not a duration": ("make", text, "--out", new, "--budget", "soon"),
        "has no column 'lable'. Did you mean 'label'?": ("finetune", base, reviews, "--out", new, "data.label=lable"),
        "Did you mean 'bert-base'?": ("check", "bert-bse"),
    }
    for fact, command in refusals.items():
        said = bertsmith(*command)
        assert said.code == 1, (command, said)
        assert fact in said.err, (command, said)
        assert REFUSED.fullmatch(said.err), (command, said.err)
        assert "Traceback" not in said.out + said.err
    assert not new.exists() or not any(new.rglob("*.safetensors"))
    assert (foreign / "config.json").read_text() == '{"model_type": "bert"}'
