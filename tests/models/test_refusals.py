"""A folder is refused in one line, at once, and without opening anything outside it."""

import json
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models.small import SMALL, change, refusal, saved
from pace import pace, work

from bertsmith.errors import FolderError
from bertsmith.files import file_inside
from bertsmith.models.hf import convert
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf.vision_layout import VISION_LAYOUTS

pytestmark = pytest.mark.slow("tries thousands of damaged files")

KNOWN = (
    "'bert', 'roberta', 'xlm-roberta', 'camembert', 'distilbert', 'mpnet', 'albert', 'electra', 'modernbert', "
    "'openai-gpt', 'gpt2', 't5', 'marian', 'bertsmith' (such as ELMo and LSTMs), or of images "
    + ", ".join(f"'{kind}'" for kind in VISION_LAYOUTS)
)


def at_once(folder: Path) -> str:
    """The line with which a folder is refused, quickly."""
    lines: list[str] = []
    assert work(lambda: lines.append(refusal(folder))) < 8 * pace()
    return lines[0]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            {"model_type": "word2vec"},
            "holds word vectors, and no network that reads texts. Use similar, analogy or search.",
        ),
        (
            {"model_type": "bart"},
            f"model_type is 'bart'. Only {KNOWN} can be opened.",
        ),
        (
            {"position_embedding_type": "relative_key"},
            "position_embedding_type is 'relative_key'. Only 'absolute' can be opened.",
        ),
        ({"is_decoder": True}, "is_decoder is True. Only False can be opened."),
        ({"hidden_act": "gelu_neww"}, "unknown hidden_act 'gelu_neww'. Did you mean 'gelu_new'?"),
        (
            {"hidden_act": {}},
            "unknown hidden_act {}. Known: gelu, gelu_fast, gelu_new, gelu_python, gelu_pytorch_tanh.",
        ),
        ({"hidden_size": "8"}, "hidden_size is '8'. Give a whole number."),
        ({"hidden_size": True}, "hidden_size is True. Give a whole number."),
        ({"hidden_size": 10**30}, f"hidden_size is {10**30}. Give a whole number."),
        ({"hidden_size": -8}, "hidden_size is -8. Give a whole number."),
        ({"layer_norm_eps": "tiny"}, "layer_norm_eps is 'tiny'. Give a number."),
        ({"hidden_dropout_prob": float("nan")}, "hidden_dropout_prob is nan. Give a number."),
        ({"num_attention_heads": 3}, "a width of 8 cannot be shared by 3 heads. Take a multiple."),
        ({"num_hidden_layers": 0}, "layers is 0. Give at least 1."),
    ],
)
def test_settings_that_are_not_supported_are_refused(words: dict[str, Any], line: str, tmp_path: Path) -> None:
    assert refusal(saved(tmp_path / "model", **words)) == f"F/config.json: {line}"


