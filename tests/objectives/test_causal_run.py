"""GPT from text to a folder that transformers opens, judged and fine-tuned; and compiled."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tiny import prepared

from bertsmith.commands import check, pretrain
from bertsmith.errors import FolderError, RecipeError
from bertsmith.inference.load import load
from bertsmith.models.hf import folder as folders
from bertsmith.runs import finetuning, suites, task_recipe
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.train import log

pytestmark = pytest.mark.slow("trains")

RECIPES = Path(__file__).parents[2] / "src" / "bertsmith" / "recipes"
SIZES = ["width=32", "layers=2", "heads=2", "feed_forward=128", "max_length=32"]
SMALL = [*(f"model.{size}" for size in SIZES), "data.max_length=32", "data.batch_tokens=512"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("text"), "bpe")


@pytest.fixture(scope="module")
def finished(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("gpt") / "run"
    changes = [
        f"out={out}",
        f"data.folder={data}",
        "train.steps=60",
        "optimizer.learning_rate=0.01",
        "train.precision=float32",
    ]
    pretrain.pretrain(pretrain.read_recipe(RECIPES / "tiny" / "gpt.toml", [*SMALL, *changes]))
    return out


def test_a_run_learns_and_reports_next_tokens(finished: Path) -> None:
    records = log.read(finished / log.NAME)
    losses = [line["terms"]["next_token"] for line in records if line["kind"] == "step"]
    assert losses[-1] < losses[0] / 2
    page, card = ((finished / name).read_text() for name in ("report.html", "model/README.md"))
    for text in (
        "validation loss of next tokens",
        "next tokens predicted correctly",
        "perplexity",
        "compared with word frequency",
    ):
        assert text in page
        assert text in card
    assert "Loss of next tokens, in nats" in page
    assert "Blanks" not in page
    assert "masked words" not in page
    assert "pipeline_tag: text-generation" in card
    assert 'tags: [bertsmith, "gpt"]' in card
    assert "fill(" not in card
    below = float(card.partition("compared with word frequency | ")[2].split()[0])
    assert 1 < below < 6


@torch.no_grad()
def test_an_exported_model_gives_the_same_outputs_in_transformers(finished: Path) -> None:
    theirs, report = transformers.AutoModelForCausalLM.from_pretrained(finished / "model", output_loading_info=True)
    assert not any(report.values()), report
    assert type(theirs).__name__ == "GPT2LMHeadModel"
    pieces = transformers.AutoTokenizer.from_pretrained(finished / "model")
    text = "the cat sees the dog in the house ."
    ids = torch.tensor([pieces(text)["input_ids"]])
    [scored] = load(finished / "model").score([text])
    assert scored.tokens == ids.shape[1] - 1
    assert scored.log_likelihood == pytest.approx(
        -float(theirs(input_ids=ids, labels=ids).loss) * scored.tokens, rel=1e-5
    )
    assert (
        scored.log_likelihood
        > 2 * load(finished / "model").score(["cat the the in sees . house dog the"])[0].log_likelihood
    )


def test_a_causal_model_fills_no_masks(finished: Path) -> None:
    with pytest.raises(FolderError) as caught:
        load(finished / "model").fill("the <mask> sees")
    remedy = "Blanks need a model pretrained on masked words."
    assert str(caught.value) == f"{finished / 'model'}: has no masked-word head. {remedy}"


def test_minimal_pairs_are_scored_from_left_to_right(finished: Path, tmp_path: Path) -> None:
    pairs = [
        {
            "sentence_good": f"the cat {verb} the dog in the house .",
            "sentence_bad": f"the {verb} cat dog the in house .",
        }
        for verb in ("sees", "likes", "finds")
    ]
    (tmp_path / "order.jsonl").write_text("\n".join(json.dumps(pair) for pair in pairs))
    found = suites.run_suite(
        "blimp", finished / "model", tmp_path, tmp_path / "out", seeds=None, limit=None, overrides=[]
    )
    assert found.figures["accuracy"] == 1.0
    assert found.protocol["score"] == "log-likelihood, left to right"


def tuned(model: Path, folder: Path, *changes: str, task: str | None = None) -> finetuning.FineTune:
    rows = [f"the cat {verb} the dog,{verb}" for verb in ("sees", "likes") for _ in range(16)]
    (folder / "train.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    usual = ["train.device=cpu", "train.precision=float32", "data.batch_size=8", "data.max_length=16", "train.steps=30"]
    where = {"model": model, "data": folder / "train.csv", "out": folder / "tuned", "dev": folder / "train.csv"}
    return task_recipe.build_recipe(
        **where, task=task, seeds=1, overrides=[*usual, "optimizer.learning_rate=0.003", *changes]
    )


@pytest.mark.parametrize("language", [0.0, 0.5])
def test_fine_tuning_pools_the_last_token_and_may_keep_the_lm_loss(
    language: float, finished: Path, tmp_path: Path
) -> None:
    recipe = tuned(finished / "model", tmp_path, f"task.lm_weight={language}")
    assert finetuning.finetune(recipe)["summary"]["accuracy"]["mean"] == 1.0
    steps = [line for line in log.read(tmp_path / "tuned" / "seed-0" / log.NAME) if line["kind"] == "step"]
    for step in steps:
        terms = step["terms"]
        assert terms.keys() == ({"class", "language"} if language else {"class"})
        assert step["loss"] == pytest.approx(terms["class"] + language * terms.get("language", 0), rel=1e-5)
    opened = folders.read(tmp_path / "tuned" / "model")
    assert opened.config_json["architectures"] == ["GPT2ForSequenceClassification"]
    assert opened.finetuned is not None
    assert opened.finetuned.pooling == "last"
    assert "classifier.dense.bias" not in opened.state_dict
    theirs = transformers.pipeline("text-classification", str(tmp_path / "tuned" / "model"))
    texts = ["the cat likes the dog", "the cat sees the dog"]
    assert [one["label"] for one in theirs(texts, batch_size=2)] == ["likes", "sees"]
    assert [one["label"] for one in load(tmp_path / "tuned" / "model").classify(texts)] == ["likes", "sees"]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("task.pooling=first", "task.pooling: transformers' GPT classifies by the last token alone. Use 'last'."),
        ("task.pooling=mean", "task.pooling: transformers' GPT classifies by the last token alone. Use 'last'."),
    ],
)
def test_a_pooling_that_no_folder_can_express_is_refused(
    change: str, line: str, finished: Path, tmp_path: Path
) -> None:
    with pytest.raises(RecipeError) as caught:
        finetuning.finetune(tuned(finished / "model", tmp_path, change))
    assert str(caught.value) == line


def test_a_task_that_transformers_has_no_class_for_is_refused(finished: Path, tmp_path: Path) -> None:
    header, row = "context,ending0,ending1,label", "the cat,sees,likes,0"
    recipe = tuned(finished / "model", tmp_path, task="choose")
    (tmp_path / "train.csv").write_text("\n".join([header, row, row, row]) + "\n")
    with pytest.raises(RecipeError) as caught:
        finetuning.finetune(recipe)
    fact = "transformers has no class for 'choose' with this network"
    assert str(caught.value) == f"task.kind: {fact}. Use classify or tag or answer."


def test_a_run_starts_from_a_folder(finished: Path, data: Path, tmp_path: Path) -> None:
    changes = [f"out={tmp_path}", f"data.folder={data}", "train.steps=2", f"start={finished / 'model'}"]
    pretrain.pretrain(pretrain.read_recipe(RECIPES / "tiny" / "gpt.toml", [*SMALL, *changes]))
    first = next(line for line in log.read(tmp_path / log.NAME) if line["kind"] == "step")
    last = [line for line in log.read(finished / log.NAME) if line["kind"] == "step"][-1]
    assert first["loss"] == pytest.approx(last["loss"], abs=0.5)


@pytest.mark.parametrize("change", ["objective.kind=masked_lm", "model.kind=bert-tiny"])
def test_an_objective_that_does_not_fit_is_refused_before_training(change: str) -> None:
    with pytest.raises(RecipeError, match=r"^objective\.kind: the network is (not )?causal, and "):
        check.check(pretrain.read_recipe(RECIPES / "tiny" / "gpt.toml", [change, "data.cross_documents=false"]))


def test_a_recipe_is_counted(capsys: Any) -> None:
    check.check(pretrain.read_recipe(RECIPES / "tiny" / "gpt.toml", []))
    assert "gpt2: 2 layers of width 128" in capsys.readouterr().out


def test_the_tokenizer_of_a_run_goes_with_it(finished: Path, data: Path) -> None:
    own, other = Tokenizer.load(finished / "model"), Tokenizer.load(data / "tokenizer")
    assert own.for_tasks().fingerprint == other.fingerprint  # but for what is set after a text: a prompt goes on
