"""ELECTRA's networks and tasks against transformers."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import transformers
from models.small import refusal
from parity.members import KINDS, ROWS, assert_masked_words, assert_task, padded
from parity.parity import MOST, count, difference
from tasks.small import WORDS, shape, stirred
from tiny import prepared

from bertsmith.commands import check, pretrain
from bertsmith.data.batch import Tokens
from bertsmith.errors import FolderError, RecipeError
from bertsmith.inference.load import load
from bertsmith.models.family import FAMILY, member
from bertsmith.models.hf import convert
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf.layouts import layout_of
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.objectives.replaced import ReplacedTokenDetection, generator_config
from bertsmith.runs import finetuning, task_recipe
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train
from bertsmith.train import log

pytestmark = pytest.mark.slow("trains and fine-tunes")

MEMBERS = [name for name in FAMILY if name.startswith("electra-")]
RECIPES = Path(__file__).parents[2] / "src" / "bertsmith" / "recipes"
SEGMENTS = [[int(place >= len(row) // 2) for place in range(len(row))] for row in ROWS]


@cache
def tokenizer() -> Tokenizer:
    return train([" ".join(WORDS)] * 3, TokenizerConfig(vocabulary=120, min_frequency=1))


def electra(**changes: Any) -> TransformerConfig:
    return shape(**{"embedding_width": 12, "pooler": "gelu", "vocabulary": tokenizer().vocabulary, **changes})


@pytest.mark.parametrize("name", MEMBERS)
def test_a_member_counts_as_many_parameters_as_in_transformers(name: str) -> None:
    with torch.device("meta"):
        reference = transformers.ElectraModel(transformers.ElectraConfig(**convert.to_config_json(member(name), ())))
    assert count(reference) == member(name).parameter_count


@torch.no_grad()
@pytest.mark.parametrize("embedding_width", [0, 12, 48])
def test_judging_both_ways(embedding_width: int, tmp_path: Path) -> None:
    """Random weights of transformers, opened here and written back, judge the same all the way."""
    config = electra(embedding_width=embedding_width)
    words = convert.to_config_json(config, ("discriminator",))
    reference = stirred(transformers.ElectraForPreTraining(transformers.ElectraConfig(**words)))
    reference.save_pretrained(tmp_path / "theirs")
    opened = folders.read(tmp_path / "theirs")
    assert (opened.config, opened.parts, opened.finetuned) == (config, {"discriminator"}, None)
    ours = ReplacedTokenDetection(Transformer(config), ReplacedTokenDetection.Config()).eval()
    assert not ours.load_state_dict(opened.state_dict, strict=False).unexpected_keys
    assert count(ours.trunk) + count(ours.discriminator) == count(reference)
    inputs = padded(ROWS, 0, SEGMENTS)
    said = reference(**inputs, output_hidden_states=True)
    states = ours.trunk.hidden_states(Tokens.from_rows(ROWS, SEGMENTS))
    lengths = [len(row) for row in ROWS]
    for own, theirs in zip(states, said.hidden_states, strict=True):
        cut = torch.cat([row[:length] for row, length in zip(theirs, lengths, strict=True)])
        assert difference([own], [cut]) <= MOST
    logits = torch.cat([row[:length] for row, length in zip(said.logits, lengths, strict=True)])
    assert difference([ours.discriminator(states[-1])], [logits]) <= MOST
    assert logits.abs().max() > 0.1
    kept = {name: weight for name, weight in ours.state_dict().items() if name.startswith(("trunk.", "discriminator."))}
    folders.write(tmp_path / "ours", config, kept)
    again, report = transformers.AutoModelForPreTraining.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    assert difference([again.eval()(**inputs).logits], [said.logits]) <= MOST


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_the_generator_guesses_words_both_ways(share: float, tmp_path: Path) -> None:
    assert_masked_words(generator_config(electra(), share), tmp_path)


@pytest.mark.parametrize("name", KINDS)
def test_tasks_both_ways(name: str, tmp_path: Path) -> None:
    assert_task(name, electra(), tokenizer(), tmp_path)


def test_tasks_of_a_network_as_wide_as_its_tables_both_ways(tmp_path: Path) -> None:
    assert_task("class", electra(embedding_width=0), tokenizer(), tmp_path)


@torch.no_grad()
def test_a_bare_network_both_ways(tmp_path: Path) -> None:
    trunk = stirred(Transformer(electra()))
    folders.write(tmp_path, trunk.config, {f"trunk.{name}": weight for name, weight in trunk.state_dict().items()})
    again, report = transformers.AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert (type(again).__name__, any(report.values())) == ("ElectraModel", False)
    said = again(**padded(ROWS[1:2], 0)).last_hidden_state[0]
    assert difference([trunk(Tokens.from_rows(ROWS[1:2]))], [said]) <= MOST
    again.save_pretrained(tmp_path / "theirs")
    assert folders.read(tmp_path / "theirs").config == trunk.config


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("electra-small", (64, 1, 256)), ("electra-base", (256, 4, 1024)), ("electra-large", (256, 4, 1024))],
)
def test_generators_are_as_large_as_published(name: str, sizes: tuple[int, ...]) -> None:
    """The paper's table 6; base and large as the published generators are."""
    share = pretrain.read_recipe(RECIPES / f"{name}.toml", []).objective.settings.generator_size
    shape = generator_config(member(name), share)
    assert (shape.width, shape.heads, shape.feed_forward) == sizes
    assert (shape.layers, shape.embedding_width) == (member(name).layers, member(name).table)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ({"hidden_act": "gelu_new"}, "hidden_act is 'gelu_new'. Only 'gelu' can be opened."),
        ({"summary_type": "mean"}, "summary_type is 'mean'. Only 'first' can be opened."),
        ({"summary_activation": "tanh"}, "summary_activation is 'tanh'. Only 'gelu' can be opened."),
        ({"summary_use_proj": False}, "summary_use_proj is False. Only True can be opened."),
        ({"embedding_size": -1}, "embedding_size is -1. Give a whole number."),
    ],
)
def test_words_that_are_not_understood_are_refused(words: dict[str, Any], line: str, tmp_path: Path) -> None:
    assert refusal(saved(tmp_path / "model", **words)) == f"F/config.json: {line}"


