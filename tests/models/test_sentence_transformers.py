"""Pooling and normalisation in the files of sentence-transformers, old and new."""

import json
from pathlib import Path
from typing import Any

import pytest

from bertsmith.errors import FolderError
from bertsmith.models.hf import sentence_transformers
from bertsmith.models.hf.sentence_transformers import SentenceConfig


def put(folder: Path, name: str, content: Any) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(content))


def modules(folder: Path, *kinds: str, path: str = "1_Pooling") -> None:
    """A folder with these modules, as version 2 wrote them."""
    paths = {"Transformer": "", "Pooling": path}
    put(
        folder,
        "modules.json",
        [
            {"idx": n, "name": str(n), "path": paths.get(kind, ""), "type": f"sentence_transformers.models.{kind}"}
            for n, kind in enumerate(kinds)
        ],
    )


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("pooling", ["mean", "first"])
@pytest.mark.parametrize("length", [None, 3, 256])
def test_a_written_config_is_read_again(pooling: Any, normalise: bool, length: int | None, tmp_path: Path) -> None:
    config = SentenceConfig(pooling=pooling, normalise=normalise, length=length)
    sentence_transformers.write(tmp_path, config, 32)
    assert sentence_transformers.read(tmp_path) == config
    assert json.loads((tmp_path / "1_Pooling/config.json").read_text())["word_embedding_dimension"] == 32


def test_prompts_are_kept_and_one_before_every_text_is_refused(tmp_path: Path) -> None:
    modules(tmp_path, "Transformer")
    settings = {"prompts": {"query": "query: ", "document": ""}, "default_prompt_name": "document"}
    put(tmp_path, "config_sentence_transformers.json", settings)
    config = sentence_transformers.read(tmp_path)
    assert config is not None
    assert config.prompts == {"query": "query: "}
    (tmp_path / "again").mkdir()
    sentence_transformers.write(tmp_path / "again", config, 32)
    assert sentence_transformers.read(tmp_path / "again") == config
    put(tmp_path, "config_sentence_transformers.json", settings | {"default_prompt_name": "query"})
    with pytest.raises(FolderError) as caught:
        sentence_transformers.read(tmp_path)
    file, fact = tmp_path / "config_sentence_transformers.json", "default_prompt_name puts 'query: ' before every text"
    remedy = "Set it to null, and write the prompt into the texts."
    assert str(caught.value) == f"{file}: {fact}, which is not supported. {remedy}"


def test_a_folder_without_modules_has_no_config(tmp_path: Path) -> None:
    assert sentence_transformers.read(tmp_path) is None


def test_a_folder_without_pooling_module_has_mean_pooling_and_no_normalisation(tmp_path: Path) -> None:
    modules(tmp_path, "Transformer")
    assert sentence_transformers.read(tmp_path) == SentenceConfig(pooling="mean", normalise=False, length=None)


@pytest.mark.parametrize(
    ("keys", "pooling"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "first"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False}, "mean"),
        ({"pooling_mode_lasttoken": True, "pooling_mode_mean_tokens": False}, "last"),
        ({"pooling_mode": "lasttoken"}, "last"),
        ({"pooling_mode": "cls", "include_prompt": True}, "first"),
        ({"pooling_mode": "mean"}, "mean"),
        ({"pooling_mode": ["mean"]}, "mean"),
    ],
)
def test_old_and_new_keys_of_pooling_are_read(keys: dict[str, Any], pooling: str, tmp_path: Path) -> None:
    modules(tmp_path, "Transformer", "Pooling")
    put(tmp_path, "1_Pooling/config.json", keys)
    found = sentence_transformers.read(tmp_path)
    assert found is not None
    assert found.pooling == pooling


@pytest.mark.parametrize(
    "keys",
    [
        {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True},
        {"pooling_mode_mean_tokens": True, "pooling_mode_lasttoken": True},
        {"pooling_mode": "max"},
        {"pooling_mode": ["mean", "cls"]},
        {"pooling_mode": 3},
        {},
    ],
)
def test_other_poolings_are_refused(keys: dict[str, Any], tmp_path: Path) -> None:
    modules(tmp_path, "Transformer", "Pooling")
    put(tmp_path, "1_Pooling/config.json", keys)
    with pytest.raises(FolderError) as caught:
        sentence_transformers.read(tmp_path)
    assert str(caught.value) == f"{tmp_path}/1_Pooling/config.json: is not pooled by mean, first or last token alone."


def test_modules_that_are_not_known_are_refused(tmp_path: Path) -> None:
    modules(tmp_path, "Transformer", "Pooling", "Dense")
    with pytest.raises(FolderError) as caught:
        sentence_transformers.read(tmp_path)
    line = f"{tmp_path}/modules.json: the module 'Dense' is unknown. Pooling and Normalize are known."
    assert str(caught.value) == line


def test_a_path_does_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    put(tmp_path, "secret/config.json", {"pooling_mode": "mean"})
    for path in ("../secret", f"{tmp_path}/secret", "a/../../secret"):
        modules(tmp_path / "model", "Transformer", "Pooling", path=path)
        with pytest.raises(FolderError, match="leads out of the folder"):
            sentence_transformers.read(tmp_path / "model")


def test_the_maximum_length_is_in_a_separate_file_or_with_the_tokenizer(tmp_path: Path) -> None:
    modules(tmp_path, "Transformer")
    put(tmp_path, "tokenizer_config.json", {"model_max_length": 10**30})
    assert sentence_transformers.read(tmp_path) == SentenceConfig(normalise=False)
    put(tmp_path, "tokenizer_config.json", {"model_max_length": 77})
    assert sentence_transformers.read(tmp_path) == SentenceConfig(normalise=False, length=77)
    put(tmp_path, "sentence_bert_config.json", {"max_seq_length": None})
    assert sentence_transformers.read(tmp_path) == SentenceConfig(normalise=False, length=77)
    put(tmp_path, "sentence_bert_config.json", {"max_seq_length": 50})
    assert sentence_transformers.read(tmp_path) == SentenceConfig(normalise=False, length=50)


@pytest.mark.parametrize("length", [2, "long", 12.5])
def test_an_impossible_length_is_refused(length: Any, tmp_path: Path) -> None:
    modules(tmp_path, "Transformer")
    put(tmp_path, "sentence_bert_config.json", {"max_seq_length": length})
    with pytest.raises(FolderError) as caught:
        sentence_transformers.read(tmp_path)
    place = f"{tmp_path}/sentence_bert_config.json"
    assert str(caught.value) == f"{place}: max_seq_length is {length!r}. Give a whole number of at least 3."
