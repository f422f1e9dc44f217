"""LSTMs that translate, from the command to the picture: recipes, folders, goings-on and refusals."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from letters import letters
from typer.testing import CliRunner

import bertsmith
from bertsmith import config
from bertsmith.cli import app
from bertsmith.errors import FolderError
from bertsmith.inference.model import Model
from bertsmith.inference.translate import align
from bertsmith.models.family import TRANSFORMER_TINY, member
from bertsmith.models.hf import folder as folders
from bertsmith.models.networks import build_network
from bertsmith.models.seq2seq import Seq2Seq, Seq2SeqConfig
from bertsmith.recipe import FineTune
from bertsmith.runs import finetuning, task_recipe
from bertsmith.tasks.text_to_text import TextToText
from bertsmith.text.tokenizer import Tokenizer

pytestmark = pytest.mark.slow("trains")

ROOT = Path(__file__).resolve().parents[2] / "src" / "bertsmith" / "recipes"
RECIPES = [ROOT / "seq2seq-multi30k.toml", ROOT / "seq2seq-multi30k-plain.toml", ROOT / "tiny" / "seq2seq.toml"]
SIDES = ['data.texts=["src"]', "data.label=tgt"]
QUICK = [
    "train.device=cpu",
    "train.precision=float32",
    "train.checkpoints=0",
    "data.workers=1",
    "data.max_length=12",
    "data.batch_size=8",
    "task.max_new_tokens=8",
    "network.width=16",
    "network.hidden=24",
    "network.max_length=16",
    "tokenizer.kind=t5",
    "tokenizer.vocabulary=200",
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return letters(tmp_path_factory.mktemp("letters"), 60, 10)


def asked(model: str, data: Path, out: Path, *changes: str) -> FineTune:
    return task_recipe.build_recipe(Path(model), data, out, dev=None, task=None, seeds=1, overrides=[*SIDES, *changes])


@pytest.fixture(scope="module")
def runs(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both kinds of LSTMs, hardly taught, and the first of them a second time."""
    place = tmp_path_factory.mktemp("runs")
    members = {"attention": "lstm-attention", "again": "lstm-attention", "plain": "seq2seq"}
    for name, kind in members.items():
        finetuning.finetune(asked(kind, data, place / name, *QUICK, "train.steps=3"))
    return {name: place / name for name in members}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_read_and_built_and_written_again(path: Path, tmp_path: Path) -> None:
    recipe = config.read(path, FineTune)
    assert recipe.network is not None
    with torch.device("meta"):
        trunk = build_network(recipe.network.settings)
        assert isinstance(trunk, Seq2Seq)
        TextToText(trunk, recipe.task.settings)
    (tmp_path / "again.toml").write_text(config.dump(recipe))
    assert config.read(tmp_path / "again.toml", FineTune) == recipe


def test_the_recipes_with_and_without_attention_differ_in_nothing_else() -> None:
    one, other = (config.read(path, FineTune) for path in RECIPES[:2])
    assert one.network is not None
    assert other.network is not None
    assert replace(one.network.settings, attention="none") == other.network.settings
    assert replace(one, out=other.out, network=other.network) == other


def test_a_member_is_trained_from_scratch(data: Path, tmp_path: Path) -> None:
    recipe = asked("lstm-attention", data, tmp_path)
    assert recipe.network is not None
    assert (recipe.model, recipe.network.settings) == (None, member("lstm-attention"))
    assert (recipe.task.kind, recipe.task.settings.translation) == ("write", True)


def test_a_run_writes_a_folder_with_bertsmiths_own_names(runs: dict[str, Path]) -> None:
    folder = runs["attention"] / "model"
    opened, model = folders.read(folder), bertsmith.load(folder)
    assert isinstance(opened.config, Seq2SeqConfig)
    assert (opened.config_json["model_type"], opened.config_json["network"]) == ("bertsmith", "seq2seq")
    assert (opened.config.width, opened.config.hidden, opened.config.attention) == (16, 24, "bilinear")
    assert opened.config.vocabulary == model.tokenizer.vocabulary
    assert isinstance(model.objective, TextToText)
    assert len(model.translate(["same a b", "", "back c"], num_beams=2)) == 3
    assert model.predict(["same a b"])[0].keys() == {"text"}


def test_the_same_run_twice_is_the_same(runs: dict[str, Path]) -> None:
    one, other = (folders.read(runs[name] / "model").state_dict for name in ("attention", "again"))
    assert one.keys() == other.keys()
    assert all(torch.equal(other[name], weight) for name, weight in one.items())


