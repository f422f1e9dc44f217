"""A folder in a person's hands: it does what it was taught, and says in one line what it was not."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import transformers
from tasks.small import CASES, prose, shape, stirred, tokenizer

import bertsmith
from bertsmith.data.labelled.examples import Example
from bertsmith.errors import BertsmithError, FolderError, RecipeError
from bertsmith.inference.load import load
from bertsmith.inference.model import Model
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf.finetuned import FinetunedTask
from bertsmith.models.transformer import Transformer
from bertsmith.nn.heads import Classifier, Pooler
from bertsmith.objectives.masked import MaskedLM
from bertsmith.tasks import task_name
from bertsmith.tasks.base import Task
from bertsmith.tasks.classification import SequenceClassification

PROBLEMS = {"class": "single_label", "number": "regression", "labels": "multi_label"}
MULTI_LABEL = SequenceClassification.Config(problem="multi_label")


def saved(folder: Path, name: str, task: Task | None = None, extra: dict[str, Any] | None = None) -> Path:
    task = task or CASES[name].task()
    kind = "classify" if name in PROBLEMS else name
    learnt = FinetunedTask(task=kind, labels=task.labels, problem=PROBLEMS.get(name, "single_label"))
    folders.write(folder, task.trunk.config, task.state_dict(), extra, learnt)
    tokenizer().save(folder)
    return folder


def plain(folder: Path) -> Path:
    """A model that was pretrained, and nothing else."""
    objective = stirred(MaskedLM(Transformer(shape()), MaskedLM.Config(pairs="none")))
    folders.write(folder, shape(), objective.state_dict())
    tokenizer().save(folder)
    return folder


def test_texts_and_pairs_are_classified_in_order(tmp_path: Path) -> None:
    model = bertsmith.load(saved(tmp_path, "class"))
    texts: list[Any] = [*prose(9, 1), ("the cat", "sees the dog"), ("", "")]
    said = model.classify(texts)
    assert len(said) == len(texts)
    for text, one in zip(texts, said, strict=True):
        (alone,) = model.classify([text])
        assert alone["label"] == one["label"]
        assert list(one["probabilities"]) == ["no", "so-so", "yes"]
        assert alone["probabilities"] == pytest.approx(one["probabilities"], abs=1e-5)
    assert model.classify([("the cat", "sees the dog")]) != model.classify(["the cat sees the dog"])
    assert model.classify([]) == []


def test_numbers_and_labels_are_answered_as_the_folder_says(tmp_path: Path) -> None:
    (said,) = load(saved(tmp_path / "number", "number")).classify(["the cat"])
    assert list(said) == ["number"]
    (said,) = load(saved(tmp_path / "labels", "labels")).classify(["the cat"])
    assert list(said["probabilities"]) == ["a", "b", "c"]
    assert said["labels"] == [label for label, chance in said["probabilities"].items() if chance >= 0.5]


def test_a_text_too_long_is_cut_and_a_tagged_one_is_not(tmp_path: Path) -> None:
    long = "the cat sees " * 200
    assert len(load(saved(tmp_path / "class", "class")).classify([long])) == 1
    (said,) = load(saved(tmp_path / "tag", "tag")).tag([long])
    assert len(said["tags"]) == 600


def test_raw_text_is_cut_into_words_at_blanks_and_punctuation(tmp_path: Path) -> None:
    model = load(saved(tmp_path, "tag"))
    raw, cut = model.tag(["The cat's river, 1984!", ["The", "cat's", "river", ",", "1984", "!"]])
    assert raw["words"] == ["The", "cat", "'", "s", "river", ",", "1984", "!"]
    assert cut["words"] == ["The", "cat's", "river", ",", "1984", "!"]
    assert len(raw["tags"]) == 8
    assert set(raw["tags"]) | set(cut["tags"]) <= {"B-X", "O"}
    assert model.tag([""]) == [{"words": [], "tags": []}]


def test_a_question_is_answered_out_of_its_passage(tmp_path: Path) -> None:
    model = load(saved(tmp_path, "answer"))
    for passage in ("the old cat sees the green river", "the cat likes the dog . " * 40):
        said = model.answer("who sees the river ?", passage)
        assert said["answer"]
        assert passage[said["start"] :].startswith(said["answer"])
    assert model.answer("who ?", "")["answer"] == ""


@pytest.mark.parametrize("length", [16, 64])
def test_questions_are_answered_by_short_models_too(length: int, tmp_path: Path) -> None:
    model = load(saved(tmp_path, "answer", CASES["answer"].task(max_length=length)))
    said = model.answer("who sees the old river in the green garden ? " * 20, "the cat likes the dog . " * 40)
    assert said["answer"]


def test_the_threshold_travels_with_the_folder(tmp_path: Path) -> None:
    passage = "the old cat sees the green river"
    sure = load(saved(tmp_path / "sure", "answer")).answer("who ?", passage)
    for difference, answer in ((-0.1, ""), (0.1, sure["answer"])):
        extra = {"bertsmith": {"settings": {"null_threshold": sure["null_score_difference"] + difference}}}
        said = load(saved(tmp_path / "model", "answer", extra=extra)).answer("who ?", passage)
        assert (said["answer"], said["best_span"]) == (answer, sure["answer"])


def test_settings_that_are_none_are_refused_in_one_line(tmp_path: Path) -> None:
    for settings, fact in (([], "'settings' of bertsmith is []"), ({"treshold": 1.0}, "unknown key 'treshold'")):
        with pytest.raises(BertsmithError, match=re.escape(fact)):
            load(saved(tmp_path, "class", extra={"bertsmith": {"settings": settings}}))


def test_any_number_of_endings_is_chosen_from(tmp_path: Path) -> None:
    model = load(saved(tmp_path, "choose"))
    endings = ["sees the dog", "likes", "in the old garden", "1984"]
    for count in (2, 3, 4):
        said = model.choose("the cat", endings[:count])
        assert said["ending"] == endings[int(said["label"])]
        assert list(said["probabilities"]) == [str(number) for number in range(count)]


def test_examples_come_in_a_stream_as_well(tmp_path: Path) -> None:
    model = load(saved(tmp_path, "class"))
    examples = [Example(location=str(number), texts=(text,)) for number, text in enumerate(prose(11, 2))]
    said = list(model.predict_stream(iter(examples), chunk_size=4))
    assert [one["label"] for one in said] == [one["label"] for one in model.predict(examples)]


def test_a_fine_tuned_model_has_vectors_too(tmp_path: Path) -> None:
    model = load(saved(tmp_path, "class"))
    vectors = model.embed(["the cat", "dog"], precision="float32")
    assert vectors.shape == (2, 32)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1], abs=1e-5)


def test_a_length_beyond_the_model_is_the_models_own(tmp_path: Path) -> None:
    from bertsmith.models.hf import sentence_transformers

    plain(tmp_path)
    sentence_transformers.write(tmp_path, sentence_transformers.SentenceConfig(length=500), 32)
    assert load(tmp_path).embed(["the cat " * 100]).shape == (1, 32)


# ---------------------------------------------------------------------------------------------------- refusals

CALLS = {
    "classify": lambda model: model.classify(["the cat"]),
    "tag": lambda model: model.tag(["the cat"]),
    "answer": lambda model: model.answer("who ?", "the cat"),
    "choose": lambda model: model.choose("the", ["cat", "dog"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", CALLS)
def test_what_it_was_not_taught_it_says_in_one_line(kind: str, tmp_path: Path) -> None:
    names = {"classify": "class", "tag": "tag", "answer": "answer", "choose": "choose"}
    models: list[Model] = [load(plain(tmp_path / "plain"))]
    models += [load(saved(tmp_path / other, names[other])) for other in CALLS if other != kind]
    for model in models:
        with pytest.raises(FolderError) as caught:
            CALLS[kind](model)
        name = task_name(kind)
        assert str(caught.value) == (
            f"{model.path}: was not fine-tuned for {name}. "
            f"Fine-tune it first: bertsmith finetune {model.path} DATA --task {name} --out {model.path}-tuned."
        )


def test_a_fine_tuned_model_fills_no_blanks(tmp_path: Path) -> None:
    model = load(saved(tmp_path, "class"))
    for call, what in ((lambda: model.fill("the [MASK]"), "Blanks"), (lambda: model.score(["the cat"]), "Scores")):
        with pytest.raises(FolderError) as caught:
            call()
        assert str(caught.value) == (
            f"{tmp_path}: has no masked-word head. {what} need a model pretrained on masked words."
        )


def test_a_head_that_is_not_whole_is_told(tmp_path: Path) -> None:
    def without(name: str, *ends: str) -> str:
        folder = saved(tmp_path / name, name)
        tensors = safetensors.torch.load_file(folder / "model.safetensors")
        kept = {key: tensor for key, tensor in tensors.items() if not key.startswith(ends)}
        assert len(kept) < len(tensors)
        safetensors.torch.save_file(kept, folder / "model.safetensors")
        with pytest.raises(FolderError) as caught:
            load(folder)
        return str(caught.value).replace(str(folder), "F")

    assert without("class", "bert.pooler") == "F: lacks the weight 'pooler.dense.weight', which classify needs."
    assert without("choose", "bert.pooler") == "F: lacks the weight 'pooler.dense.weight', which choose needs."
    assert without("tag", "classifier.bias") == "F: lacks the weight 'classifier.bias'."
    assert without("answer", "qa_outputs.weight") == "F: lacks the weight 'qa_outputs.weight'."


def test_several_numbers_at_once_are_refused(tmp_path: Path) -> None:
    trunk = Transformer(shape())
    state = {f"trunk.{name}": weight for name, weight in trunk.state_dict().items()}
    for part, module in (("pooler", Pooler(32)), ("classifier", Classifier(32, 3, 0.0))):
        state |= {f"{part}.{name}": weight for name, weight in module.state_dict().items()}
    learnt = FinetunedTask(task="classify", labels=("a", "b", "c"), problem="regression")
    folders.write(tmp_path, shape(), state, finetuned=learnt)
    tokenizer().save(tmp_path)
    with pytest.raises(FolderError) as caught:
        load(tmp_path)
    line = f"{tmp_path}/config.json: is a regression with 3 outputs. Only models with one can be opened."
    assert str(caught.value) == line


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ({"id2label": {"0": "no", "2": "yes"}}, "the ids of id2label are not 0, 1, 2 and so on."),
        ({"id2label": ["no", "yes"]}, "id2label is ['no', 'yes']. Give every id a label."),
        ({"id2label": {"0": 1, "1": 2}}, "id2label is {'0': 1, '1': 2}. Give every id a label."),
    ],
)
def test_labels_that_make_no_sense_are_told(words: dict[str, Any], line: str, tmp_path: Path) -> None:
    folder = saved(tmp_path, "tag", extra=words)
    with pytest.raises(FolderError) as caught:
        load(folder)
    assert str(caught.value) == f"{tmp_path}/config.json: {line}"


def test_several_classes_of_one_name_keep_their_probabilities(tmp_path: Path) -> None:
    folder = saved(tmp_path, "class", None, {"id2label": {"0": "x", "1": "x", "2": "x (1)"}})
    model, named = load(folder), load(saved(tmp_path / "named", "class"))
    texts = ["the cat", "a dog sees the river"]
    for said, expected in zip(model.classify(texts), named.classify(texts), strict=True):
        assert list(said["probabilities"]) == ["x (0)", "x (1) (1)", "x (1) (2)"]
        assert list(said["probabilities"].values()) == list(expected["probabilities"].values())
    model.save(tmp_path / "again")
    assert load(tmp_path / "again").classify(texts) == model.classify(texts)


@pytest.mark.slow("imports transformers")
def test_one_label_of_a_multi_label_problem_has_the_sigmoid_of_transformers(tmp_path: Path) -> None:
    task = stirred(SequenceClassification(Transformer(shape()), MULTI_LABEL, ("toxic",)))
    model = load(saved(tmp_path, "labels", task))
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    inputs = transformers.AutoTokenizer.from_pretrained(tmp_path)("the old cat sees a river", return_tensors="pt")
    with torch.no_grad():
        expected = theirs(**inputs).logits.sigmoid().item()
    (said,) = model.classify(["the old cat sees a river"])
    assert said["probabilities"] == {"toxic": pytest.approx(expected, abs=1e-5)}
    assert said["labels"] == (["toxic"] if expected >= 0.5 else [])
    assert model.predict("the old cat sees a river").labels == said["labels"]


def test_a_folder_with_one_class_is_refused(tmp_path: Path) -> None:
    one = {"id2label": {"0": "yes"}, "problem_type": "single_label_classification"}
    with pytest.raises(RecipeError) as caught:
        load(saved(tmp_path, "number", extra=one))
    assert str(caught.value) == "task: there is only one class, ('yes',). Give examples of at least two."


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path) -> None:
    task = CASES["class"].task(vocabulary=20)
    with pytest.raises(FolderError) as caught:
        load(saved(tmp_path, "class", task))
    pieces = tokenizer().vocabulary
    line = f"{tmp_path}: the tokenizer has {pieces} tokens, the model 20. The two do not belong together."
    assert str(caught.value) == line
