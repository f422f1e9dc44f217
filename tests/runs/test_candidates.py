"""The recipes among which `make` chooses: their shapes, their objectives, and no position that is not trained."""

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
import torch
from tiny import prepared, write_text

from bertsmith.commands import make, pretrain
from bertsmith.errors import RecipeError
from bertsmith.models.family import FAMILY
from bertsmith.models.hf import folder as folders
from bertsmith.recipe import Recipe
from bertsmith.runs import autoconfig, candidates
from bertsmith.train import hardware
from bertsmith.train.clock import Clock
from bertsmith.train.schedules import ScheduleConfig

# Of every member: its kind, layers, width, objective and length in a short run, tiny and base.
MEMBERS = {
    "smith": (("smith-tiny", 2, 128, "masked_lm", 128), ("smith-base", 12, 768, "masked_lm", 128)),
    "bert": (("bert-tiny", 2, 128, "masked_lm", 32), ("bert-base", 12, 768, "masked_lm", 32)),
    "roberta": (("roberta-base", 2, 128, "masked_lm", 32), ("roberta-base", 12, 768, "masked_lm", 32)),
    "albert": (("albert-base", 2, 128, "masked_lm", 32), ("albert-base", 12, 768, "masked_lm", 32)),
    "electra": (("electra-base", 2, 128, "replaced_tokens", 32), ("electra-base", 12, 768, "replaced_tokens", 32)),
    "modernbert": (("modernbert-base", 2, 128, "masked_lm", 128), ("modernbert-base", 22, 768, "masked_lm", 128)),
    "gpt": (("gpt", 2, 128, "causal_lm", 32), ("gpt", 12, 768, "causal_lm", 32)),
    "gpt2": (("gpt2", 2, 128, "causal_lm", 32), ("gpt2", 12, 768, "causal_lm", 32)),
    "t5": (("t5-base", 2, 128, "span_corruption", 128), ("t5-base", 12, 768, "span_corruption", 128)),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("text"))


def built(data: Path, size: str = "tiny", *, seen: float = 1e6, gpu: bool = False, like: str = "smith") -> Recipe:
    return candidates.build(size, data, Path("out"), budget=60.0, tokens_seen=seen, gpu=gpu, pairs=True, like=like)


def test_every_member_that_make_can_be_asked_for_is_in_the_table() -> None:
    assert list(MEMBERS) == list(candidates.LIKES)


@pytest.mark.parametrize("like", list(MEMBERS))
def test_a_member_is_built_by_its_own_recipe_at_any_size(like: str, data: Path) -> None:
    for size, expected in zip(("tiny", "base"), MEMBERS[like], strict=True):
        recipe = built(data, size, like=like)
        shape = recipe.model.settings
        assert (
            recipe.model.kind,
            shape.layers,
            shape.width,
            recipe.objective.kind,
            recipe.data.max_length,
        ) == expected
        assert candidates.like_of(recipe.model.kind) == like
    for size, settings in candidates.SIZES.items():
        _, shape = candidates.network(like, size)
        assert shape.head_size == 64
        if size in ("tiny", "medium"):
            layers = 12 if (like, size) == ("smith", "medium") else settings.layers
            assert (shape.layers, shape.width) == (layers, settings.width)
    assert candidates.flops_per_token(like, "tiny", 100) < candidates.flops_per_token(like, "base", 100)


def test_only_short_runs_start_from_counts_and_only_long_ones_have_causal_rows(data: Path) -> None:
    for seen, embeddings, objective in (
        (1e6, "cooccurrence", "masked_lm"),
        (5e7, "random", "masked_lm"),
        (2e8, "random", "mixed"),
    ):
        recipe = built(data, "medium", seen=seen, gpu=True)
        assert (recipe.embeddings, recipe.objective.kind) == (embeddings, objective)
        reasons = " ".join(autoconfig._reasons(recipe, 60.0, seen, 1.0))
        assert ("a head start" in reasons) == (embeddings == "cooccurrence")
        assert ("one row in 8" in reasons) == (objective == "mixed")
    assert built(data, like="bert").embeddings == "random"  # as in its paper


