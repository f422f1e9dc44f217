from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
from models.small import EVERY, SMALL, change, saved, state
from safetensors import safe_open
from torch import Tensor

from bertsmith.errors import FolderError
from bertsmith.models.hf import convert
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf.bert_likes import Bert
from bertsmith.models.transformer import Transformer


@pytest.mark.parametrize(
    ("parts", "architecture"),
    [
        (EVERY, "BertForPreTraining"),
        (("mlm_head",), "BertForMaskedLM"),
        (("pooler", "sentence_pair"), "BertForNextSentencePrediction"),
        (("pooler",), "BertModel"),
        ((), "BertModel"),
    ],
)
def test_a_written_folder_is_read_again(parts: tuple[str, ...], architecture: str, tmp_path: Path) -> None:
    weights = state(parts=parts)
    folders.write(tmp_path / "model", SMALL, weights, {"pad_token_id": 3})
    opened = folders.read(tmp_path / "model")
    assert (opened.config, opened.parts) == (SMALL, set(parts))
    assert opened.config_json["architectures"] == [architecture]
    assert opened.config_json["pad_token_id"] == 3
    assert opened.state_dict.keys() == weights.keys()
    assert all(torch.equal(opened.state_dict[name], weights[name]) for name in weights)
    with safe_open(tmp_path / "model/model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}
        assert "cls.predictions.decoder.weight" not in file.keys()  # noqa: SIM118 (no mapping)


@pytest.mark.parametrize("kind", ["BertModel", "BertForMaskedLM", "BertForNextSentencePrediction"])
def test_folders_of_transformers_are_read(kind: str, tmp_path: Path) -> None:
    import transformers

    model = getattr(transformers, kind)(transformers.BertConfig(**convert.to_config_json(SMALL, ())))
    model.save_pretrained(tmp_path / "whole")
    model.save_pretrained(tmp_path / "sharded", max_shard_size="2KB")
    assert len(list((tmp_path / "sharded").glob("*.safetensors"))) > 2
    whole, sharded = (folders.read(tmp_path / name) for name in ("whole", "sharded"))
    assert Bert().architecture(whole.parts) == kind
    assert sum(weight.numel() for weight in whole.state_dict.values()) == sum(
        part.numel() for part in model.parameters()
    )
    assert all(torch.equal(whole.state_dict[name], weight) for name, weight in sharded.state_dict.items())


def test_legacy_names_and_tied_weights_are_read(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")
    before = folders.read(folder).state_dict

    def age(tensors: dict[str, Tensor]) -> None:
        for name in list(tensors):
            old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
            tensors[old] = tensors.pop(name)
        tensors["bert.embeddings.position_ids"] = torch.arange(10)[None]
        tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].clone()
        tensors["cls.predictions.decoder.bias"] = tensors.pop("cls.predictions.bias")

    change(folder, age)
    after = folders.read(folder).state_dict
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_half_precision_is_read_as_float32_and_written_with_its_dtype(tmp_path: Path) -> None:
    half = {name: weight.bfloat16() for name, weight in state().items()}
    folders.write(tmp_path / "model", SMALL, half)
    opened = folders.read(tmp_path / "model")
    assert opened.config_json["dtype"] == "bfloat16"
    assert all(weight.dtype == torch.float32 for weight in opened.state_dict.values())
    assert torch.equal(opened.state_dict["mlm_head.bias"], half["mlm_head.bias"].float())


def test_sinusoidal_positions_are_saved_as_a_table(tmp_path: Path) -> None:
    config = replace(SMALL, positions="sinusoidal")
    trunk = {f"trunk.{name}": weight for name, weight in Transformer(config).state_dict().items()}
    folders.write(tmp_path / "model", config, trunk)
    opened = folders.read(tmp_path / "model")
    assert opened.config == config
    tensors = safetensors.torch.load_file(tmp_path / "model/model.safetensors")
    assert torch.equal(tensors["embeddings.position_embeddings.weight"], trunk["trunk.positions.weight"])


def test_weights_do_not_change_when_their_file_does(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")
    opened = folders.read(folder)
    size = (folder / "model.safetensors").stat().st_size
    (folder / "model.safetensors").write_bytes(bytes(size))
    assert all(torch.equal(opened.state_dict[name], weight) for name, weight in state().items())


def test_a_link_to_the_blobs_of_the_hub_is_followed(tmp_path: Path) -> None:
    snapshot, blobs = tmp_path / "snapshots/1f2e", tmp_path / "blobs"
    saved(snapshot)
    blobs.mkdir()
    for name in ("config.json", "model.safetensors"):
        (snapshot / name).rename(blobs / name)
        (snapshot / name).symlink_to(f"../../blobs/{name}")
    assert folders.read(snapshot).config == SMALL


def test_a_folder_appears_when_all_is_written_and_replaces_an_older_model(tmp_path: Path) -> None:
    final = tmp_path / "runs/model"
    for vocabulary in (30, 40):
        config = replace(SMALL, vocabulary=vocabulary)
        with folders.atomic_folder(final) as fresh:
            folders.write(fresh, config, state(config))
            assert final.exists() == (vocabulary == 40)
        assert folders.read(final).config == config
    assert [path.name for path in final.parent.iterdir()] == ["model"]


def test_a_failure_while_writing_leaves_the_older_model(tmp_path: Path) -> None:
    final = saved(tmp_path / "model")
    with pytest.raises(FolderError, match="odd"), folders.atomic_folder(final) as fresh:
        folders.write(fresh, SMALL, {"odd": torch.zeros(1)})
    assert folders.read(final).config == SMALL
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_folder_of_something_else_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    with pytest.raises(FolderError) as caught, folders.atomic_folder(tmp_path / "letters"):
        pass
    assert str(caught.value) == f"{tmp_path}/letters: exists and is not a model folder. Choose another name."


def test_weights_without_a_name_in_transformers_are_not_written(tmp_path: Path) -> None:
    weights = state()
    cases = {
        "the weight 'odd.weight' has no name in transformers": {**weights, "odd.weight": torch.zeros(1)},
        "the weight 'mlm_head.bias' is missing": {name: w for name, w in weights.items() if name != "mlm_head.bias"},
        "the weight 'mlm_head.bias' has shape [31], not [30]": {**weights, "mlm_head.bias": torch.zeros(31)},
    }
    for fact, wrong in cases.items():
        with pytest.raises(FolderError) as caught:
            folders.write(tmp_path, SMALL, wrong)
        assert str(caught.value) == f"{tmp_path}: {fact}."