def test_tables_of_another_width_are_refused(tmp_path: Path) -> None:
    name = "electra.embeddings.word_embeddings.weight"
    fact = f"'{name}' has shape [{tokenizer().vocabulary}, 12] where config.json says"
    for size, wanted in ((16, 16), (32, 32), (0, 32)):
        folder = saved(tmp_path / str(size), embedding_size=size)
        assert refusal(folder) == f"F/model.safetensors: {fact} [{tokenizer().vocabulary}, {wanted}]."


def test_weights_that_do_not_belong_are_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    lacking = {name: one for name, one in tensors.items() if name != "discriminator_predictions.dense.bias"}
    safetensors.torch.save_file(lacking, folder / "model.safetensors")
    assert refusal(folder) == "F: lacks the weight 'discriminator_predictions.dense.bias'."
    safetensors.torch.save_file(tensors | {"cls.bias": torch.zeros(1)}, folder / "model.safetensors")
    assert refusal(folder).startswith("F: unknown weight 'cls.bias'.")


def saved(folder: Path, **words: Any) -> Path:
    """A judge's folder with some words of config.json changed."""
    ours = ReplacedTokenDetection(Transformer(electra()), ReplacedTokenDetection.Config())
    kept = {name: weight for name, weight in ours.state_dict().items() if name.startswith(("trunk.", "discriminator."))}
    folders.write(folder, ours.trunk.config, kept, words)
    return folder


@pytest.mark.parametrize(
    "changes", [{"embedding_width": 32}, {"activation": "gelu_tanh"}, {"norm_position": "pre"}, {"position_offset": 2}]
)
def test_a_network_that_transformers_has_no_words_for_is_refused(changes: dict[str, Any]) -> None:
    [(name, value)] = changes.items()
    line = rf"^model: no class of transformers is a network with {name} = {value}; the nearest, electra, has {name} = "
    with pytest.raises(RecipeError, match=line):
        layout_of(electra(**changes))


def test_a_generator_that_could_not_be_saved_is_refused_before_training() -> None:
    recipe = pretrain.read_recipe(RECIPES / "electra-base.toml", ["model.kind=roberta-base"])
    with pytest.raises(RecipeError, match=r"^model: no class of transformers is a network with position_offset = 2; "):
        check.check(recipe)


