"""A T5 taught to write, from a file to a folder: guessed, learnt, predicted, opened by transformers, refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from tasks.small import shape as alone
from tasks.small import tokenizer as pieces_of_words
from tasks.written import saved, shape, tokenizer

import bertsmith
from bertsmith.commands import predict
from bertsmith.errors import BertsmithError, FolderError
from bertsmith.models.hf import folder as folders
from bertsmith.models.transformer import Transformer
from bertsmith.objectives.masked import MaskedLM
from bertsmith.recipe import FineTune
from bertsmith.runs import finetuning, task_recipe
from bertsmith.tasks.text_to_text import TextToText

pytestmark = pytest.mark.slow("trains")

FAST = ["train.device=cpu", "train.precision=float32", "data.batch_size=16", "data.max_length=16", "data.workers=1"]
FAST += ["task.max_new_tokens=8", "train.checkpoints=0"]
LEARN = [
    "optimizer.learning_rate=0.03",
    "optimizer.hidden_optimizer=muon",
    "optimizer.muon_learning_rate=0.05",
    "train.steps=90",
]
OTHERS = ["river", "garden", "the", "old", "green", "in"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("base"), shape())


def table(path: Path, count: int, seed: int) -> Path:
    """Texts with a cat in them, or a dog, and what such a one does."""
    dice = np.random.default_rng(seed)
    lines = ["text,label"]
    for number in range(count):
        words = [*dice.choice(OTHERS, dice.integers(2, 6)), "dog" if number % 2 else "cat"]
        dice.shuffle(words)
        lines.append(f"{' '.join(words)},{'bark' if number % 2 else 'purr'}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    table(folder / "train.csv", 96, 0)
    table(folder / "dev.csv", 24, 1)
    return folder


def recipe(base: Path, data: Path, out: Path, *overrides: str, task: str | None = None) -> FineTune:
    return task_recipe.build_recipe(base, data, out, dev=None, task=task, seeds=1, overrides=[*FAST, *overrides])


@pytest.fixture(scope="module")
def learnt(base: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "classes"
    finetuning.finetune(recipe(base, data, out, *LEARN, "task.prefix=sst2 sentence:"))
    return out


# ------------------------------------------------------------------------------------------------- end to end


def test_labels_are_learnt_as_words(learnt: Path) -> None:
    result = json.loads((learnt / "result.json").read_text())
    assert result["headline"] == "accuracy"
    assert result["summary"]["accuracy"]["mean"] == 1.0
    assert result["summary"]["no_class"]["mean"] == 0.0
    assert result["summary"]["matthews"]["mean"] == 1.0
    assert 'kind = "write"' in result["protocol"]["recipe"]
    assert 'predict(["A text of yours."])' in (learnt / "model" / "README.md").read_text()
    assert "# A T5 fine-tuned to write" in (learnt / "model" / "README.md").read_text()


def test_the_folder_knows_what_it_has_learnt(learnt: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = bertsmith.load(learnt / "model")
    assert isinstance(model.objective, TextToText)
    assert model.objective.config.prefix == "sst2 sentence:"
    texts = ["the old cat in the garden", "green river dog"]
    said = [{"text": "purr", "label": "purr"}, {"text": "bark", "label": "bark"}]
    assert model.predict(texts) == said
    assert [model.predict([text])[0] for text in texts] == said
    (tmp_path / "lines.txt").write_text("\n".join(texts) + "\n")
    predict.predict(learnt / "model", [str(tmp_path / "lines.txt")], out=None)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == said
    assert model.generate([f"sst2 sentence: {texts[0]}"], temperature=0) == ["purr"]


def test_transformers_opens_the_folder_and_writes_the_same(learnt: Path) -> None:
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(learnt / "model").eval()
    assert type(theirs) is transformers.T5ForConditionalGeneration
    pieces = transformers.AutoTokenizer.from_pretrained(learnt / "model")
    for text, said in (("the old cat in the garden", "purr"), ("green river dog", "bark")):
        ids = pieces(f"sst2 sentence: {text}", return_tensors="pt")["input_ids"]
        written = theirs.generate(ids, max_new_tokens=8, do_sample=False)
        assert pieces.decode(written[0], skip_special_tokens=True) == said


def test_a_trained_folder_is_trained_further(learnt: Path, data: Path, tmp_path: Path) -> None:
    settings = ["task.prefix=sst2 sentence:", "train.steps=1", "optimizer.learning_rate=0.0"]
    result = finetuning.finetune(recipe(learnt / "model", data, tmp_path, *settings))
    assert result["summary"]["accuracy"]["mean"] == 1.0


@pytest.mark.exhaustive
def test_a_text_is_copied(base: Path, tmp_path: Path) -> None:
    words = ["cat", "dog", "river", "garden", "sees", "likes", "old", "green"]
    pairs = [f"{one}\t{one}" for one in words] * 8
    (tmp_path / "train.tsv").write_text("source\ttarget\n" + "\n".join(pairs) + "\n")
    result = finetuning.finetune(recipe(base, tmp_path, tmp_path / "out", *LEARN, 'data.texts=["source"]'))
    assert result["summary"]["accuracy"]["mean"] == 1.0
    said = bertsmith.load(tmp_path / "out" / "model").predict(words)
    assert [one["text"] for one in said] == words


@pytest.mark.exhaustive
def test_questions_are_answered_by_generated_text(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    passages = {"cat": "the old cat sees the river", "dog": "the dog sees the green garden"}
    answers = {name: [{"text": name, "answer_start": passage.index(name)}] for name, passage in passages.items()}
    asked = [
        [{"id": f"{name}{number}", "question": "who sees ?", "answers": found} for number in range(16)]
        for name, found in answers.items()
    ]
    content = [{"context": passage, "qas": some} for passage, some in zip(passages.values(), asked, strict=True)]
    for name in ("train-v1.1.json", "dev-v1.1.json"):
        (tmp_path / name).write_text(json.dumps({"version": "1.1", "data": [{"paragraphs": content}]}))
    made = recipe(base, tmp_path, tmp_path / "out", *LEARN, "data.max_length=32")
    assert (made.task.kind, made.task.settings.output) == ("write", "span")
    result = finetuning.finetune(made)
    assert (result["headline"], result["summary"]["f1"]["mean"]) == ("f1", 1.0)
    capsys.readouterr()
    lines = [json.dumps({"id": name, "question": "who sees ?", "context": text}) for name, text in passages.items()]
    (tmp_path / "asked.jsonl").write_text("\n".join(lines))
    predict.predict(tmp_path / "out" / "model", [str(tmp_path / "asked.jsonl")], out=None)
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert said == [{"id": name, "answer": name} for name in passages]
    model = bertsmith.load(tmp_path / "out" / "model")
    assert model.predict([("who sees ?", passages["dog"])])[0]["answer"] == "dog"


@pytest.mark.gpu
def test_a_gpu_learns_it_by_cuda_graphs(base: Path, data: Path, tmp_path: Path) -> None:
    settings = [*LEARN, "task.prefix=sst2 sentence:", "train.device=cuda", "train.precision=auto"]
    assert finetuning.finetune(recipe(base, data, tmp_path, *settings))["summary"]["accuracy"]["mean"] == 1.0
    here, there = (bertsmith.load(tmp_path / "model", device) for device in ("cpu", "cuda"))
    texts = ["the old cat in the garden", "green river dog", "dog", "in the old green garden the cat"]
    assert here.predict(texts) == there.predict(texts)


# ---------------------------------------------------------------------------------------------------- guesses


@pytest.mark.parametrize(
    ("name", "header", "row", "settings"),
    [
        (
            "STS-B",
            "index\tsentence1\tsentence2\tscore",
            "1\ta cat\ta dog\t2.5",
            {"output": "number", "prefix": "stsb"},
        ),
        (
            "SST-2",
            "sentence\tlabel",
            "a cat\t1",
            {"label_words": ("negative", "positive"), "prefix": "sst2 sentence:", "metric": "accuracy"},
        ),
        (
            "MRPC",
            "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
            "1\t2\t3\ta cat\ta dog",
            {"label_words": ("not_equivalent", "equivalent"), "metric": "accuracy_f1"},
        ),
    ],
)
def test_glue_has_t5s_prompts_and_glues_metrics(
    name: str, header: str, row: str, settings: dict[str, Any], base: Path, tmp_path: Path
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    for file in ("train.tsv", "dev.tsv"):
        (folder / file).write_text(f"{header}\n{row}\n{row}\n")
    found = recipe(base, folder, tmp_path / "out", "train.steps=1", "task.max_new_tokens=24")
    assert found.task.kind == "write"
    for key, value in settings.items():
        assert getattr(found.task.settings, key) == value
    result = finetuning.finetune(found)
    assert result["headline"] == ("spearman" if name == "STS-B" else settings["metric"])
    model = bertsmith.load(tmp_path / "out" / "model")
    assert model.objective.labels == (() if name == "STS-B" else ("0", "1"))  # type: ignore[attr-defined]
    given = "a cat" if name == "SST-2" else ("a cat", "a dog")
    assert list(model.predict([given])[0]) == ["text", "number" if name == "STS-B" else "label"]


def test_a_t5_learns_text_to_text_and_others_the_task_of_the_file(base: Path, data: Path, tmp_path: Path) -> None:
    assert (
        task_recipe.build_recipe(
            base, data, tmp_path, dev=None, task=None, seeds=1, overrides=[]
        ).optimizer.learning_rate
        == 3e-4
    )
    assert recipe(base, data, tmp_path).task.kind == "write"
    assert (
        task_recipe.build_recipe(tmp_path, data, tmp_path, dev=None, task=None, seeds=1, overrides=[]).task.kind
        == "classify"
    )


def test_truncated_targets_are_reported(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.tsv").write_text("source\ttarget\n" + "".join(f"a cat\tcat {'dog ' * n}\n" for n in range(9)))
    finetuning.finetune(recipe(base, tmp_path, tmp_path / "out", "train.steps=1", "task.max_new_tokens=4"))
    text = "training texts are longer than 16 tokens, or their target is longer than 4, and are truncated"
    assert text in capsys.readouterr().out


# --------------------------------------------------------------------------------------------------- refusals

WHOLE = "adapt: networks with a decoder are fine-tuned as a whole. Leave adapt out."
ALONE = "is for encoders, and this network has a decoder. Use write, or a network such as bert-base."


@pytest.mark.parametrize(
    ("settings", "task", "line"),
    [
        (["adapt.kind=lora"], "write", WHOLE),
        (["adapt.kind=frozen"], "write", WHOLE),
        (["adapt.layer_decay=0.9"], "write", WHOLE),
        (["adapt.freeze=1"], "write", WHOLE),
        ([], "classify", f"task.kind: 'classify' {ALONE}"),
        ([], "embed", f"task.kind: 'embed' {ALONE}"),
    ],
)
def test_settings_that_do_not_fit_a_t5_are_refused(
    settings: list[str], task: str, line: str, base: Path, data: Path, tmp_path: Path
) -> None:
    plain = [*FAST[:5], *settings]
    with pytest.raises(BertsmithError) as caught:
        finetuning.finetune(
            task_recipe.build_recipe(base, data, tmp_path, dev=None, task=task, seeds=1, overrides=plain)
        )
    assert str(caught.value) == line


def test_a_network_without_a_decoder_is_refused(data: Path, tmp_path: Path) -> None:
    objective = MaskedLM(Transformer(alone()), MaskedLM.Config(pairs="none"))
    folders.write(tmp_path / "bert", alone(), objective.state_dict())
    pieces_of_words().save(tmp_path / "bert")
    with pytest.raises(BertsmithError) as caught:
        finetuning.finetune(recipe(tmp_path / "bert", data, tmp_path / "out", task="write"))
    fact = "'write' is for networks with a decoder, and this one has none"
    assert str(caught.value) == f"task.kind: {fact}. Use another task, or a network such as t5-base."
    with pytest.raises(FolderError) as refused:
        bertsmith.load(tmp_path / "bert").predict(["a cat"])
    assert "was not fine-tuned to predict anything" in str(refused.value)


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ({"task": "write", "labels": [1]}, "config.json: 'labels' of bertsmith is [1]. Give a list of names"),
        ({"task": "write", "labels": [], "prefix": 3}, "config.json [bertsmith] prefix: expected a text, got 3"),
        (
            {"task": "write", "labels": [], "max_new_tokens": 1},
            "config.json [bertsmith]: max_new_tokens is 1. Give at least 2",
        ),
        ({"task": "write", "labels": [], "colour": 1}, "config.json [bertsmith]: unknown key 'colour'"),
    ],
)
def test_a_folder_with_nonsense_settings_is_refused(said: dict[str, Any], line: str, tmp_path: Path) -> None:
    folder = saved(tmp_path, shape())
    words = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**words, "bertsmith": said}))
    with pytest.raises(BertsmithError) as caught:
        bertsmith.load(folder)
    assert str(caught.value).startswith(f"{folder}/{line}")


def test_a_pretrained_t5_is_not_a_fine_tuned_one(base: Path) -> None:
    assert not isinstance(bertsmith.load(base).objective, TextToText)
    assert tokenizer().sentinels
