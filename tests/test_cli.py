"""The command line: quick help, mistakes in one line, and the whole path from text to a model in a few commands."""

import errno
import json
import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import scripts
import torch
from tiny import prepared, recipe, write_text
from typer.testing import CliRunner

from bertsmith import __version__, cli, config, recipes
from bertsmith.cli import PANELS, app
from bertsmith.commands import pretrain
from bertsmith.errors import RecipeError

VERBS = (
    *("make", "demo", "clean", "tokenizer", "prepare", "pretrain", "check", "list", "fill"),
    *("finetune", "evaluate", "race", "predict", "embed", "score", "search", "generate"),
)


def bertsmith(*arguments: object) -> "subprocess.CompletedProcess[str]":
    return scripts.python("-m", "bertsmith", *map(str, arguments))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder of the made-up language."""
    folder = tmp_path_factory.mktemp("tiny")
    pretrain.pretrain(recipe(prepared(folder), folder / "run", "train.steps=20"))
    return folder / "run" / "model"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_command_that_is_stopped_before_it_trains_says_so(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    number = getattr(signal, name)
    inherited = signal.signal(number, signal.default_int_handler)  # a job in the background ignores SIGINT
    try:
        monkeypatch.setattr(cli, "app", lambda: os.kill(os.getpid(), number))
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert signal.getsignal(number) == signal.default_int_handler
    finally:
        signal.signal(number, inherited)
    assert ended.value.code == 128 + number
    line = f"bertsmith: stopped by {name}. The same command goes on from what it has saved, or begins again.\n"
    assert capsys.readouterr().err == line


def test_help_imports_nothing_heavy() -> None:
    """Importing torch would make help slow; this tests the cause, since times depend on the machine."""
    program = (
        "import sys; sys.argv = ['bertsmith', '--help']\n"
        "from bertsmith.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'torch', 'numpy', 'tokenizers', 'pyarrow'} & set(sys.modules)))"
    )
    answered = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answered.stdout.strip().endswith("[]")
    for verb in VERBS:
        assert verb in answered.stdout


@pytest.mark.slow
def test_help_answers_soon_after_python_itself() -> None:
    """Within twice the processor time of importing Typer and rich alone."""

    def cost(*command: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *command], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    cost("-m", "bertsmith", "--help")  # compiles the modules
    alone = min(cost("-c", "import typer, rich.table, rich.panel, rich.markdown") for _ in range(3))
    assert min(cost("-m", "bertsmith", "--help") for _ in range(3)) < 2 * alone


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["pretrain", "nowhere.toml"], "bertsmith: nowhere.toml: there is no such recipe."),
        (["fill", "nowhere", "a [MASK]"], "bertsmith: nowhere: is missing."),
        (["make", "nowhere.txt", "--out", "{tmp}/x"], "bertsmith: nowhere.txt: "),
        (["make", "{text}", "--out", "{tmp}/y", "--budget", "soon"], "bertsmith: --budget: 'soon' is not a duration."),
        (["prepare", "{text}", "--out", "{tmp}/z", "--tokenizer", "nowhere"], "bertsmith: nowhere"),
        (
            ["tokenizer", "{text}", "--out", "{tmp}/t", "--vocabulary", "7"],
            "bertsmith: tokenizer.vocabulary: 7 tokens are too few",
        ),
        (["tokenizer", "{text}", "--out", "{tmp}/t", "--extend", "nowhere"], "bertsmith: nowhere: does not exist."),
    ],
)
def test_a_mistake_is_one_line_without_a_traceback(arguments: list[str], line: str, tmp_path: Path) -> None:
    text = write_text(tmp_path / "text.txt")
    answered = bertsmith(*(part.format(tmp=tmp_path, text=text) for part in arguments))
    assert answered.returncode == 1
    assert answered.stderr.startswith(line), answered.stderr
    assert answered.stderr.count("\n") == 1


@pytest.mark.slow("it runs commands in processes")
def test_the_path_from_text_to_filled_masks(tmp_path: Path) -> None:
    """tokenizer, prepare, check, pretrain, fill: each as its own command."""
    text = write_text(tmp_path / "text.txt")
    made = bertsmith("tokenizer", text, "--out", tmp_path / "words", "--vocabulary", 120)
    assert made.returncode == 0, made.stderr
    assert "tokens per word" in made.stdout
    shards = bertsmith(
        "prepare", text, "--tokenizer", tmp_path / "words", "--out", tmp_path / "data", "--validation-share", 0.1
    )
    assert shards.returncode == 0, shards.stderr
    path = tmp_path / "recipe.toml"
    path.write_text(config.dump(recipe(tmp_path / "data", tmp_path / "run")))
    checked = bertsmith("check", path)
    assert checked.returncode == 0, checked.stderr
    assert "parameters" in checked.stdout
    assert "40 updates" in checked.stdout
    trained = bertsmith("pretrain", path, "--steps", 10)
    assert trained.returncode == 0, trained.stderr
    filled = subprocess.run(  # in a new process, as a shell starts it
        [sys.executable, "-m", "bertsmith", "fill", str(tmp_path / "run" / "model"), "--json"],
        input="the cat sees the [MASK] in the [MASK] .\n\n", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert filled.returncode == 0, filled.stderr
    answer = json.loads(filled.stdout)
    assert len(answer["blanks"]) == 2
    assert len(answer["blanks"][0]) == 5
    assert "[MASK]" not in answer["best"]


@pytest.mark.exhaustive
@pytest.mark.slow("it runs commands in processes")
def test_continued_pretraining_with_new_tokens(model: Path, tmp_path: Path) -> None:
    """tokenizer --extend, prepare, pretrain start=: a text with words that the model's vocabulary lacks."""
    text = write_text(tmp_path / "text.txt")
    text.write_text(text.read_text().replace("the house", "the lighthouse"))
    made = bertsmith("tokenizer", text, "--extend", model, "--new-tokens", 5, "--out", tmp_path / "words")
    assert made.returncode == 0, made.stderr
    assert "new              lighthouse" in made.stdout
    assert made.stdout.count("tokens per word") == 2
    shards = bertsmith(
        "prepare", text, "--tokenizer", tmp_path / "words", "--out", tmp_path / "data", "--validation-share", 0.1
    )
    assert shards.returncode == 0, shards.stderr
    path = tmp_path / "recipe.toml"
    path.write_text(config.dump(recipe(tmp_path / "data", tmp_path / "run")))
    trained = bertsmith("pretrain", path, f"start={model}", "train.steps=10")
    assert trained.returncode == 0, trained.stderr
    assert "tokens are new; each starts as the mean of its former tokens" in " ".join(trained.stdout.split())
    assert '"lighthouse"' in (tmp_path / "run" / "model" / "tokenizer.json").read_text()
    filled = bertsmith("fill", tmp_path / "run" / "model", "--json", "the cat sees the [MASK] in the lighthouse .")
    assert len(json.loads(filled.stdout)["blanks"][0]) == 5