def test_a_folder_is_trained_further(runs: dict[str, Path], data: Path, tmp_path: Path) -> None:
    changes = [change for change in QUICK if not change.startswith(("network", "tokenizer"))]
    folder = str(runs["attention"] / "model")
    again = asked(folder, data, tmp_path, *changes, "train.steps=1", "task.translation=true", "dropout=0.1")
    assert (again.network, again.task.kind) == (None, "write")
    assert finetuning.finetune(again)["headline"] == "bleu"


def test_a_translation_is_the_same_alone_and_in_a_batch(runs: dict[str, Path]) -> None:
    model = bertsmith.load(runs["attention"] / "model")
    texts = ["same a b c", "back d", "same e e", "back a b c d", "same b"]
    for beams in (1, 4):
        together = model.translate(texts, num_beams=beams)
        assert [model.translate([text], num_beams=beams)[0] for text in texts] == together


# -------------------------------------------------------------------------------------------------- alignment


def test_an_alignment_has_a_row_for_each_generated_token(runs: dict[str, Path]) -> None:
    model = bertsmith.load(runs["attention"] / "model")
    found = model.translate("same a b c", full=True)
    looks = model.align(found)
    assert looks.weights.shape == (len(found.token_ids) + 1, len(looks.source))
    assert looks.weights.shape == (len(looks.target), len(looks.source))
    np.testing.assert_allclose(looks.weights.sum(1), 1, atol=1e-5)
    assert looks.source[-1] == looks.target[-1] == "</s>"


def test_a_transformer_aligns_by_the_mean_of_its_last_heads(runs: dict[str, Path]) -> None:
    tokenizer = Tokenizer.load(runs["attention"] / "model")
    sizes = {"width": 16, "layers": 1, "decoder_layers": 2, "heads": 2, "feed_forward": 24, "max_length": 16}
    torch.manual_seed(0)
    trunk = build_network(replace(TRANSFORMER_TINY, vocabulary=tokenizer.vocabulary, **sizes))
    task = TextToText(trunk, TextToText.Config(translation=True, max_new_tokens=6)).eval()
    found = Model(task, tokenizer, "here").translate("same a b c", full=True)
    looks = align(task, tokenizer, found)
    assert looks is not None
    assert looks.weights.shape == (len(found.token_ids) + 1, len(looks.source))
    np.testing.assert_allclose(looks.weights.sum(1), 1, atol=1e-5)


def test_the_command_draws_the_alignment_of_its_translation(runs: dict[str, Path], tmp_path: Path) -> None:
    folder, page = str(runs["attention"] / "model"), tmp_path / "page.html"
    asked = ["translate", folder, "--alignment", str(page)]
    result = CliRunner().invoke(app, asked, input="same a b\n\nback c\n")
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == 3
    assert page.read_text(encoding="utf-8").count("<svg") == 2
    wrong = CliRunner().invoke(app, [*asked[:-1], str(tmp_path / "page.jpg")], input="same a\n")
    assert "has the unknown ending '.jpg'. Use .html or .png." in str(wrong.exception)
    assert wrong.stdout == ""


# --------------------------------------------------------------------------------------------------- refusals


def test_a_network_without_attention_has_no_alignment(runs: dict[str, Path], tmp_path: Path) -> None:
    folder = runs["plain"] / "model"
    asked = ["translate", str(folder), "--alignment", str(tmp_path / "page.html")]
    line = f"{folder}: has no attention, and so no alignment. Take a model such as lstm-attention."
    assert str(CliRunner().invoke(app, asked, input="same a\n").exception) == line


def test_texts_have_no_vectors_here(runs: dict[str, Path]) -> None:
    with pytest.raises(FolderError, match=r"gives no vectors of texts\. Take a network such as BERT's\."):
        bertsmith.load(runs["plain"] / "model").embed(["same a"])


def test_a_folder_without_its_task_is_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    opened = folders.read(runs["plain"] / "model")
    folders.write(tmp_path, opened.config, opened.state_dict)
    Tokenizer.load(runs["plain"] / "model").save(tmp_path)
    remedy = "Fine-tune it first: bertsmith finetune lstm-attention DATA --out runs/translation."
    with pytest.raises(FolderError) as caught:
        bertsmith.load(tmp_path)
    fact = "does not name the task of the network"
    assert str(caught.value) == f"{tmp_path / 'config.json'}: {fact}. {remedy}"
