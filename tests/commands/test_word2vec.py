"""Word vectors on the command line: training, queries, resuming, and mistakes in one line."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bertsmith.cli import app
from bertsmith.commands import word2vec
from bertsmith.errors import BertsmithError
from bertsmith.models import word_vectors

TEXT = "The king sat on the throne.\nThe queen sat on the throne.\nA man ate bread.\nA woman ate bread.\n\n" * 60


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("words")
    (folder / "text.txt").write_text(TEXT)
    run(folder, "--text")
    return folder


def run(folder: Path, *more: str) -> str:
    arguments = ["word2vec", str(folder / "text.txt"), "--out", str(folder / "run"), "--width", "8", "--epochs", "2"]
    answered = CliRunner().invoke(app, [*arguments, *more], catch_exceptions=False)
    assert answered.exit_code == 0
    return answered.stdout


def asked(*arguments: object) -> list[dict[str, object]]:
    answered = CliRunner().invoke(app, [*map(str, arguments), "--json"], catch_exceptions=False)
    return [json.loads(line) for line in answered.stdout.splitlines()]


def test_word_vectors_are_trained_and_queried(made: Path) -> None:
    places = [made / "run" / "model", made / "run" / "model" / "vectors.bin", made / "run" / "vectors.txt"]
    answers = [asked("similar", place, "king", "Queen", "--top-k", 3) for place in places]
    assert answers[0] == answers[1] == answers[2] == asked("search", places[0], "king", "Queen", "--top-k", 3)
    assert answers[0] == asked("search", made / "run", "king", "Queen", "--top-k", 3)  # the folder of the run
    assert [len(one["found"]) for one in answers[0]] == [3, 3]  # type: ignore[arg-type]
    (answer,) = asked("analogy", places[0], "king", "man", "woman", "--top-k", 2, "--method", "multiply")
    assert len(answer["found"]) == 2  # type: ignore[arg-type]
    assert word_vectors.read(places[2]).words[:2] == ["the", "sat"]


def test_scores_are_printed_as_text_and_as_json(made: Path) -> None:
    (made / "pairs").write_text("king queen 9\nking bread 1\nking emperor 8\n")
    (made / "asked").write_text(": royal\nman king woman queen\nman king woman empress\n")
    model = made / "run" / "model"
    (found,) = asked("similar", model, "--pairs", made / "pairs")
    assert (found["found"], found["pairs"]) == (2, 3)
    (found,) = asked("analogy", model, "--questions", made / "asked")
    assert (found["found"], found["questions"]) == (1, 2)
    for verb, option, line in (("similar", "pairs", "over 2 of 3 pairs"), ("analogy", "questions", "1 of 2 questions")):
        name = "asked" if option == "questions" else option
        shown = CliRunner().invoke(app, [verb, str(model), f"--{option}", str(made / name)], catch_exceptions=False)
        assert line in shown.stdout


def test_a_finished_run_is_not_repeated_and_another_recipe_is_refused(made: Path) -> None:
    before = (made / "run" / "model" / "vectors.bin").read_bytes()
    assert "resuming from step" in run(made)
    assert (made / "run" / "model" / "vectors.bin").read_bytes() == before
    with pytest.raises(BertsmithError, match=r"was begun with another recipe: sampling\.window was 5, is 3"):
        run(made, "--window", "3")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"model": {"width": 0}}, "word2vec [model]: width is 0. Give 1 to 65536."),
        ({"sampling": {"window": 0}}, "word2vec [sampling]: window is 0. Give 1 to 100."),
        ({"train": {"epochs": 1.0, "budget": "1m"}}, "word2vec [train]: give one of epochs and budget, not both."),
        ({"train": {"budget": "soon"}}, "word2vec [train]: 'soon' is not a duration."),
    ],
)
def test_wrong_options_are_refused_in_one_line(options: dict[str, object], line: str) -> None:
    with pytest.raises(BertsmithError) as caught:
        word2vec.build_recipe(Path("out"), **options)
    assert str(caught.value).startswith(line)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["analogy", "{model}", "king", "man"],
            "words: an analogy has 3 words, not 2. For example: king man woman.",
        ),
        (["analogy", "{model}"], "words: none are given. Give some, or a file: bertsmith analogy --questions FILE."),
        (["similar", "{model}"], "words: none are given. Give some, or a file: bertsmith similar --pairs FILE."),
        (["similar", "{model}", "kingg"], "'kingg': is none of the 11 words that have a vector. Did you mean 'king'?"),
        (["similar", "{text}", "king"], "does not begin with the number of its vectors and of their numbers."),
        (["similar", "nowhere", "king"], "nowhere: is missing."),
        (
            ["search", "{other}", "king"],
            "Search texts with --corpus FILE, or make word vectors with bertsmith word2vec.",
        ),
        (
            ["word2vec", "{text}", "--out", "{out}", "--min-count", "1000"],
            "text: 0 of its 11 words occur 1000 times.",
        ),
    ],
)
def test_a_mistake_is_one_line(made: Path, tmp_path: Path, arguments: list[str], line: str) -> None:
    places = {"model": made / "run" / "model", "text": made / "text.txt", "out": tmp_path / "out"}
    places["other"] = tmp_path / "other"
    places["other"].mkdir()
    (places["other"] / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(BertsmithError) as caught:
        CliRunner().invoke(app, [part.format(**places) for part in arguments], catch_exceptions=False)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)