def test_filled_masks_are_printed_with_probabilities(model: Path) -> None:
    shown = CliRunner().invoke(app, ["fill", str(model), "the king likes the [MASK] in the garden .", "--top-k", "3"])
    assert shown.exit_code == 0, shown.output
    assert "the king likes the [MASK] in the garden ." in shown.output
    assert shown.output.count("%") == 3


def test_the_family_is_listed() -> None:
    shown = CliRunner().invoke(app, ["list"])
    assert shown.exit_code == 0
    assert "bert-large" in shown.output
    assert "335.1 M" in shown.output
    assert re.search(r"^ masked_lm +Masked language modelling", shown.output, re.M)
    assert re.search(r"^ token-classification +A tag for each word.*; also ner, pos$", shown.output, re.M)
    models, *sections = shown.output.split("\n\n" + "Objectives")
    blocks = [[line.split()[0] for line in block.splitlines()] for block in re.split(r"\n +\n", models)]
    assert ["electra-small", "electra-base", "electra-large"] in blocks  # one family after the other
    for section in sections[0].split("\n\n"):
        starts = {re.match(r" \S+ +", line).end() for line in section.splitlines()[1:]}  # type: ignore[union-attr]
        assert len(starts) == 1  # aligned


def test_the_list_names_word2vec_and_every_recipe_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(app, ["list"]).output
    assert "word2vec" in shown
    assert re.search(r"^ bert-tiny +BERT-tiny: 2 layers of width 128, 4 M parameters$", shown, re.M)
    assert re.search(r"^ tiny/bert +BERT on a laptop$", shown, re.M)
    pretraining, seen, tuning = shown.split("Recipes of ")[1:]
    assert all(f"\n {name} " in pretraining + seen + tuning for name in recipes.names())
    assert "\n tiny/mae " in seen
    assert "\n tiny/transformer " in tuning


@pytest.mark.slow
def test_a_recipe_is_found_by_name_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(app, ["check", "bert-tiny"])
    assert shown.exit_code == 0, shown.output
    assert "2 layers of width 128" in shown.output
    data = prepared(tmp_path)
    small = [
        "model.width=32",
        "model.heads=2",
        "data.max_length=32",
        "data.batch_tokens=512",
        "train.steps=2",
        "data.validation_tokens=512",
    ]
    trained = CliRunner().invoke(app, ["pretrain", "tiny/bert", "--data", str(data), "--out", "mine", *small])
    assert trained.exit_code == 0, trained.output
    assert Path("mine/model/model.safetensors").exists()
    Path("bert-tiny").write_text(config.dump(recipe(data, tmp_path / "run")))
    assert pretrain.read_recipe("bert-tiny", []).out == tmp_path / "run"  # a file in the current folder comes first


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("bert-bas", "bert-bas: there is no such recipe. Did you mean 'bert-base'?"),
        ("tiny/brt", "tiny/brt: there is no such recipe. Did you mean 'tiny/bert'?"),
        ("recipes/gpt2.toml", "recipes/gpt2.toml: there is no such recipe. Did you mean 'gpt2'?"),
        ("nothing", "nothing: there is no such recipe. `bertsmith list` shows those that come with it."),
        (".", ".: is a folder. Name a recipe, as bert-base, or a file ending in .toml."),
        ("tiny/transformer", "tiny/transformer: is a recipe for fine-tuning. Use: bertsmith finetune "),
    ],
)
def test_a_missing_recipe_is_refused_in_one_line(name: Any, line: str) -> None:
    with pytest.raises(RecipeError) as caught:
        pretrain.read_recipe(name, [])
    assert str(caught.value).startswith(line)


