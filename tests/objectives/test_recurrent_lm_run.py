"""A recurrent language model from text to a folder: learnt, killed and resumed, opened, and written with."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import prepared

from bertsmith import config
from bertsmith.commands import pretrain
from bertsmith.data.batch import Tokens
from bertsmith.errors import FolderError, RecipeError
from bertsmith.inference.load import load
from bertsmith.inference.model import Model
from bertsmith.objectives.recurrent_lm import RecurrentLM
from bertsmith.recipe import Recipe
from bertsmith.train import checkpoint, log

pytestmark = pytest.mark.slow("trains")

PROMPTS = ["the cat", "the queen likes the", "a"]


def small(data: Path, out: Path, *changes: str) -> Recipe:
    """A recipe of seconds: eight streams, each batch sixteen tokens further."""
    values: dict[str, Any] = {
        "out": str(out),
        "model": {
            "kind": "lstm-small",
            "width": 32,
            "tie_embeddings": True,
            "layer_dropout": 0.1,
            "weight_dropout": 0.1,
        },
        "objective": {"kind": "recurrent_lm"},
        "data": {"folder": str(data), "max_length": 16, "batch_tokens": 128, "workers": 1},
        "optimizer": {"learning_rate": 0.01},
        "train": {"steps": 40, "precision": "float32", "evaluations": 2, "checkpoints": 10, "compile": "never"},
    }
    return config.build(config.override(values, changes), Recipe, "onward.toml")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("text"), "words")


@pytest.fixture(scope="module")
def finished(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("lstm") / "run"
    pretrain.pretrain(small(data, out, "train.steps=200", "train.checkpoints=1", "optimizer.learning_rate=0.02"))
    return out


@pytest.fixture(scope="module")
def model(finished: Path) -> Model:
    return load(finished / "model")


def test_a_run_learns_and_reports_it(finished: Path) -> None:
    records = log.read(finished / log.NAME)
    losses = [line["terms"]["next_token"] for line in records if line["kind"] == "step"]
    assert losses[-1] < losses[0] / 2
    page, card = ((finished / name).read_text() for name in ("report.html", "model/README.md"))
    assert "Gradient flow through time" in page
    for text in ("validation loss of next tokens", "perplexity", "compared with word frequency"):
        assert text in page
        assert text in card
    assert "perplexity per word" not in page  # every piece is a word
    assert "Generated text" in page
    assert 'library_name: bertsmith\npipeline_tag: text-generation\ntags: [bertsmith, "recurrent network"]' in card
    assert "transformers has no class for it" in card


def test_a_run_on_subwords_reports_perplexity_per_word(tmp_path: Path) -> None:
    pretrain.pretrain(small(prepared(tmp_path, "wordpiece"), tmp_path / "run", "train.steps=2"))
    assert "perplexity per word" in (tmp_path / "run" / "report.html").read_text()


def test_micro_batches_are_read_in_sequence(data: Path, tmp_path: Path) -> None:
    """Two in an update go on from each other, as two updates would."""
    torch.manual_seed(0)
    plain = small(data, tmp_path / "run", "train.steps=4", "train.gradient_accumulation=2", "objective.state_reset=0.0")
    pretrain.pretrain(plain)
    found = checkpoint.load_newest(plain.out / "checkpoints")
    assert found is not None
    assert found[0].state["position"] == 8


def test_a_folder_opens_with_the_same_weights(finished: Path, model: Model) -> None:
    said = json.loads((finished / "model" / "config.json").read_text())
    assert (said["model_type"], said["network"], said["cell"]) == ("bertsmith", "recurrent", "lstm")
    assert isinstance(model.objective, RecurrentLM)
    found = checkpoint.load_newest(finished / "checkpoints")
    assert found is not None
    for name, weight in model.objective.trunk.state_dict().items():
        assert torch.equal(weight, found[0].tensors["model"][f"trunk.{name}"]), name


def plainly(model: Model, prompt: str, most: int) -> list[int]:
    """The likeliest token after the likeliest token, everything read anew each time."""
    tokenizer = model.tokenizer
    row = [tokenizer.start_id, *tokenizer.encode([prompt])[0]]
    written: list[int] = []
    for _ in range(most):
        with torch.no_grad():
            scores = model.objective.logits(model.trunk(Tokens.from_rows([row + written]))[-1:])[0]
        scores[tokenizer.unknown_id] = -torch.inf
        if int(scores.argmax()) == tokenizer.stop_id:
            break
        written.append(int(scores.argmax()))
    return written


def test_generating_from_a_state_equals_generating_from_the_whole_text(model: Model) -> None:
    found = model.generate(PROMPTS, temperature=0, max_new_tokens=20)
    for prompt, text in zip(PROMPTS, found, strict=True):
        assert text.startswith(prompt)
        assert model.tokenizer.encode([text[len(prompt) :]])[0] == plainly(model, prompt, 20)


@pytest.mark.parametrize("how", [{"temperature": 0.9, "samples": 2}, {"num_beams": 3}, {"temperature": 0}])
def test_other_texts_do_not_change_a_generated_text(model: Model, how: dict[str, Any]) -> None:
    together = model.generate(PROMPTS, full=True, max_new_tokens=12, **how)
    for prompt, one in zip(PROMPTS, together, strict=True):
        assert model.generate(prompt, full=True, max_new_tokens=12, **how).texts == one.texts


def test_a_wide_beam_finds_what_is_likelier_than_the_greedy_text(model: Model) -> None:
    tokenizer = model.tokenizer

    def likelihood(text: str) -> float:
        return model.score([text])[0].log_likelihood

    greedy = model.generate(["the king"], temperature=0, max_new_tokens=6, min_new_tokens=6)
    beam = model.generate(["the king"], num_beams=8, max_new_tokens=6, min_new_tokens=6, length_penalty=0.0)
    assert len(tokenizer.encode(beam)[0]) == len(tokenizer.encode(greedy)[0])
    assert likelihood(beam[0]) >= likelihood(greedy[0]) - 1e-4


def test_a_text_is_scored_with_its_left_context(model: Model) -> None:
    good, bad = model.score(["the cat sees the dog in the house .", "the the dog sees in cat house the ."])
    assert good.log_likelihood > bad.log_likelihood + 5
    assert good.tokens == good.words == 9


def test_unsupported_uses_give_one_line(model: Model) -> None:
    with pytest.raises(FolderError, match="has no masked-word head"):
        model.fill("the <mask>")
    with pytest.raises(FolderError, match="gives no vectors of texts"):
        model.embed(["the cat"])


def test_recurrent_layers_are_not_compiled(data: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        pretrain.pretrain(small(data, tmp_path / "run", "train.compile=always"))
    assert str(caught.value) == (
        "train.compile: recurrent layers use cuDNN's kernels, which the compiler cannot see into. Use auto or never."
    )