def test_a_folder_without_a_model_type_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")
    (folder / "config.json").write_text("{}")
    remedy = f"Only folders of model_type {KNOWN} can be opened."
    assert refusal(folder) == f"F/config.json: names no model_type. {remedy}"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "[" * 100_000, '{"hidden_size": ' + "9" * 5000 + "}", "\ufeff{}", "\0"]
)
def test_a_broken_configuration_is_refused(text: str, tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")
    (folder / "config.json").write_text(text)
    assert refusal(folder).startswith("F/config.json: ")


def test_an_endless_configuration_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")
    with (folder / "config.json").open("wb") as file:
        file.truncate(1 << 30)
    assert refusal(folder) == "F/config.json: is larger than 16 MiB."


def test_code_named_in_a_configuration_is_ignored(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", auto_map={"AutoModel": "evil.Evil"}, trust_remote_code=True)
    (folder / "evil.py").write_text("raise SystemExit")
    assert folders.read(folder).config == SMALL


@pytest.mark.parametrize("words", [{"vocab_size": 1 << 24, "hidden_size": 1 << 24}, {"num_hidden_layers": 1 << 24}])
def test_a_configuration_that_names_huge_sizes_costs_nothing(words: dict[str, int], tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", **words)
    assert "config.json" in at_once(folder)


def test_a_missing_folder_and_missing_files_are_named(tmp_path: Path) -> None:
    named = "Name a model folder, or the folder of a run."
    assert refusal(tmp_path / "nowhere") == f"F: is missing. {named}"
    (tmp_path / "file").touch()
    assert refusal(tmp_path / "file") == f"F: is not a folder. {named}"
    folder = saved(tmp_path / "model")
    assert refusal(tmp_path / "modle") == "F: is missing. Did you mean 'model'?"
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.toml").touch()
    unfinished = "F: is a run without a model yet. Finish it: the command that began it goes on with it."
    assert refusal(tmp_path / "run") == unfinished
    (folder / "model.safetensors").unlink()
    assert refusal(folder) == "F: has no model.safetensors."
    (folder / "config.json").unlink()
    assert refusal(folder) == "F/config.json: is missing."


def test_a_pickle_is_never_opened(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch owned'\ntR.")
    assert refusal(folder) == (
        "F/pytorch_model.bin: is a pickle and is not opened. A pickle can run code: "
        "save the model again with transformers, which writes model.safetensors."
    )


BIAS, DECODER = "cls.predictions.bias", "cls.predictions.decoder.weight"
TABLE = "embeddings.word_embeddings.weight"
TIED = "Only a decoder tied to the embedding can be opened."
HEADS = "Only the trunk, its pretraining heads, a classifier and a span head are known."


@pytest.mark.parametrize(
    ("name", "weight", "line"),
    [
        ("adapter.weight", torch.zeros(2), f"F: unknown weight 'adapter.weight'. {HEADS}"),
        (
            "classifier.weight",
            torch.zeros(2),
            "F/model.safetensors: 'classifier.weight' has shape [2] where config.json says [2, 8].",
        ),
        (BIAS, torch.zeros(29), f"F/model.safetensors: '{BIAS}' has shape [29] where config.json says [30]."),
        (BIAS, torch.zeros(30).long(), f"F/model.safetensors: '{BIAS}' holds I64, not floating-point numbers."),
        (
            DECODER,
            torch.zeros(30, 8),
            f"F/model.safetensors: '{DECODER}' differs from '{TABLE}'. {TIED}",
        ),
        (
            "pooler.dense.bias",
            torch.zeros(8),
            "F/model.safetensors: the weight 'pooler.dense.bias' is there twice.",
        ),
    ],
)
def test_a_weight_that_does_not_fit_is_refused(name: str, weight: torch.Tensor, line: str, tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")
    change(folder, lambda weights: weights.update({name: weight}))
    assert refusal(folder) == line


def test_a_missing_weight_is_named(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")
    change(folder, lambda weights: weights.pop(BIAS))
    assert refusal(folder) == "F: lacks the weight 'cls.predictions.bias'."


def test_a_configuration_with_other_layers_is_refused(tmp_path: Path) -> None:
    assert refusal(saved(tmp_path / "more", num_hidden_layers=3)) == (
        "F: lacks the weight 'encoder.layer.2.attention.self.query.weight'."
    )
    assert refusal(saved(tmp_path / "fewer", num_hidden_layers=1)).startswith("F: unknown weight 'encoder.layer.1.")


def test_a_truncated_file_is_refused_at_any_length(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")
    whole = (folder / "model.safetensors").read_bytes()
    for size in (0, 1, 7, 8, 9, 100, 3000, len(whole) - 1):
        (folder / "model.safetensors").write_bytes(whole[:size])
        line = refusal(folder)
        assert line.startswith("F/model.safetensors: is not a sound safetensors file: ")
        assert line.endswith(" Fetch it again.")


def header(value: Any, size: int | None = None) -> bytes:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return (len(text) if size is None else size).to_bytes(8, "little") + text


@pytest.mark.parametrize(
    "data",
    [
        header({}, 1 << 62),
        header({}, (1 << 64) - 1),
        header({"a": {"dtype": "F32", "shape": [1 << 62, 4], "data_offsets": [0, 0]}}),
        header({"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}),
        header({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}) + bytes(4),
        header({"a": {"dtype": "F32", "shape": [1], "data_offsets": [8, 4]}}) + bytes(8),
        header({"a" * 500_000: {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}) + bytes(4),
        header({"a": {"dtype": "pickle", "shape": [1], "data_offsets": [0, 4]}}) + bytes(4),
        header(b"[" * 500_000),
        header(b"\xff\xfe"),
        header({"__metadata__": {"a": 1}}),
    ],
)
def test_a_malicious_header_is_refused_at_once(data: bytes, tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")
    (folder / "model.safetensors").write_bytes(data)
    assert at_once(folder).startswith("F/model.safetensors: is not a sound safetensors file: ")


def test_a_file_of_ten_thousand_empty_weights_is_refused_at_once(tmp_path: Path) -> None:
    names = [rule.theirs for rule in convert.weight_rules(replace(SMALL, layers=600), ())]
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    folder = saved(tmp_path / "model", num_hidden_layers=600)
    (folder / "model.safetensors").write_bytes(header({name: entry for group in names for name in group}))
    assert "has shape [0]" in at_once(folder)


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("broken") / "model")


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=200))
def test_any_bytes_for_weights_are_refused(broken: Path, data: bytes) -> None:
    (broken / "model.safetensors").write_bytes(data)
    refusal(broken)


def sharded(folder: Path, name: str) -> Path:
    """A folder whose index names one file."""
    saved(folder)
    (folder / "model.safetensors").rename(folder / "part.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    return folder


def test_an_index_names_files_of_its_folder(tmp_path: Path) -> None:
    assert folders.read(sharded(tmp_path / "model", "part.safetensors")).config == SMALL


@pytest.mark.parametrize(
    "name",
    [
        "../part.safetensors",
        "..",
        ".",
        "",
        "/dev/zero",
        "a/../part.safetensors",
        "./part.safetensors",
        "x\0y",
        "~/x",
        "\ud800",
        "x" * 5000,
        "/proc/self/mem",
        "sub/part.safetensors",
    ],
)
def test_an_index_cannot_lead_out_of_its_folder(name: str, tmp_path: Path) -> None:
    assert " leads out of the folder. Put it inside." in refusal(sharded(tmp_path / "model", name))


def test_no_generated_name_leads_out_of_the_folder(tmp_path: Path) -> None:
    folder = saved(tmp_path / "outer/model")
    for link, target in {
        "out": "../..",
        "secret": "../../secret",
        "loop": "loop",
        "in": "config.json",
    }.items():
        (folder / link).symlink_to(target)
    for beside in (tmp_path / "secret", tmp_path / "outer/secret"):
        beside.write_text("secret")
    pieces = [
        "..",
        ".",
        "/",
        "//",
        "\\",
        "\0",
        "~",
        "out",
        "secret",
        "loop",
        "in",
        "model",
        "config.json",
        str(tmp_path),
    ]
    dice = random.Random(0)
    opened = set()
    for _ in range(10_000):
        name = "".join(dice.choices(pieces, k=dice.randint(1, 5)))
        try:
            opened.add(file_inside(folder, name).resolve())
        except FolderError:
            continue
    assert opened == {folder / "config.json"}


@pytest.mark.parametrize("index", ["[]", "{}", '{"weight_map": []}', '{"weight_map": {"a": 1}}'])
def test_an_index_without_names_is_refused(index: str, tmp_path: Path) -> None:
    folder = sharded(tmp_path / "model", "part.safetensors")
    (folder / "model.safetensors.index.json").write_text(index)
    assert refusal(folder).startswith("F/model.safetensors.index.json: ")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_link_cannot_lead_out_of_its_folder(name: str, tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")
    (folder / name).rename(tmp_path / name)
    (folder / name).symlink_to(tmp_path / name)
    assert refusal(folder) == f"F: the file '{name}' leads out of the folder. Put it inside."


def test_what_is_not_a_plain_file_is_refused(tmp_path: Path) -> None:
    folder = sharded(tmp_path / "model", "pipe")
    os.mkfifo(folder / "pipe")
    assert refusal(folder) == "F/pipe: is not a plain file."
    assert refusal(sharded(tmp_path / "other", "absent")) == "F/absent: is missing."
