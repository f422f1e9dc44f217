"""What learns and what stays, and LoRA in PEFT's folders."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from tasks.small import stirred
from torch import Tensor

from bertsmith.data.batch import Tokens
from bertsmith.errors import FolderError, RecipeError
from bertsmith.models.family import FAMILY
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf.layouts import layout_of
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn import lora
from bertsmith.tasks.adapt import AdaptConfig, adapt_task, learning_rate_scales, merge_and_unfreeze
from bertsmith.tasks.adapter import load as read_adapter
from bertsmith.tasks.adapter import save as write_adapter
from bertsmith.tasks.base import Task
from bertsmith.tasks.classification import SequenceClassification
from bertsmith.tasks.embedding import SentenceEmbedding
from bertsmith.tasks.multiple_choice import MultipleChoice
from bertsmith.tasks.question_answering import QuestionAnswering
from bertsmith.tasks.tagging import TokenClassification
from bertsmith.train.optimizers import Optimizer, OptimizerConfig

SMALL = TransformerConfig(vocabulary=40, width=16, layers=3, heads=2, feed_forward=24, max_length=16)
ROWS = [[9, 2, 3, 4, 5], [6, 7, 8]]
TOKENS = Tokens.from_rows(ROWS, [[0, 0, 1, 1, 1], [0, 1, 1]])
LORA = AdaptConfig(kind="lora", rank=2, alpha=5.0, targets=("query", "value"))
PARTED = ("query", "key", "value", "output", "up", "down")
WHOLE = ("output", "up", "down", "qkv")
TASKS: dict[str, Callable[[Transformer], Task]] = {
    "classify": lambda trunk: SequenceClassification(trunk, SequenceClassification.Config(), ("no", "so-so", "yes")),
    "tag": lambda trunk: TokenClassification(trunk, TokenClassification.Config(), ("O", "B", "I")),
    "answer": lambda trunk: QuestionAnswering(trunk, QuestionAnswering.Config(), ()),
    "choose": lambda trunk: MultipleChoice(trunk, MultipleChoice.Config(), ("0", "1")),
    "embed": lambda trunk: SentenceEmbedding(trunk, SentenceEmbedding.Config(), ()),
}


SIZES: dict[str, Any] = {"vocabulary": 40, "width": 16, "layers": 3, "heads": 2, "feed_forward": 24, "max_length": 16}
MEMBERS: dict[str, TransformerConfig] = {
    "bert": SMALL,
    "roberta": replace(FAMILY["roberta-base"], **SIZES),
    "albert": replace(FAMILY["albert-base"], **SIZES, embedding_width=8),
    "electra": replace(FAMILY["electra-small"], **SIZES, embedding_width=8),
    "modernbert": replace(FAMILY["modernbert-base"], **SIZES, window=2),
    "smith": replace(FAMILY["smith-base"], **SIZES),
    "gpt2": replace(FAMILY["gpt2"], **SIZES),
}
FUSED = ("modernbert", "smith", "gpt2")  # query, key and value are one weight in their folders


def made(kind: str = "classify", member: str = "bert") -> Task:
    task: Task = stirred(TASKS[kind](Transformer(MEMBERS[member])))
    return task


def usual(member: str) -> tuple[str, ...]:
    return ("qkv",) if member in FUSED else ("query", "value")


def every(member: str) -> tuple[str, ...]:
    return WHOLE if member in FUSED else PARTED


CASES = [
    *[(kind, "bert", targets) for kind in TASKS for targets in (usual("bert"), ("down",))],
    *[("embed", member, targets) for member in MEMBERS if member != "bert" for targets in (usual(member), ("down",))],
    *[(kind, member, every(member)) for member in MEMBERS for kind in TASKS if (kind, member) != ("choose", "gpt2")],
]


def learnt(task: Task, config: AdaptConfig = LORA) -> Task:
    """As after training: adapted, and nothing that can learn is as it was."""
    adapt_task(task, config, seed=0)
    dice = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in task.parameters():
            if parameter.requires_grad:
                parameter.normal_(0, 0.3, generator=dice)
    return task


def said(task: Task) -> Tensor:
    with torch.no_grad():
        return torch.cat([output.flatten() for output in task.outputs(TOKENS)])


def learning(task: Task) -> set[str]:
    return {name for name, parameter in task.named_parameters() if parameter.requires_grad}


# ------------------------------------------------------------------------------------------------- what learns


def test_full_fine_tuning_trains_everything() -> None:
    task = made()
    adapt_task(task, AdaptConfig(), seed=0)
    assert learning(task) == {name for name, _ in task.named_parameters()}


@pytest.mark.parametrize(("freeze", "layers"), [(1, 3), (2, 2), (4, 0)])
def test_the_embeddings_and_the_lowest_layers_can_be_frozen(freeze: int, layers: int) -> None:
    task = made()
    adapt_task(task, AdaptConfig(freeze=freeze), seed=0)
    top = tuple(f"trunk.layers.{3 - number}." for number in range(1, layers + 1))
    names = {name for name, _ in task.named_parameters()}
    assert learning(task) == {name for name in names if name.startswith(("pooler.", "classifier.", *top))}


def test_with_a_frozen_trunk_only_the_heads_are_trained() -> None:
    task = made()
    adapt_task(task, AdaptConfig(kind="frozen"), seed=0)
    assert learning(task) == {f"{head}.dense.{end}" for head in ("pooler", "classifier") for end in ("weight", "bias")}


def test_a_frozen_trunk_stays_without_dropout_and_out_of_the_graph() -> None:
    task = made()
    adapt_task(task, AdaptConfig(kind="frozen"), seed=0)
    task.train()
    for copied in (task, copy.deepcopy(task).train()):
        assert not any(module.training for module in copied.trunk.modules())
        assert copied.classifier.training  # type: ignore[union-attr]
        hidden = copied.trunk(TOKENS)
        assert torch.equal(hidden, copied.trunk(TOKENS))
        assert hidden.grad_fn is None
    merge_and_unfreeze(task)
    assert all(module.training for module in task.modules())
    assert not torch.equal(task.trunk(TOKENS), task.trunk(TOKENS))
    task.eval()
    assert not task.trunk.training


def test_with_lora_the_heads_and_the_low_rank_matrices_are_trained() -> None:
    task = made("tag")
    adapt_task(task, LORA, seed=0)
    thin = {f"trunk.layers.{n}.attention.qkv.{end}" for n in range(3) for end in ("lora_a", "lora_b")}
    assert learning(task) == thin | {"classifier.dense.weight", "classifier.dense.bias"}


@pytest.mark.parametrize("kind", ["full", "frozen", "lora"])
def test_a_merged_network_has_its_first_names_and_the_same_outputs(kind: Any) -> None:
    task = learnt(made(), AdaptConfig(kind=kind, targets=("key", "down")))
    before = said(task)
    merge_and_unfreeze(task)
    torch.testing.assert_close(said(task), before, rtol=0, atol=1e-5)
    assert list(task.state_dict()) == list(made().state_dict())
    assert learning(task) == {name for name, _ in task.named_parameters()}


@pytest.mark.parametrize("kind", ["full", "frozen", "lora"])
def test_an_optimizer_updates_trained_weights_only(kind: Any) -> None:
    task = made()
    config = AdaptConfig(kind=kind, layer_decay=1.0 if kind == "frozen" else 0.5)
    adapt_task(task, config, seed=0)
    task.train()
    before = {name: weight.clone() for name, weight in task.state_dict().items()}
    optimizer = Optimizer(task, OptimizerConfig(learning_rate=0.01), learning_rate_scales(task, config))
    for _ in range(2):  # in the first step LoRA's A has no gradient while B is zero
        sum(output.square().sum() for output in task.outputs(TOKENS)).backward()  # type: ignore[union-attr]
        optimizer.step_at(1.0)
    moved = {name for name, weight in task.state_dict().items() if not torch.equal(weight, before[name])}
    unmoved = learning(task) - moved
    assert moved <= learning(task)
    assert not unmoved, unmoved


def test_each_layer_learns_slower_than_the_one_above_it() -> None:
    task = made()
    shares = learning_rate_scales(task, AdaptConfig(layer_decay=0.5))
    assert shares.keys() == {name for name, _ in task.named_parameters()}
    assert shares["classifier.dense.bias"] == shares["pooler.dense.weight"] == 1.0
    assert shares["trunk.layers.2.attention.qkv.weight"] == 0.5
    assert shares["trunk.layers.0.feed_forward_norm.bias"] == 0.125
    assert shares["trunk.embedding.weight"] == shares["trunk.embedding_norm.bias"] == 0.0625
    assert set(learning_rate_scales(task, AdaptConfig()).values()) == {1.0}


def test_a_task_without_a_head_cannot_learn_on_a_frozen_trunk() -> None:
    with pytest.raises(RecipeError) as caught:
        adapt_task(made("embed"), AdaptConfig(kind="frozen"), seed=0)
    assert str(caught.value) == (
        "adapt: with kind 'frozen' nothing is left to learn, as this task has no head. Use 'lora', or freeze less."
    )


def test_more_cannot_be_frozen_than_there_is() -> None:
    with pytest.raises(RecipeError) as caught:
        adapt_task(made(), AdaptConfig(freeze=5), seed=0)
    assert str(caught.value) == "adapt.freeze: 5 is more than the embeddings and 3 layers. Give at most 4."


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"rank": 0}, "rank is 0. Give at least 1"),
        ({"alpha": 0.0}, "alpha is 0.0. Give more than 0"),
        ({"dropout": 1.0}, "dropout is 1.0. Give a share, at least 0 and below 1"),
        ({"targets": ("key", "key")}, "targets are ['key', 'key']. Name none twice"),
        ({"targets": ("querry",)}, "unknown target 'querry'. Did you mean 'query'?"),
        ({"layer_decay": 0.0}, "layer_decay is 0.0. Give more than 0 and at most 1"),
        (
            {"layer_decay": 0.9, "kind": "frozen"},
            "layer_decay is for layers that learn. Leave it out, or use kind 'full' or 'lora'",
        ),
        ({"freeze": -1}, "freeze is -1. Give at least 0, and more only with kind 'full'"),
        ({"freeze": 1, "kind": "lora"}, "freeze is 1. Give at least 0, and more only with kind 'full'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError) as caught:
        AdaptConfig(**settings)
    assert str(caught.value) == line


@pytest.mark.parametrize("member", MEMBERS)
def test_without_targets_the_default_ones_are_adapted(member: str) -> None:
    task = made(member=member)
    adapt_task(task, AdaptConfig(kind="lora"), seed=0)
    assert {pair.target for pair in lora.pairs(task.trunk)} == set(usual(member))


@pytest.mark.parametrize(
    ("member", "target", "known"),
    [
        ("bert", "qkv", "query, key, value, output, up, down"),
        ("smith", "value", "output, up, down, qkv"),
    ],
)
def test_a_target_that_no_folder_has_a_name_for_is_refused(member: str, target: str, known: str) -> None:
    with pytest.raises(RecipeError) as caught:
        adapt_task(made(member=member), AdaptConfig(kind="lora", targets=(target,)), seed=0)
    fact = f"'{target}' is not a separate weight in this network's folder"
    assert str(caught.value) == f"adapt.targets: {fact}. Known: {known}."


def test_a_task_that_transformers_has_no_class_for_is_refused_before_it_learns() -> None:
    with pytest.raises(RecipeError) as caught:
        adapt_task(made("choose", "gpt2"), AdaptConfig(kind="lora"), seed=0)
    assert str(caught.value) == (
        "adapt.kind: transformers has no class for MultipleChoice with this network, so LoRA has no names. "
        "Use 'full' or 'frozen'."
    )


@pytest.mark.parametrize("member", MEMBERS)
def test_every_member_learns_by_lora_and_is_whole_again_afterwards(member: str) -> None:
    task = made(member=member)
    adapt_task(task, AdaptConfig(kind="lora", targets=every(member)), seed=0)
    before = {name: weight.clone() for name, weight in task.state_dict().items()}
    optimizer = Optimizer(
        task, OptimizerConfig(learning_rate=0.01), learning_rate_scales(task, AdaptConfig(kind="lora", layer_decay=0.5))
    )
    for _ in range(2):
        sum(output.square().sum() for output in task.outputs(TOKENS)).backward()  # type: ignore[union-attr]
        optimizer.step_at(1.0)
    moved = {name for name, weight in task.state_dict().items() if not torch.equal(weight, before[name])}
    assert moved == learning(task)
    after = said(task)
    merge_and_unfreeze(task)
    torch.testing.assert_close(said(task), after, rtol=0, atol=1e-5)
    assert list(task.state_dict()) == list(made(member=member).state_dict())


# -------------------------------------------------------------------------------------------- LoRA in a folder


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "member", "targets"), CASES)
def test_an_adapter_that_is_written_is_read_again(
    kind: str, member: str, targets: tuple[str, ...], tmp_path: Path
) -> None:
    config = AdaptConfig(kind="lora", rank=2, alpha=2.5, dropout=0.1, targets=targets)
    task = learnt(made(kind, member), config)
    write_adapter(tmp_path, task, config, "base")
    other = made(kind, member)
    assert read_adapter(tmp_path, other) == config
    assert torch.equal(said(other), said(task))
    assert not torch.equal(said(other), said(made(kind, member)))
    assert learning(other) == learning(task)
    assert {path.name for path in tmp_path.iterdir()} == {"adapter_config.json", "adapter_model.safetensors"}


def test_an_adapter_holds_the_low_rank_matrices_and_the_heads_under_pefts_names(tmp_path: Path) -> None:
    write_adapter(tmp_path, learnt(made()), LORA, "someone/base")
    tensors = safetensors.torch.load_file(tmp_path / "adapter_model.safetensors")
    shapes = {name.removeprefix("base_model.model."): tuple(tensor.shape) for name, tensor in tensors.items()}
    expected = {
        f"bert.encoder.layer.{n}.attention.self.{part}.lora_{end}.weight": shape
        for n in range(3)
        for part in ("query", "value")
        for end, shape in (("A", (2, 16)), ("B", (16, 2)))
    }
    expected |= {"bert.pooler.dense.weight": (16, 16), "bert.pooler.dense.bias": (16,)}
    expected |= {"classifier.weight": (3, 16), "classifier.bias": (3,)}
    assert shapes == expected
    assert all(name.startswith("base_model.model.") for name in tensors)
    words = json.loads((tmp_path / "adapter_config.json").read_text())
    assert (words["peft_type"], words["task_type"]) == ("LORA", "SEQ_CLS")
    assert (words["r"], words["lora_alpha"], words["bias"]) == (2, 5, "none")
    assert words["base_model_name_or_path"] == "someone/base"
    assert words["modules_to_save"] == ["classifier", "pooler.dense"]
    assert "bert.encoder.layer.2.attention.self.value" in words["target_modules"]


NAMES = {  # of the first layer's `every`, and of all that is no LoRA, in PEFT's own spelling
    "roberta": (
        "roberta.encoder.layer.0",
        {"attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"}
        | {"intermediate.dense", "output.dense"},
        {"classifier.dense", "classifier.out_proj"},
        ["classifier"],
    ),
    "albert": (
        "albert.encoder.albert_layer_groups.0.albert_layers.0",
        {"attention.query", "attention.key", "attention.value", "attention.dense", "ffn", "ffn_output"},
        {"albert.pooler", "classifier"},
        ["classifier", "pooler"],
    ),
    "electra": (
        "electra.encoder.layer.0",
        {"attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"}
        | {"intermediate.dense", "output.dense"},
        {"classifier.dense", "classifier.out_proj"},
        ["classifier"],
    ),
    "modernbert": (
        "model.layers.0",
        {"attn.Wqkv", "attn.Wo", "mlp.Wi", "mlp.Wo"},
        {"head.dense", "head.norm", "classifier"},
        ["classifier", "head.dense", "head.norm"],
    ),
    "gpt2": ("transformer.h.0", {"attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"}, {"score"}, ["score"]),
}


@pytest.mark.parametrize("member", NAMES)
def test_each_member_has_the_names_of_its_class(member: str, tmp_path: Path) -> None:
    config = AdaptConfig(kind="lora", rank=2, targets=every(member))
    write_adapter(tmp_path, learnt(made(member=member), config), config, "base")
    tensors = safetensors.torch.load_file(tmp_path / "adapter_model.safetensors")
    first, inside, heads, saved = NAMES[member]
    names = {name.removeprefix("base_model.model.") for name in tensors}
    assert {name for name in names if name.startswith(f"{first}.")} == {
        f"{first}.{module}.lora_{end}.weight" for module in inside for end in "AB"
    }
    assert {name.rpartition(".")[0] for name in names if ".lora_" not in name} == heads
    layers = 1 if member == "albert" else 3
    assert sum(".lora_" in name for name in names) == layers * len(inside) * 2
    words = json.loads((tmp_path / "adapter_config.json").read_text())
    assert words["modules_to_save"] == saved
    assert len(words["target_modules"]) == layers * len(inside)
    assert words["fan_in_fan_out"] is (member == "gpt2")


@pytest.mark.parametrize("member", MEMBERS)
def test_an_adapter_merged_into_transformers_weights_gives_the_same_outputs(member: str, tmp_path: Path) -> None:
    """By hand what PEFT does: W + (alpha / r) B A, and the heads put in place."""
    task = made(member=member)
    reference = theirs(task, tmp_path / "base")
    config = AdaptConfig(kind="lora", rank=2, alpha=5.0, targets=every(member))
    learnt(task, config)
    write_adapter(tmp_path / "adapter", task, config, str(tmp_path / "base"))
    tensors = safetensors.torch.load_file(tmp_path / "adapter/adapter_model.safetensors")
    state = reference.state_dict()
    for name, tensor in tensors.items():
        name = name.removeprefix("base_model.model.")
        if name.endswith(".lora_B.weight"):
            down = tensors[f"base_model.model.{name.replace('lora_B', 'lora_A')}"]
            update = 2.5 * tensor @ down
            state[name.replace(".lora_B", "")] += update.T if member == "gpt2" else update
        elif ".lora_A." not in name:
            state[name].copy_(tensor)
    torch.testing.assert_close(asked(reference), said(task), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("kind", "member", "targets"), [case for case in CASES if case[0] != "choose"])
@pytest.mark.filterwarnings("ignore")
def test_peft_opens_what_is_written_and_what_it_writes_is_read(
    kind: str, member: str, targets: tuple[str, ...], tmp_path: Path
) -> None:
    peft = pytest.importorskip("peft")
    task = made(kind, member)
    reference = theirs(task, tmp_path / "base")
    config = AdaptConfig(kind="lora", rank=2, alpha=5.0, targets=targets)
    learnt(task, config)
    write_adapter(tmp_path / "ours", task, config, str(tmp_path / "base"))
    model = peft.PeftModel.from_pretrained(reference, str(tmp_path / "ours")).eval()
    torch.testing.assert_close(asked(model), said(task), rtol=0, atol=1e-5)
    model.save_pretrained(tmp_path / "theirs")
    back = made(kind, member)
    assert read_adapter(tmp_path / "theirs", back) == config
    torch.testing.assert_close(said(back), said(task), rtol=0, atol=0)
    merged = model.merge_and_unload()
    merge_and_unfreeze(task)
    torch.testing.assert_close(asked(merged), said(task), rtol=0, atol=1e-5)


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.filterwarnings("ignore")
def test_an_adapter_made_by_peft_is_read(member: str, tmp_path: Path) -> None:
    """Targets by their short names, as its users write them, and the classifier that it saves unasked."""
    peft = pytest.importorskip("peft")
    reference = theirs(made(member=member), tmp_path / "base")
    short = {"modernbert": ["Wqkv"], "smith": ["Wqkv"], "gpt2": ["c_attn"]}.get(member, ["query", "value"])
    words = peft.LoraConfig(task_type="SEQ_CLS", r=2, lora_alpha=5, target_modules=short, init_lora_weights=False)
    model = peft.get_peft_model(reference, words).eval()
    model.save_pretrained(tmp_path / "theirs")
    task = made(member=member)
    opened = folders.read(tmp_path / "base")
    task.load_state_dict(opened.state_dict, strict=False)
    assert read_adapter(tmp_path / "theirs", task) == AdaptConfig(kind="lora", rank=2, alpha=5, targets=usual(member))
    torch.testing.assert_close(asked(model), said(task), rtol=0, atol=1e-5)


def theirs(task: Task, folder: Path) -> Any:
    """The same network in transformers, through a folder."""
    import transformers

    config, state = task.trunk.config, task.state_dict()
    dialect = layout_of(config)
    heads = ("trunk.", "pooler.") if "pooler" in dialect.pretrained or dialect.shares_head else ("trunk.",)
    plain = {name: weight for name, weight in state.items() if name.startswith(heads)}
    folders.write(folder, config, plain, {"pad_token_id": 39} if config.causal else {})
    kind = {
        SequenceClassification: "classify",
        TokenClassification: "tag",
        QuestionAnswering: "answer",
        SentenceEmbedding: "trunk",
    }[type(task)]
    labels = {"num_labels": len(task.labels)} if task.labels else {}
    return getattr(transformers, dialect.architectures[kind]).from_pretrained(folder, **labels).eval()


def asked(model: Any) -> Tensor:
    """What transformers says of each row, in the shape of `said`."""
    found = []
    marked = model.config.model_type in ("bert", "albert", "electra")  # whose networks have segments
    with torch.no_grad():
        for row, segments in zip(ROWS, ([0, 0, 1, 1, 1], [0, 1, 1]), strict=True):
            second = {"token_type_ids": torch.tensor([segments])} if marked else {}
            out = model(input_ids=torch.tensor([row]), **second)
            if "start_logits" in out:
                found.append(torch.stack([out.start_logits[0], out.end_logits[0]], -1).flatten())
            elif "logits" in out:
                found.append(out.logits.flatten())
            else:
                found.append(torch.nn.functional.normalize(out.last_hidden_state[0].mean(0), dim=0))
    return torch.cat(found)


def test_a_missing_pooler_is_that_of_the_base_model(tmp_path: Path) -> None:
    write_adapter(tmp_path, learnt(made()), LORA, "base")
    change(tmp_path, lambda tensors: [tensors.pop(name) for name in list(tensors) if ".pooler." in name])
    task = made()
    read_adapter(tmp_path, task)
    for name, weight in made().pooler.state_dict().items():  # type: ignore[union-attr]
        assert torch.equal(task.pooler.state_dict()[name], weight)  # type: ignore[union-attr]


@pytest.mark.parametrize("member", ["roberta", "electra"])
def test_a_pooler_that_the_base_model_lacks_is_required(member: str, tmp_path: Path) -> None:
    write_adapter(tmp_path, learnt(made(member=member)), LORA, "base")
    change(tmp_path, lambda tensors: tensors.pop("base_model.model.classifier.dense.bias"))
    with pytest.raises(FolderError, match=r"lacks the weight 'base_model\.model\.classifier\.dense\.bias'\.$"):
        read_adapter(tmp_path, made(member=member))


def test_heads_without_a_name_in_an_adapter_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(FolderError) as caught:
        write_adapter(tmp_path / "adapter", made(), LORA, "base")
    assert str(caught.value) == f"{tmp_path}/adapter: the network has no LoRA to write. Train it with adapt.kind=lora."
    task = learnt(made())
    task.extra = torch.nn.Linear(2, 2)
    with pytest.raises(FolderError) as caught:
        write_adapter(tmp_path / "adapter", task, LORA, "base")
    assert str(caught.value) == f"{tmp_path}/adapter: transformers has no name for the head 'extra'."
    assert not (tmp_path / "adapter").exists()


def change(folder: Path, edit: Callable[[dict[str, Tensor]], Any]) -> None:
    tensors = safetensors.torch.load_file(folder / "adapter_model.safetensors")
    edit(tensors)
    safetensors.torch.save_file(tensors, folder / "adapter_model.safetensors")


def reword(folder: Path, **words: Any) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **words}))


def refusal(folder: Path) -> str:
    """The one line with which an adapter is refused; the task is as it was."""
    task = made()
    with pytest.raises(FolderError) as caught:
        read_adapter(folder, task)
    for (name, weight), before in zip(task.state_dict().items(), made().state_dict().values(), strict=True):
        assert torch.equal(weight, before), name
    line = str(caught.value)
    assert "\n" not in line
    assert len(line) < 500
    return line.replace(str(folder), "F")


QUERY = "base_model.model.bert.encoder.layer.0.attention.self.query.lora_A.weight"


@pytest.mark.parametrize(
    ("edit", "line"),
    [
        (lambda t: t.pop(QUERY.replace("0", "2")), f"lacks the weight '{QUERY.replace('0', '2')}'."),
        (lambda t: t.pop("base_model.model.classifier.bias"), "lacks the weight 'base_model.model.classifier.bias'."),
        (lambda t: t.update({QUERY: torch.zeros(3, 16)}), f"'{QUERY}' has shape [3, 16], not [2, 16]."),
        (
            lambda t: t.update({QUERY: torch.zeros(2, 16, dtype=torch.int64)}),
            f"'{QUERY}' holds I64, not floating-point numbers.",
        ),
        (
            lambda t: t.update({QUERY.replace("0", "3"): torch.zeros(2, 16)}),
            f"unknown weight '{QUERY.replace('0', '3')}'. Only LoRA in the layers and the heads of this task are",
        ),
    ],
)
def test_weights_that_do_not_fit_are_refused(
    edit: Callable[[dict[str, Tensor]], Any], line: str, tmp_path: Path
) -> None:
    write_adapter(tmp_path, learnt(made()), LORA, "base")
    change(tmp_path, edit)
    assert refusal(tmp_path).startswith(f"F/adapter_model.safetensors: {line}")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ({"peft_type": "IA3"}, "peft_type is 'IA3'. Only 'LORA' can be opened."),
        ({"peft_type": None}, "peft_type is None. Only 'LORA' can be opened."),
        ({"use_dora": True}, "use_dora is True. Only False can be opened."),
        ({"fan_in_fan_out": True}, "fan_in_fan_out is True. Only False can be opened."),
        ({"rank_pattern": {"query": 4}}, "rank_pattern is {'query': 4}. Only {} can be opened."),
        ({"r": "2"}, "r is '2'. Give a whole number."),
        ({"r": True}, "r is True. Give a whole number."),
        ({"r": 10**400}, "r is 100000000"),
        ({"r": 0}, "rank is 0. Give at least 1."),
        ({"lora_alpha": float("nan")}, "lora_alpha is nan. Give a number."),
        ({"lora_dropout": 2}, "dropout is 2. Give a share, at least 0 and below 1."),
    ],
)
def test_unusable_label_words_are_refused(words: dict[str, Any], line: str, tmp_path: Path) -> None:
    write_adapter(tmp_path, learnt(made()), LORA, "base")
    reword(tmp_path, **words)
    assert refusal(tmp_path).startswith(f"F/adapter_config.json: {line}")


def test_an_adapter_of_another_network_is_refused(tmp_path: Path) -> None:
    write_adapter(tmp_path, learnt(made("embed")), LORA, "base")
    assert refusal(tmp_path) == f"F: adapts no matrix of layer 0. Its weights must have names such as '{QUERY}'."


def test_a_network_is_adapted_once(tmp_path: Path) -> None:
    task = learnt(made())
    write_adapter(tmp_path, task, LORA, "base")
    with pytest.raises(FolderError, match=r"the network is adapted already\. Load it into a new one\.$"):
        read_adapter(tmp_path, task)


def test_a_folder_that_is_no_adapter_gives_one_line(tmp_path: Path) -> None:
    assert refusal(tmp_path / "missing") == "F: is missing."
    adapter = tmp_path / "adapter"
    write_adapter(adapter, learnt(made()), LORA, "base")
    weights = adapter / "adapter_model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1])
    assert refusal(adapter).startswith("F/adapter_model.safetensors: is not a sound safetensors file: ")
    weights.unlink()
    assert refusal(adapter) == "F/adapter_model.safetensors: is missing."
    (adapter / "adapter_model.bin").write_bytes(b"")
    assert refusal(adapter) == (
        "F/adapter_model.bin: is a pickle and is not opened. A pickle can run code: save it again with a newer PEFT, "
        "which writes adapter_model.safetensors."
    )
    (tmp_path / "elsewhere").write_bytes(whole)
    weights.symlink_to("../elsewhere")
    assert refusal(adapter) == "F: the file 'adapter_model.safetensors' leads out of the folder. Put it inside."
    (adapter / "adapter_config.json").write_bytes(b"[1]")
    assert refusal(adapter) == "F/adapter_config.json: does not hold a JSON object."
    with (adapter / "adapter_config.json").open("wb") as file:
        file.truncate(folders.MAX_JSON_BYTES + 1)
    assert refusal(adapter) == "F/adapter_config.json: is larger than 16 MiB."
