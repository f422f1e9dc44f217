"""Suites at tiny sizes: every row is there, the files can be read, and a second call changes nothing."""

import json
from pathlib import Path

import pytest
from tasks.small import shape, stirred, tokenizer
from typer.testing import CliRunner

import bertsmith
from bertsmith.cli import app
from bertsmith.errors import FolderError, RecipeError, TextError
from bertsmith.models.hf import folder as folders
from bertsmith.models.networks import build_network
from bertsmith.models.recurrent import RecurrentConfig
from bertsmith.models.transformer import Transformer
from bertsmith.objectives.masked import MaskedLM
from bertsmith.runs import suites

QUICK = ["train.steps=4", "train.evaluations=1", "data.max_length=32", "data.batch_size=8", "train.precision=float32"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own") / "model"
    objective = stirred(MaskedLM(Transformer(shape(layers=4)), MaskedLM.Config()))
    folders.write(folder, objective.trunk.config, objective.state_dict(), {"pad_token_id": tokenizer().padding_id})
    tokenizer().save(folder, max_length=64)
    return folder


def glue(folder: Path) -> Path:
    """Two GLUE tasks, with their own columns."""
    for name in ("SST-2", "STS-B"):
        (folder / name).mkdir(parents=True)
    for part in ("train", "dev"):
        rows = [f"the {'cat' if number % 2 else 'dog'} sees\t{number % 2}" for number in range(16)]
        (folder / "SST-2" / f"{part}.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
        head = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore"
        rows = [f"{number}\ta\tb\tc\td\te\tf\tthe cat\tthe dog {number}\t{number % 5}.0" for number in range(16)]
        (folder / "STS-B" / f"{part}.tsv").write_text("\n".join([head, *rows]) + "\n")
    return folder


def conll(folder: Path) -> Path:
    folder.mkdir()
    text = "\n".join(f"the DT O\n{word} NN {tag}\nsees VB O\n" for word, tag in [("cat", "B-X"), ("dog", "O")] * 8)
    for name in ("eng.train", "eng.testa"):
        (folder / name).write_text(text)
    return folder


@pytest.mark.slow("fine-tunes")
def test_glue_is_run_task_by_task_and_resumed(model: Path, tmp_path: Path) -> None:
    data, out = glue(tmp_path / "glue"), tmp_path / "out"
    results = suites.run_suite("glue", model, data, out, seeds=2, limit=None, overrides=QUICK)
    assert [row[0] for row in results.rows] == ["SST-2", "STS-B", "mean"]
    assert results.rows[1][1] == "spearman"
    mean = sum(result["summary"][result["headline"]]["mean"] for result in results.figures.values()) / 2
    assert results.rows[-1][2] == f"{100 * mean:.1f}"
    kept = json.loads((out / "glue.json").read_text())
    assert kept["rows"] == [list(row) for row in results.rows]
    assert "seeds = 2" in kept["protocol"]["recipe of the first row"]
    page = (out / "glue.html").read_text()
    assert "<td>STS-B</td>" in page
    assert "http" not in page.replace("http-equiv", "")
    before = {path: path.stat().st_mtime_ns for path in out.rglob("log.jsonl")}
    assert len(before) == 4
    again = suites.run_suite("glue", model, data, out, seeds=2, limit=None, overrides=QUICK)
    assert again.rows == results.rows
    assert {path: path.stat().st_mtime_ns for path in out.rglob("log.jsonl")} == before


@pytest.mark.slow
def test_the_table_of_layers_has_the_papers_six_rows(model: Path, tmp_path: Path) -> None:
    overrides = [*QUICK, "task.hidden=8"]
    out = tmp_path / "out"
    results = suites.run_suite(
        "layers", model, conll(tmp_path / "conll"), out, seeds=1, limit=None, overrides=overrides
    )
    assert [row[0] for row in results.rows] == list(suites.LAYERS.values())
    assert all(row[1] == "f1" for row in results.rows)


def test_minimal_pairs_are_scored_by_phenomenon(model: Path, tmp_path: Path) -> None:
    rows = [
        {
            "sentence_good": "the cat sees",
            "sentence_bad": "cat the sees",
            "field": "syntax",
            "linguistics_term": "order",
        }
        | {"UID": name}
        for name in ("first", "second")
    ]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    results = suites.run_suite(
        "blimp", model, tmp_path / "pairs.jsonl", tmp_path / "out", seeds=None, limit=5, overrides=[]
    )
    assert [row[0] for row in results.rows] == ["first", "second", "all of syntax", "all"]
    assert {row[1] for row in results.rows} <= {"0.0", "100.0"}


def test_probes_have_an_accuracy_for_each_layer(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    results = suites.run_suite("probes", model, conll(tmp_path / "conll"), out, seeds=None, limit=None, overrides=[])
    assert [row[0] for row in results.rows] == ["0", "1", "2", "3", "4", "most frequent label"]
    assert results.rows[0][1] == "100.0"  # each word has one tag
    assert "<svg" in (out / "probes.html").read_text()


def test_mistakes_are_reported_in_one_line(model: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"^--suite: there is no suite 'gleu'\. Did you mean 'glue'\?$"):
        suites.run_suite("gleu", model, tmp_path, tmp_path / "out", seeds=1, limit=None, overrides=[])
    with pytest.raises(TextError, match=r"holds no task of GLUE\. Known: CoLA, SST-2"):
        suites.run_suite("glue", model, tmp_path, tmp_path / "out", seeds=1, limit=None, overrides=[])
    with pytest.raises(RecipeError, match="this suite has no such setting"):
        suites.run_suite(
            "blimp", model, tmp_path, tmp_path / "out", seeds=None, limit=None, overrides=["train.steps=1"]
        )


@pytest.mark.parametrize(
    ("suite", "options"),
    [
        ("glue", "--limit 5"),
        ("layers", "--limit 5"),
        ("blimp", "--seeds 2"),
        ("probes", "--seeds 2"),
        ("glue", "--shots 4"),
    ],
)
def test_options_that_a_suite_does_not_have_are_refused(suite: str, options: str, tmp_path: Path) -> None:
    called = ["evaluate", "no-model", "--suite", suite, "--data", str(tmp_path), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, [*called, *options.split()])
    assert str(done.exception) == f"{options.split()[0]}: the suite {suite} has no such option. Leave it out."
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("options", ["--seeds 3", "--limit 5", "--shots 4"])
def test_options_of_suites_are_refused_for_a_labelled_file(options: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["evaluate", "no-model", str(tmp_path), *options.split()])
    fact = "is for suites, and this is a labelled file. Leave it out, or name a suite."
    assert str(done.exception) == f"{options.split()[0]}: {fact}"
    name = options.split()[0].removeprefix("--")
    if name != "shots":
        with pytest.raises(RecipeError, match=f"^{name}: is for suites"):
            bertsmith.evaluate(tmp_path, tmp_path, **{name: 3})


def test_a_network_without_attention_is_not_probed(tmp_path: Path) -> None:
    folder, words = tmp_path / "model", RecurrentConfig(vocabulary=tokenizer().vocabulary, width=4)
    state = build_network(words).state_dict(prefix="trunk.")
    folders.write(folder, words, state)
    tokenizer().save(folder, max_length=64)
    with pytest.raises(FolderError, match=r"is not a transformer\. Use a network such as BERT\.$"):
        suites.run_suite(
            "probes", folder, conll(tmp_path / "conll"), tmp_path / "out", seeds=None, limit=None, overrides=[]
        )
