"""Trained models that write, written by us: transformers' own generate goes on with the same text as ours."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from letters import letters
from parity.test_gpt import gpt, objective
from tasks.small import stirred
from text.test_gpt import gpt2 as published
from tiny import NOUNS, PLACES, VERBS, prepared, recipe

from bertsmith.commands import pretrain
from bertsmith.inference.load import load
from bertsmith.models.hf import convert
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf.gpt import GPT2
from bertsmith.runs import finetuning, task_recipe
from bertsmith.text.tokenizer import END_OF_TEXT, Tokenizer

pytestmark = pytest.mark.slow("generates in two libraries")

PROMPTS = [f"the {NOUNS[n % 10]} {VERBS[n % 8]} the" for n in range(12)] + [
    f"the {NOUNS[n]} in the {PLACES[n % 6]}" for n in range(8)
]
CAUSAL = [
    "objective={kind='causal_lm'}",
    "data.cross_documents=true",
    "model.feed_forward=128",
    "optimizer.learning_rate=0.01",
]
MOST = 12


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("text"), "bpe")


def theirs(folder: Path, kind: str, prompts: list[str], keep: bool = False) -> list[str]:
    """What transformers writes with nothing said but how much, a prompt at a time."""
    model = getattr(transformers, kind).from_pretrained(folder).eval()
    pieces = transformers.AutoTokenizer.from_pretrained(folder)
    said = []
    for prompt in prompts:
        inputs = pieces(prompt, return_tensors="pt", return_token_type_ids=False)
        with torch.no_grad():
            [row] = model.generate(**inputs, max_new_tokens=MOST, do_sample=False, num_beams=1)
        row = [number for number in row.tolist() if number not in (pieces.pad_token_id, pieces.eos_token_id)]
        said.append(pieces.decode(row, skip_special_tokens=not keep))
    return said


@pytest.mark.exhaustive(suite=1)
@pytest.mark.parametrize("kind", ["gpt", "gpt2"])
def test_an_exported_gpt_goes_on_with_a_prompt_as_in_transformers(kind: str, text: Path, tmp_path: Path) -> None:
    sizes = ["model.layers=2", "model.max_length=32"]
    pretrain.pretrain(recipe(text, tmp_path, f"model.kind={kind}", *CAUSAL, *sizes, "train.checkpoints=0"))
    ours = load(tmp_path / "model").generate(PROMPTS, max_new_tokens=MOST, temperature=0)
    assert ours == theirs(tmp_path / "model", "AutoModelForCausalLM", PROMPTS)
    assert all(one.startswith(prompt + " ") for one, prompt in zip(ours, PROMPTS, strict=True))
    assert len({one.removeprefix(prompt) for one, prompt in zip(ours, PROMPTS, strict=True)}) > 3
    pipe: Any = transformers.pipeline("text-generation", str(tmp_path / "model"), device="cpu")
    said = pipe(PROMPTS[:2], max_new_tokens=MOST, do_sample=False)
    assert [one[0]["generated_text"] for one in said] == ours[:2]


def test_a_published_gpt2_goes_on_with_a_prompt_as_it_is(tmp_path: Path) -> None:
    """Nothing stands before it, as nothing does in transformers."""
    published(tmp_path / "model")
    made = objective(gpt(GPT2.defaults, vocabulary=321))
    assert Tokenizer.load(tmp_path / "model").vocabulary == 321
    folders.write(tmp_path / "model", made.trunk.config, made.state_dict(), {"eos_token_id": 320, "pad_token_id": 320})
    prompts = ["Ka lo mi", "ka", "élan", " mi lo", "lo " * 9]
    ours = load(tmp_path / "model").generate(prompts, max_new_tokens=MOST, temperature=0)
    assert ours == theirs(tmp_path / "model", "AutoModelForCausalLM", prompts)
    [alone] = load(tmp_path / "model").generate(
        [""], max_new_tokens=MOST, temperature=0
    )  # begins as a new document does
    assert alone


def test_a_classifier_that_others_taught_reads_texts_as_they_did(tmp_path: Path) -> None:
    """A published GPT-2's tokenizer sets nothing round a text, and neither do we."""
    published(tmp_path / "model", pad_token=END_OF_TEXT)
    words = {**convert.to_config_json(gpt(GPT2.defaults, vocabulary=321), ()), "num_labels": 3, "pad_token_id": 320}
    stirred(transformers.GPT2ForSequenceClassification(transformers.GPT2Config(**words))).save_pretrained(
        tmp_path / "model"
    )
    pipe: Any = transformers.pipeline("text-classification", str(tmp_path / "model"), device="cpu", top_k=None)
    texts = ["Ka lo mi", "ka", "lo mi ka"]
    for said, one in zip(load(tmp_path / "model").classify(texts), pipe(texts), strict=True):
        assert said["probabilities"] == pytest.approx({row["label"]: row["score"] for row in one}, abs=1e-5)


@pytest.mark.exhaustive
def test_an_exported_t5_writes_what_it_writes_in_transformers(tmp_path: Path) -> None:
    data = prepared(tmp_path, "t5")
    shape = [
        "model.kind=t5-base",
        "model.layers=1",
        "model.decoder_layers=1",
        "data.cross_documents=true",
        "optimizer.learning_rate=0.01",
    ]
    pretrain.pretrain(
        recipe(data, tmp_path / "run", "objective={kind='span_corruption'}", *shape, "train.checkpoints=0")
    )
    prompts = [f"{prompt} <extra_id_0> in the <extra_id_1> ." for prompt in PROMPTS]
    ours = load(tmp_path / "run/model").generate(prompts, max_new_tokens=MOST, temperature=0)
    assert ours == theirs(tmp_path / "run/model", "AutoModelForSeq2SeqLM", prompts, keep=True)
    assert all("<extra_id_0>" in one for one in ours)


def test_an_exported_translator_translates_as_in_transformers(tmp_path: Path) -> None:
    data = letters(tmp_path / "letters", 120, 10)
    small = [
        "network.width=32",
        "network.layers=1",
        "network.decoder_layers=1",
        "network.feed_forward=48",
        "network.max_length=32",
    ]
    quick = [
        "train.device=cpu",
        "train.precision=float32",
        "data.workers=1",
        "data.max_length=12",
        "task.max_new_tokens=13",
    ]
    more = [
        'data.texts=["src"]',
        "data.label=tgt",
        "train.steps=60",
        "train.checkpoints=0",
        "optimizer.learning_rate=0.01",
    ]
    chosen = [*small, *quick, *more]
    finetuning.finetune(
        task_recipe.build_recipe(
            Path("transformer-tiny"), data, tmp_path / "run", dev=None, task=None, seeds=1, overrides=chosen
        )
    )
    prompts = [line for line in (data / "train.src").read_text().splitlines() if len(line) < 12][:20]
    model = load(tmp_path / "run/model")
    ours = [one.translation for one in model.translate(prompts, full=True, num_beams=1)]
    assert ours == theirs(tmp_path / "run/model", "AutoModelForSeq2SeqLM", prompts)
    assert len(set(ours)) > 3