@pytest.mark.parametrize(
    ("kind", "tokenizer"),
    [
        ("bert-base", "wordpiece"),
        ("electra-small", "wordpiece"),
        ("albert-base", "unigram"),
        ("modernbert-large", "bpe"),
        ("roberta-base", "bpe"),
        ("gpt2-medium", "bpe"),
        ("t5-small", "t5"),
        ("lstm-small", "words"),
        ("elmo", "words"),
    ],
)
def test_each_member_has_its_kind_of_tokenizer(kind: str, tokenizer: str) -> None:
    assert candidates.tokenizer_kind(kind, FAMILY[kind]) == tokenizer


def test_a_network_that_is_changed_gets_the_tokenizer_that_it_needs() -> None:
    assert candidates.tokenizer_kind("smith-base", replace(FAMILY["smith-base"], causal=True)) == "bpe"
    assert candidates.tokenizer_kind("albert-base", replace(FAMILY["albert-base"], causal=True)) == "bpe"


@pytest.mark.parametrize("like", list(MEMBERS))
@pytest.mark.parametrize("seen", [1e6, 5e7, 1e9])
def test_no_position_is_claimed_that_is_not_trained(like: str, seen: float, data: Path) -> None:
    recipe = built(data, seen=seen, like=like)
    assert recipe.model.settings.max_length == recipe.data.max_length


def test_longer_runs_take_longer_sequences_where_positions_are_learned(data: Path) -> None:
    assert [built(data, seen=seen, like="bert").data.max_length for seen in (1e6, 5e7, 1e9)] == [32, 64, 128]


@pytest.mark.parametrize(
    ("like", "said"),
    [
        ("bert", "falling to zero at the end"),
        ("gpt2", "falling to zero at the end, by a cosine"),
        ("modernbert", "constant, and falling to zero at the end"),
        ("t5", "falling with the root of the steps, not to zero"),
    ],
)
def test_the_learning_rate_is_said_to_fall_as_its_schedule_does(like: str, said: str, data: Path) -> None:
    assert autoconfig._reasons(built(data, like=like), 60.0, 1e6, 1.0)[-1].endswith(f", {said}")
    assert set(autoconfig.DECAYS) == set(get_args(ScheduleConfig.__annotations__["kind"]))


def test_muons_learning_rate_falls_with_the_root_of_the_updates(data: Path) -> None:
    runs = [built(data, "base", seen=seen, gpu=True) for seen in (300 * 16_384, 2_000 * 16_384, 8_000 * 32_768, 1e11)]
    assert [one.data.batch_tokens for one in runs] == [16_384, 16_384, 32_768, 32_768]
    assert [one.optimizer.muon_learning_rate for one in runs] == [0.032, 0.012, 0.0061, 0.003]
    assert {one.optimizer.learning_rate for one in runs} == {1e-3}


def test_a_size_is_named_by_the_network_that_is_made() -> None:
    assert candidates.size_name("smith", "medium") == "smith-medium, 12 layers of width 512"
    assert candidates.size_name("bert", "medium") == "bert-medium, 8 layers of width 512"


def test_a_text_that_is_seen_often_gets_dropout(data: Path) -> None:
    assert [built(data, seen=seen).model.settings.dropout for seen in (1e4, 1e7)] == [0.0, 0.1]


def test_an_unknown_member_is_one_line() -> None:
    with pytest.raises(RecipeError) as caught:
        candidates.find_like("roberto")
    assert str(caught.value) == "--like: there is no 'roberto' to make. Did you mean 'roberta'?"


