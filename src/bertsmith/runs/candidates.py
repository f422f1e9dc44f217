"""The recipes among which `make` chooses: every size of the smith shape, or of the member that `--like` names."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertsmith import config, recipes
from bertsmith.config import Component
from bertsmith.data.shards.cohesion import is_cohesive
from bertsmith.data.shards.shards import Shards
from bertsmith.errors import RecipeError, suggest
from bertsmith.models.family import FAMILY
from bertsmith.models.networks import NetworkConfig
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.recipe import Recipe
from bertsmith.runs.epochs import packed_tokens
from bertsmith.text.special_tokens import Kind
from bertsmith.train.evaluate import SINGLE_EVALUATION_SHARE

SMITH = "smith"
MAX_LENGTH = 128  # tokens of a sequence
PREDICTED_SHARE = 0.3  # of the tokens of a masked model, for the estimate of FLOPs
# Learned positions take short sequences in short runs: a network that has to learn 128 position embeddings still
# predicts by word frequency when one with 32 has long learnt to attend to the neighbours. docs/diary.md, 2026-11-15.
LEARNED_LENGTHS = {32: 0.0, 64: 2e7, MAX_LENGTH: 1e8}  # sequence length -> tokens seen from which it pays
# Without learned positions that holds for the shortest runs only. docs/diary.md, 2026-11-18.
LENGTHS = {32: 0.0, MAX_LENGTH: 1e6}
CPU_BATCHES = {1_024: 0.0, 2_048: 1e6}  # tokens of a batch -> tokens seen from which it pays
GPU_BATCHES = {16_384: 0.0, 32_768: 5e7}  # base after 100 s: 3.07 nats by the larger one, 3.10 by the smaller one
# Causal rows among the masked ones, which teach grammar, cost masked ones: they pay in runs of this many tokens.
CAUSAL_TOKENS = 1e8
# Embeddings that start from counts of neighbours: 0.4 nats better after 2 M tokens; longer runs are not measured yet.
COUNTED_EMBEDDINGS_TOKENS = 2e7
# The best learning rate of Muon falls as the root of the number of updates: of those tried 0.015 for 1,200, 0.006 for
# 8,500. The tiny network bears more: 0.05 for 240, 0.03 for 1,000 (of 0.018, 0.03, 0.045), 0.02 for 3,000.
MAX_MUON = 0.05
SEVERAL_EPOCHS, MANY_EPOCHS = 8, 30  # from which the best weights are kept; from which dropout and averaging pay
PATIENCE = 5  # evaluations of 20 without a lower loss, after which a run of many epochs ends


@dataclass(frozen=True)
class Size:
    """A size: its shape, the training length and the text from which it pays, and its learning rates."""

    layers: int  # of BERT's sizes; smith-medium has 12
    width: int
    min_tokens: float  # seen in training, from which it beats the next smaller size
    min_text: float  # tokens of the text, below which it overfits sooner than it learns
    learning_rate: float  # of embeddings, norms and the head, where Muon updates the matrices
    muon: float  # the learning rate of Muon, times the root of the updates
    min_muon: float  # its lowest learning rate
    adamw_learning_rate: float  # where AdamW updates everything, as in the papers


# On an H200 medium beats base after 100 s (bench/results/choose-h200.json) and after seven minutes, in which base would
# see 3e8 tokens (bench/results/race-seven-h200.json).
SIZES = {
    "tiny": Size(2, 128, 0, 0, 4e-3, 0.95, 0.015, 2e-3),
    "mini": Size(4, 256, 1e7, 3e5, 3e-3, 0.55, 0.01, 1e-3),
    "small": Size(4, 512, 4e7, 1.5e6, 2e-3, 0.55, 0.006, 7e-4),
    "medium": Size(8, 512, 1e8, 3e6, 1.5e-3, 0.55, 0.004, 5e-4),
    "base": Size(12, 768, 8e8, 5e6, 1e-3, 0.55, 0.003, 4e-4),
    "large": Size(24, 1024, 5e9, 5e7, 7e-4, 0.55, 0.003, 2e-4),
}


@dataclass(frozen=True)
class Like:
    """A member that `make` can be asked for: its recipe, and the tokenizer of its paper if the network needs none."""

    recipe: str
    tokenizer: Kind = "wordpiece"


LIKES = {
    SMITH: Like("smith-base"),
    "bert": Like("bert-base"),
    "roberta": Like("roberta-base"),
    "albert": Like("albert-base", "unigram"),
    "electra": Like("electra-base"),
    "modernbert": Like("modernbert-base", "bpe"),
    "gpt": Like("gpt"),
    "gpt2": Like("gpt2"),
    "t5": Like("t5-base"),
}


def find_like(name: str) -> Like:
    if name not in LIKES:
        raise RecipeError("--like", f"there is no '{name}' to make", suggest(name, LIKES))
    return LIKES[name]


def like_of(kind: str) -> str:
    """The name for `--like` of a member in the family: the one whose base member's name begins as this one's."""
    found = [name for name in LIKES if kind == LIKES[name].recipe or kind.startswith(f"{name}-")]
    return found[0] if found else kind


def tokenizer_kind(kind: str, shape: NetworkConfig) -> Kind:
    """The kind of tokenizer for a member: the one that its network needs, else that of its paper.

    Recurrent networks read whole words, as in their papers; T5 needs sentinels; RoBERTa's positions and causal networks
    go with byte-level BPE.
    """
    if not isinstance(shape, TransformerConfig):
        return "words"
    if shape.decoder_layers:
        return "t5"
    if shape.position_offset or shape.causal:
        return "bpe"
    like = LIKES.get(like_of(kind))
    return "wordpiece" if like is None else like.tokenizer


def size_name(like: str, size: str) -> str:
    """A member and its size in words."""
    _, shape = network(like, size)
    return f"{like}-{size}, {shape.layers} layers of width {shape.width}"


def network(like: str, size: str) -> tuple[str, TransformerConfig]:
    """The member of this size, or the base member with its layers and width; with its name in the family."""
    base = config.read_toml(recipes.find(find_like(like).recipe))["model"]["kind"]
    kind = base if size == "base" else f"{like}-{size}"
    if kind in FAMILY and not (like == "gpt2" and size != "base"):  # GPT-2 names its sizes in its own way
        shape = FAMILY[kind]
        assert isinstance(shape, TransformerConfig)
        return kind, shape
    shape, sized = FAMILY[base], SIZES[size]
    assert isinstance(shape, TransformerConfig)
    feed_forward = _feed_forward(shape, sized.width)
    return base, replace(
        shape,
        layers=sized.layers,
        decoder_layers=sized.layers if shape.decoder_layers else 0,
        width=sized.width,
        embedding_width=min(shape.embedding_width, sized.width),
        heads=sized.width // 64,
        feed_forward=feed_forward,
    )


def _feed_forward(shape: TransformerConfig, width: int) -> int:
    """The inner width, as wide beside this width as in the base member, to a multiple of 64."""
    return max(1, round(shape.feed_forward * width / shape.width / 64)) * 64


def flops_per_token(like: str, size: str, vocabulary: int) -> float:
    """Floating-point operations of training per token, about."""
    _, shape = network(like, size)
    share = 1.0 if shape.causal else PREDICTED_SHARE
    return replace(shape, vocabulary=vocabulary).flops(MAX_LENGTH, share)


def build(
    size: str,
    data: Path,
    out: Path,
    *,
    budget: float,
    tokens_seen: float,
    gpu: bool,
    pairs: bool,
    seed: int = 0,
    like: str = SMITH,
) -> Recipe:
    """The recipe of one size, for a prepared text and a budget in seconds in which it sees this many tokens.

    Network, objective and optimizer are those of the member's own recipe; length, batch and learning rates suit a run
    of this length. No position is claimed that is not trained. `pairs`: whether pairs of sentences can be drawn.
    """
    values, shards = config.read_toml(recipes.find(find_like(like).recipe)), Shards(data / "train")
    kind, shape = network(like, size)
    length = _by_tokens_seen(LEARNED_LENGTHS if shape.learned else LENGTHS, tokens_seen)
    batch_tokens = _by_tokens_seen(CPU_BATCHES, tokens_seen)
    if gpu:
        batch_tokens = _by_tokens_seen(GPU_BATCHES, tokens_seen) if like == SMITH else 65_536
    settings: dict[str, Any] = {"vocabulary": shards.vocabulary, "max_length": length}
    objective = dict(values["objective"])
    if objective.get("pairs", "none") != "none" and not pairs:
        objective["pairs"] = "none"
    if objective["kind"] == "mixed" and tokens_seen < CAUSAL_TOKENS:
        objective = {name: value for name, value in objective.items() if not name.startswith("causal_")}
        objective["kind"] = "masked_lm"
    across = values["data"].get("cross_documents", False)
    epochs = tokens_seen / packed_tokens(shards, length, objective.get("pairs", "none"), cross_documents=across)
    if like == SMITH:
        settings["dropout"] = 0.1 if epochs > MANY_EPOCHS else 0.0
    optimizer = dict(values["optimizer"])
    by_muon = optimizer.get("hidden_optimizer") == "muon"
    if by_muon:
        muon = SIZES[size].muon / (tokens_seen / batch_tokens) ** 0.5
        optimizer["muon_learning_rate"] = float(f"{min(MAX_MUON, max(SIZES[size].min_muon, muon)):.2g}")
    if optimizer.get("kind", "adamw") == "adamw":
        optimizer["learning_rate"] = SIZES[size].learning_rate if by_muon else SIZES[size].adamw_learning_rate
        optimizer["betas"] = [0.9, 0.98]
    written: dict[str, Any] = {
        "out": str(out),
        "objective": objective,
        "data": {
            "folder": str(data),
            "max_length": length,
            "batch_tokens": batch_tokens,
            "cross_documents": across,
            "validation_tokens": _validation_tokens(tokens_seen, batch_tokens),
        },
        "optimizer": optimizer,
        "schedule": {**values["schedule"], "warmup": 0.02 if by_muon else 0.06},
        "train": {"budget": f"{budget:.0f}s", "seed": seed},
    }
    if like == SMITH and tokens_seen < COUNTED_EMBEDDINGS_TOKENS:
        written["embeddings"] = "cooccurrence"
    if epochs > SEVERAL_EPOCHS:  # it may overfit: what is kept is its best moment
        written["keep"] = "best"
    if epochs > MANY_EPOCHS:
        written["train"] |= {"average": 0.2, "evaluations": 20, "patience": PATIENCE}
    recipe: Recipe = config.build({**written, "model": {"kind": kind}}, Recipe, "make")
    return replace(recipe, model=Component(kind, replace(shape, **settings)))


def has_pairs(shards: Shards) -> bool:
    """Whether documents have several sentences that belong together, of which pairs can be drawn."""
    return shards.documents >= 2 and shards.sentences >= 2 * shards.documents and is_cohesive(shards)


def _by_tokens_seen(table: Mapping[int, float], tokens_seen: float) -> int:
    """The last entry of a table that pays for this many tokens."""
    return [entry for entry, min_tokens in table.items() if tokens_seen >= min_tokens][-1]


def _validation_tokens(tokens_seen: float, batch_tokens: int) -> int:
    """The number of validation tokens; one costs a third of a training token (forward pass only)."""
    return int(min(max(3 * SINGLE_EVALUATION_SHARE * tokens_seen, 8 * batch_tokens), 1_000_000))