def test_bert_can_learn_to_judge_too() -> None:
    shape = generator_config(member("bert-base"), 1 / 3)
    assert layout_of(member("bert-base")).model_type == "bert"
    assert layout_of(shape).model_type == "electra"
    assert replace(shape, pooler="tanh", embedding_width=0) == replace(
        member("bert-base"), width=256, heads=4, feed_forward=1024
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("electra")
    sizes = ["width=32", "embedding_width=16", "layers=2", "heads=2", "feed_forward=64", "max_length=32"]
    changes = [f"model.{size}" for size in sizes] + ["data.max_length=32", "data.batch_tokens=512", "train.steps=6"]
    changes += [f"out={folder / 'run'}", f"data.folder={prepared(folder)}", "objective.generator_size=0.5"]
    pretrain.pretrain(pretrain.read_recipe(RECIPES / "electra-small.toml", changes))
    return folder / "run"


def test_a_run_leaves_a_judge_and_a_generator_that_transformers_opens(finished: Path) -> None:
    for name, kind in (("model", "ElectraForPreTraining"), ("generator", "ElectraForMaskedLM")):
        opened = transformers.AutoModelForPreTraining if name == "model" else transformers.AutoModelForMaskedLM
        again, report = opened.from_pretrained(finished / name, output_loading_info=True)
        assert not any(report.values()), report
        assert type(again).__name__ == kind
        assert json.loads((finished / name / "config.json").read_text())["architectures"] == [kind]
    judge, generator = (folders.read(finished / name) for name in ("model", "generator"))
    assert (judge.config.width, generator.config.width) == (32, 16)
    for table in (
        "embedding.weight",
        "positions.weight",
        "segments.weight",
        "embedding_norm.weight",
        "embedding_norm.bias",
    ):
        assert torch.equal(judge.state_dict[f"trunk.{table}"], generator.state_dict[f"trunk.{table}"])


def test_the_generator_fills_blanks_as_in_transformers_and_the_judge_says_why_it_does_not(finished: Path) -> None:
    theirs = transformers.pipeline("fill-mask", str(finished / "generator"))
    text = "the cat [MASK] the dog in the house ."
    [found] = load(finished / "generator").fill(text, 3).blanks
    shares = [guess.probability / one["score"] for guess, one in zip(found, theirs(text, top_k=3), strict=True)]
    assert shares == pytest.approx([shares[0]] * 3, rel=1e-5)  # ours are shares of what is no special piece
    with pytest.raises(FolderError) as caught:
        load(finished / "model").fill(text)
    remedy = "Blanks need a model pretrained on masked words, as an ELECTRA's generator is."
    assert str(caught.value) == f"{finished / 'model'}: has no masked-word head. {remedy}"


def test_fine_tuning_opens_the_judge_and_keeps_what_it_has_learnt(finished: Path, tmp_path: Path) -> None:
    rows = [f"the cat {verb} the dog,{verb}" for verb in ("sees", "likes") for _ in range(16)]
    (tmp_path / "train.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    overrides = [
        "train.device=cpu",
        "train.precision=float32",
        "data.batch_size=8",
        "data.max_length=16",
        "train.steps=30",
    ]
    recipe = task_recipe.build_recipe(
        finished / "model",
        tmp_path / "train.csv",
        tmp_path / "tuned",
        dev=tmp_path / "train.csv",
        task=None,
        seeds=1,
        overrides=[*overrides, "optimizer.learning_rate=0.003"],
    )
    assert finetuning.finetune(recipe)["summary"]["accuracy"]["mean"] == 1.0
    named = json.loads((tmp_path / "tuned" / "model" / "config.json").read_text())["architectures"]
    assert named == ["ElectraForSequenceClassification"]
    theirs = transformers.pipeline("text-classification", str(tmp_path / "tuned" / "model"))
    assert theirs("the cat likes the dog")[0]["label"] == "likes"


def test_a_run_tells_how_many_tokens_were_judged_right(finished: Path) -> None:
    figures = [line for line in log.read(finished / log.NAME) if line["kind"] == "validation"][-1]
    assert 0 <= figures["replaced_found"] <= 1
    assert figures["loss"] == pytest.approx(figures["masked_loss"] + 50 * figures["replaced_loss"])
    step = [line for line in log.read(finished / log.NAME) if line["kind"] == "step"][-1]
    assert step["loss"] == pytest.approx(step["terms"]["masked"] + 50 * step["terms"]["replaced"])
    page, card, other = (
        (finished / name).read_text() for name in ("report.html", "model/README.md", "generator/README.md")
    )
    for metric in ("tokens classified correctly", "replaced tokens found"):
        assert metric in page
        assert metric in card
    assert "Loss of replaced-token detection, in nats" in page
    assert "random guessing" not in page
    assert "bertsmith finetune this/folder" in card
    assert "fill(" not in card
    assert "fill(" in other