def test_a_continued_model_is_made_like_no_other(tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        make.make(["text.txt"], tmp_path / "run", like="bert", start=tmp_path)
    assert str(caught.value) == "--like: a model that is continued stays what it is. Leave out --like, or --from."


@pytest.mark.slow("makes a model")
def test_make_writes_the_member_asked_for_and_resumes_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Clock, "progress", lambda self, step, epoch: min(1.0, step / 3))  # three steps are a run
    text = [str(write_text(tmp_path / "text.txt", 200))]
    make.make(text, tmp_path / "run", budget="20s", like="electra")
    recipe = pretrain.read_recipe(tmp_path / "run" / "recipe.toml", [])
    assert (recipe.model.kind, recipe.objective.kind) == ("electra-base", "replaced_tokens")
    written = folders.read(tmp_path / "run" / "model").config
    assert (written.layers, written.width, written.max_length) == (2, 128, 32)
    with pytest.raises(RecipeError) as caught:
        make.make(text, tmp_path / "run", budget="20s", like="bert")
    fact = "its run was begun with --like electra, and not bert"
    assert (
        str(caught.value) == f"{tmp_path / 'run'}: {fact}. Leave the option out to resume it, or choose another folder."
    )


def test_the_size_is_chosen_by_measured_pace_and_only_what_matters_is_measured() -> None:
    flops = dict(zip(candidates.SIZES, (1.0, 5.0, 20.0, 40.0, 120.0, 400.0), strict=True))
    asked: list[str] = []

    def measure(size: str) -> float:
        asked.append(size)
        return {"tiny": 1e6, "mini": 1.5e5}[size]

    size, paces = autoconfig.measured_size(flops, 100.0, 1e9, measure)
    assert (size, asked) == ("mini", ["tiny", "mini"])  # 15 M tokens, of which mini pays from 10 M and small from 40 M
    assert paces["mini"] == 1.5e5
    assert paces["small"] == 1.5e5 * 5 / 20
    asked.clear()
    assert autoconfig.measured_size(flops, 1.0, 1e9, measure)[0] == "tiny"
    assert asked == ["tiny"]


def test_the_pace_is_measured_on_the_recipe_that_is_chosen(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Length and batch of the measured recipe follow the tokens of the whole run."""
    measured: list[Recipe] = []

    def measure(recipe: Recipe, device: torch.device) -> float:
        measured.append(recipe)
        return 1e5

    monkeypatch.setattr(autoconfig, "measure_pace", measure)
    monkeypatch.setattr(hardware, "training_flops", lambda device: 1e11)
    chosen = autoconfig.choose_recipe(data, Path("out"), budget=100.0, device=torch.device("cpu")).recipe
    assert (measured[0].data.max_length, measured[0].data.batch_tokens) == (128, 2_048)
    assert (chosen.data.max_length, chosen.data.batch_tokens) == (128, 2_048)


def test_without_pairs_masked_language_modelling_is_alone(data: Path) -> None:
    options = {"budget": 60.0, "tokens_seen": 1e6, "gpu": False}
    found = [candidates.build("tiny", data, Path("out"), pairs=pairs, **options) for pairs in (True, False)]
    assert [recipe.objective.settings.pairs for recipe in found] == ["nsp", "none"]


@pytest.mark.parametrize(
    ("tokens_seen", "epochs", "said"),
    [
        (1_024.0, 0.0007, "it sees 1,024 tokens on this machine, less than 1% of your text"),
        (4e5, 0.4, "it sees 0.4 M tokens on this machine, 40% of your text"),
        (2.4e6, 3.8, "it sees 2.4 M tokens on this machine, your text 3.8 times"),
        (5e8, 41.0, "it sees 500.0 M tokens on this machine, your text 41 times"),
    ],
)
def test_the_first_reason_says_how_much_is_seen(data: Path, tokens_seen: float, epochs: float, said: str) -> None:
    recipe = candidates.build("tiny", data, Path("out"), budget=60.0, tokens_seen=tokens_seen, gpu=False, pairs=True)
    assert said in autoconfig._reasons(recipe, 60.0, tokens_seen, epochs)[0]