def test_the_help_is_grouped_into_panels() -> None:
    shown = CliRunner().invoke(app, ["--help"]).output
    positions = [shown.index(f"─ {title} ─") for title in PANELS]
    assert positions == sorted(positions)
    assert shown.count("─ Commands ─") == 0


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "files: more are open than this system allows. Use fewer"),
        (RuntimeError("unable to open shared memory: Too many open files"), "files: more are open than this system"),
        (
            MemoryError(),
            "memory: not enough. Use smaller batches (data.batch_tokens=, data.batch_size=), shorter",
        ),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), "memory: not enough. "),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), "GPU memory: not enough. "),
    ],
)
def test_exhausted_resources_are_reported_in_one_line(
    error: Exception, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit, match="1"):
        cli.main()
    said = capsys.readouterr().err
    assert said.startswith(f"bertsmith: {line}")
    assert said.count("\n") == 1


def test_a_bug_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("a shape that does not fit")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(RuntimeError, match="a shape that does not fit"):
        cli.main()


def test_the_version_is_printed() -> None:
    assert CliRunner().invoke(app, ["--version"]).output == f"bertsmith {__version__}\n"


@pytest.mark.slow("it runs commands in processes")
def test_make_goes_from_text_to_a_model_and_a_second_call_is_done_at_once(tmp_path: Path) -> None:
    text = write_text(tmp_path / "text.txt", documents=300)
    made = bertsmith("make", text, "--budget", "10s", "--out", tmp_path / "mine")
    assert made.returncode == 0, made.stderr
    assert "why: vocabulary" in made.stdout
    assert "why: smith-tiny" in made.stdout
    assert "by Muon, falling to zero at the end" in made.stdout
    for name in ("recipe.toml", "log.jsonl", "report.html", "model/model.safetensors", "model/tokenizer.json"):
        assert (tmp_path / "mine" / name).exists(), name
    lines = (tmp_path / "mine" / "log.jsonl").read_text().count("\n")
    again = bertsmith("make", text, "--budget", "10s", "--out", tmp_path / "mine")
    assert again.returncode == 0, again.stderr
    assert "this run is finished, its budget of 10 s is spent. A longer --budget continues it" in again.stdout
    assert (tmp_path / "mine" / "log.jsonl").read_text().count("\n") == lines
    other = bertsmith("make", write_text(tmp_path / "other.txt", documents=200), "--out", tmp_path / "mine")
    assert other.returncode == 1
    assert "other text" in other.stderr


@pytest.mark.slow("it runs commands in processes")
def test_a_budget_too_short_for_the_text_is_refused_and_the_prepared_text_kept(tmp_path: Path) -> None:
    text = write_text(tmp_path / "text.txt", documents=50)
    made = bertsmith("make", text, "--budget", "2s", "--out", tmp_path / "mine")
    assert made.returncode == 1
    assert "left 0 s for training. Give it a longer --budget; the prepared text is kept." in made.stderr
    assert (tmp_path / "mine" / "data" / "train" / "index.json").exists()


@pytest.mark.slow("it runs commands in processes")
def test_source_code_is_skipped_and_reported_or_read_as_text(tmp_path: Path) -> None:
    texts = tmp_path / "texts"  # a separate folder: the output is text, too
    texts.mkdir()
    (texts / "a.txt").write_text("the king likes the queen\n" * 3)
    (texts / "b.py").write_text("def unmistakable():\n    return 1\n" * 3)
    command = ["tokenizer", str(texts), "--vocabulary", "200", "--out"]
    shown = CliRunner().invoke(app, [*command, str(tmp_path / "one")])
    assert "skipped: 1 .py (not a text format: add --as text)" in shown.output
    read_as = ["--as", "text"]
    assert CliRunner().invoke(app, [*command, str(tmp_path / "two"), *read_as]).exit_code == 0
    code = ['"(": ' in (tmp_path / name / "tokenizer.json").read_text() for name in ("one", "two")]
    assert code == [False, True]


def test_options_are_overrides_of_the_recipe_and_a_later_override_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    from bertsmith.commands import finetune as command

    given: list[list[str]] = []
    monkeypatch.setattr(command, "finetune", lambda *_, overrides, **__: given.append(overrides))
    words = ["--epochs", "5", "--batch-size", "16", "--learning-rate", "3e-5", "train.epochs=2"]
    found = CliRunner().invoke(app, ["finetune", "model", "data.csv", "--out", "run", *words])
    assert found.exit_code == 0
    assert given == [
        ["train.epochs=5.0", "data.batch_size=16", "optimizer.learning_rate=3e-05", "train.epochs=2"],
    ]
