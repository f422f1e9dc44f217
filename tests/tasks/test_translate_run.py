"""A translator trained from scratch: its recipe, vocabulary, training and metrics."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from letters import letters
from tasks.small import stirred
from tasks.written import task, tokenizer

import bertsmith
from bertsmith import config
from bertsmith.data.labelled.examples import Example
from bertsmith.errors import BertsmithError, RecipeError
from bertsmith.models.family import member
from bertsmith.models.hf import folder as folders
from bertsmith.recipe import FineTune
from bertsmith.runs import finetuning, task_recipe
from bertsmith.tasks.base import Bucket
from bertsmith.tasks.text_to_text import TextToText

pytestmark = pytest.mark.slow("trains")

ROOT = Path(__file__).resolve().parents[2] / "src" / "bertsmith" / "recipes"
SIDES = ['data.texts=["src"]', "data.label=tgt"]
SMALL = [
    "network.width=32",
    "network.layers=1",
    "network.decoder_layers=1",
    "network.feed_forward=48",
    "network.max_length=16",
]
QUICK = [
    "train.device=cpu",
    "train.precision=float32",
    "data.workers=1",
    "data.max_length=12",
    "data.batch_size=8",
    "task.max_new_tokens=8",
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return letters(tmp_path_factory.mktemp("letters"), 60, 10)


def asked(model: str, data: Path, out: Path, *changes: str) -> FineTune:
    return task_recipe.build_recipe(Path(model), data, out, dev=None, task=None, seeds=1, overrides=[*SIDES, *changes])


def test_a_member_is_trained_from_scratch_with_the_settings_of_the_paper(data: Path, tmp_path: Path) -> None:
    recipe = asked("transformer-base", data, tmp_path)
    assert recipe.network is not None
    assert (recipe.model, recipe.network.settings) == (None, member("transformer-base"))
    assert (recipe.data.train, recipe.data.dev) == (data / "train", data / "dev")
    assert (recipe.schedule.kind, recipe.optimizer.betas) == ("inverse_root", (0.9, 0.98))
    assert (recipe.task.kind, recipe.task.settings.label_smoothing, recipe.task.settings.translation) == (
        "write",
        0.1,
        True,
    )


@pytest.mark.parametrize("path", sorted({ROOT / "transformer-multi30k.toml", ROOT / "tiny" / "transformer.toml"}))
def test_a_recipe_is_read_and_built_and_written_again(path: Path, data: Path, tmp_path: Path) -> None:
    recipe = config.read(path, FineTune)
    assert recipe.network is not None
    with torch.device("meta"):
        TextToText(bertsmith.models.encoder_decoder.EncoderDecoder(recipe.network.settings), recipe.task.settings)
    (tmp_path / "again.toml").write_text(config.dump(recipe))
    assert config.read(tmp_path / "again.toml", FineTune) == recipe
    found = asked(str(path), data, tmp_path / "run", "train.steps=7")
    assert (found.out, found.train.steps, found.train.epochs) == (tmp_path / "run", 7, None)
    assert (found.data.train, found.data.dev) == (data / "train", data / "dev")


def test_a_run_writes_a_folder_that_is_trained_further_and_translates(data: Path, tmp_path: Path) -> None:
    recipe = asked("transformer-tiny", data, tmp_path / "run", *SMALL, *QUICK, "train.steps=2", "train.checkpoints=0")
    pieces = finetuning.finetune(replace(recipe, tokenizer=None))
    assert list(pieces["summary"]) == ["bleu", "exact", "loss"]
    folder = tmp_path / "run" / "model"
    opened, model = folders.read(folder), bertsmith.load(folder)
    assert recipe.network is not None
    assert opened.config == replace(recipe.network.settings, vocabulary=model.tokenizer.vocabulary)
    assert opened.config_json["architectures"] == ["MarianMTModel"]
    assert isinstance(model.objective, TextToText)
    assert model.objective.config == recipe.task.settings
    assert len(model.translate(["same a b", "back c"], num_beams=2)) == 2
    again = asked(
        str(folder), data, tmp_path / "more", *QUICK, "train.steps=1", "train.checkpoints=0", "task.translation=true"
    )
    assert again.network is None
    assert finetuning.finetune(again)["headline"] == "bleu"


def test_the_same_run_twice_is_the_same(data: Path, tmp_path: Path) -> None:
    changes = [*SMALL, *QUICK, "train.steps=3", "train.checkpoints=0", "tokenizer.kind=t5", "tokenizer.vocabulary=200"]
    states = []
    for name in ("one", "other"):
        finetuning.finetune(asked("transformer-tiny", data, tmp_path / name, *changes))
        states.append(folders.read(tmp_path / name / "model").state_dict)
    assert all(torch.equal(states[1][name], weight) for name, weight in states[0].items())


def test_a_tokenizer_may_be_given(data: Path, tmp_path: Path) -> None:
    changes = [*SMALL, *QUICK, "train.steps=1", "train.checkpoints=0"]
    finetuning.finetune(asked("transformer-tiny", data, tmp_path / "one", *changes, "tokenizer.kind=t5"))
    given = f"tokenizer={tmp_path / 'one' / 'tokenizer'}"
    finetuning.finetune(asked("transformer-tiny", data, tmp_path / "other", *changes, given))
    assert not (tmp_path / "other" / "tokenizer").exists()
    one, other = (bertsmith.load(tmp_path / name / "model").tokenizer.fingerprint for name in ("one", "other"))
    assert one == other


# -------------------------------------------------------------------------------------------------- the loss


def test_label_smoothing_is_torchs_and_only_in_training() -> None:
    teacher: TextToText = stirred(task(translation=True, label_smoothing=0.1, max_new_tokens=8))
    examples = [Example(location="here", texts=("the old cat",), label=label) for label in ("dog", "cat in the garden")]
    items = teacher.preprocess(examples, tokenizer(), 16)
    batch = teacher.collate(items, Bucket(batch_size=2, max_length=16, pad_to_multiple_of=64))
    logits = teacher.trunk.logits(teacher.trunk(batch.tokens, batch.decoder_tokens))
    for learning, smoothing in ((True, 0.1), (False, 0.0)):
        teacher.train(learning)
        wanted = F.cross_entropy(logits, batch.targets, label_smoothing=smoothing, reduction="sum")
        torch.testing.assert_close(teacher(batch)["text"].total, wanted)
    with torch.no_grad():
        plain = float(F.cross_entropy(logits, batch.targets))
    assert teacher.loss(items, torch.device("cpu"), 8) == pytest.approx(plain, rel=1e-5)


def test_translations_are_scored_by_bleu_even_if_some_repeat() -> None:
    teacher = task(("dog", "cat"), translation=True)
    assert teacher.labels == ()
    examples = [Example(location="here", texts=("a",), label="der alte Hund bellt laut")] * 3
    said = [{"text": text} for text in ("der alte Hund bellt laut", "der alte Hund bellt", "Katze")]
    figures = teacher.score(examples, said)
    assert list(figures) == ["bleu", "exact"]
    assert figures["exact"] == pytest.approx(1 / 3)
    assert 0 < figures["bleu"] < 100


# --------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (["task.label_smoothing=1.0"], "label_smoothing is 1.0. Give a share, at least 0 and below 1, usually 0.1"),
        (["task.output=number"], "translations are texts, and no classes or numbers. Leave output and label_words out"),
        (["schedule.warmup=0.0"], "inverse_root decays from the end of the warmup. Give warmup more than 0"),
        (
            ["model=runs/other"],
            "give either model, a folder to start from, or network, randomly initialised",
        ),
        (["network.kind=bert-tiny"], "'bert-tiny' has no decoder, and only a network with one is trained on a task"),
        (["tokenizer.kind=letters"], "[tokenizer] kind: 'letters' is not a choice"),
        (["network.norm_position=pre"], "no class of transformers is a network with norm_position = pre"),
    ],
)
def test_a_recipe_that_cannot_work_is_refused_in_one_line(
    changes: list[str], line: str, data: Path, tmp_path: Path
) -> None:
    with pytest.raises(BertsmithError) as caught:
        finetuning.finetune(asked("transformer-tiny", data, tmp_path / "run", *QUICK, *changes))
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_recipe_is_named(data: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="there is no such recipe"):
        asked(str(tmp_path / "none.toml"), data, tmp_path / "run")


def test_a_folder_with_a_tokenizer_takes_no_other(data: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"a model folder has its own tokenizer\. Leave tokenizer out"):
        asked(str(tmp_path), data, tmp_path / "run", "tokenizer=words", "task.kind=write")


def test_pieces_whose_padding_is_not_the_first_are_refused(data: Path, tmp_path: Path) -> None:
    changes = [*SMALL, *QUICK, "train.steps=1", "tokenizer.kind=bpe", "tokenizer.vocabulary=300"]
    with pytest.raises(BertsmithError, match="its padding token has id 1"):
        finetuning.finetune(asked("transformer-tiny", data, tmp_path / "run", *changes))
    mended = [
        "tokenizer.kind=t5",
        "train.checkpoints=0",
    ]  # in the same folder: nothing stays of a start that was refused
    assert (
        finetuning.finetune(asked("transformer-tiny", data, tmp_path / "run", *changes, *mended))["headline"] == "bleu"
    )
