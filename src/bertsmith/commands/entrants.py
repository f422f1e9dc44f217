"""The recipes that take part in a race: for the same time, on the same text, under names that say what they are."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertsmith import recipes
from bertsmith.commands import prepare, pretrain
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.errors import RecipeError
from bertsmith.models.family import FAMILY
from bertsmith.models.networks import NetworkConfig
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.recipe import EXTENTS, Recipe
from bertsmith.runs import autoconfig
from bertsmith.text.special_tokens import Kind
from bertsmith.text.tokenizer import TokenizerConfig

RACE_KEYS = frozenset(
    {"out", "data.folder", "train.evaluations", "train.checkpoints", "train.keep_checkpoints", *EXTENTS[0]}
)
SIZE_SUFFIX = re.compile(
    r"-(tiny|mini|small|medium|base|large|xl|xlarge|xxlarge)$"
)  # what a member's name says of its size
MAX_LABEL = 36  # characters of a label, at most: a legend has six of them in a line


@dataclass(frozen=True)
class Entrant:
    """A recipe as it was entered."""

    recipe: Recipe
    label: str  # what it is, in a word or two
    overrides: list[str]  # those that hold for all, then its own


def read_entrants(given: Sequence[str], *, budget: str, points: int) -> dict[str, Entrant]:
    """The recipes by name, as they take part: for the same time, and saved at the same points of it."""
    shared = [text for text in given if "=" in text.partition(" ")[0]]
    entries = [text.split() for text in given if text.strip() and text not in shared]
    ours = [
        f"train.budget={budget}",
        "train.evaluations=0",
        f"train.checkpoints={points}",
        "train.keep_checkpoints=1000",
    ]
    found: dict[str, Entrant] = {}
    for entry, *overrides in entries:
        for text in (*shared, *overrides):
            if text.partition("=")[0].strip() in RACE_KEYS:
                raise RecipeError(f"'{text}'", "is for the race to say", "Use --budget, --points, --data and --out")
        stem = recipes.find(entry).stem
        name = " ".join((stem, *overrides))
        if folder_name(name) in map(folder_name, found):
            raise RecipeError(entry, f"two recipes are called '{name}'", "Rename a file, or leave one out")
        recipe = pretrain.read_recipe(entry, [*shared, *overrides, *ours])
        found[name] = Entrant(recipe, short_name(stem, recipe), [*shared, *overrides])
    if not found:
        raise RecipeError("race", "there is no recipe to race", "`bertsmith list` shows those that come with it")
    return found


def short_name(stem: str, recipe: Recipe) -> str:
    """The name of the recipe's file, unless that is a member's and the network has another size: bert 4 x 512."""
    shape, member = recipe.model.settings, FAMILY.get(stem)
    if member is None or replace(shape, vocabulary=member.vocabulary).parameter_count == member.parameter_count:
        return stem
    layers = f"{shape.layers} + {shape.decoder_layers}" if shape.decoder_layers else shape.layers
    return f"{SIZE_SUFFIX.sub('', stem)} {layers} x {shape.width}"


def shared_overrides(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The overrides that hold for all rows of a race."""
    first, *rest = [row["overrides"] for row in rows] or [[]]
    return [text for text in first if all(text in others for others in rest)]


def own_overrides(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The overrides of a row that do not hold for all."""
    shared = shared_overrides(rows) if len(rows) > 1 else []
    return [text for text in row["overrides"] if text not in shared]


def labels(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What each row is called in tables and legends: with its overrides only where two are called alike, and then
    by a letter where they would fill the legend; the protocol has them whole."""
    alike = Counter(row["label"] for row in rows)
    found: list[str] = []
    for row in rows:
        label, others = row["label"], own_overrides(row, rows)
        if alike[label] > 1 and others:
            label = f"{label}, {', '.join(text.rpartition('.')[2] for text in others)}"
        found.append(label)
    seen, letters = Counter(found), Counter[str]()
    for index, (row, label) in enumerate(zip(rows, found, strict=True)):
        if seen[label] > 1 or (alike[row["label"]] > 1 and len(label) > MAX_LABEL):
            found[index] = f"{row['label']} ({chr(ord('a') + letters[row['label']])})"
            letters[row["label"]] += 1
    return found


def folder_name(name: str) -> str:
    """The name as a folder's."""
    return re.sub(r"[^\w.=-]+", "-", name).strip("-")


def tokenizer_kind(shape: NetworkConfig) -> Kind:
    """The tokenizer that a member reads by: byte-level BPE for RoBERTa and causal models, sentinels for T5.

    Networks without attention read whole words, as they did in their time.
    """
    if not isinstance(shape, TransformerConfig):
        return "words"
    if shape.decoder_layers:
        return "t5"
    return "bpe" if shape.position_offset or shape.causal else "wordpiece"


def prepare_text(texts: Sequence[str], out: Path, kind: Kind, lowercase: bool) -> Path:
    """The shards of the text in pieces of a kind, made now or found to be of the same text."""
    corpus, tokenizer, data = Corpus(texts), out / f"tokenizer-{kind}", out / f"data-{kind}"
    if not (tokenizer / "tokenizer.json").exists():
        size, _ = autoconfig.vocabulary_size(corpus.estimated_words)
        lower = None if kind == "t5" else lowercase  # T5's pieces keep their case
        prepare.tokenizer(texts, tokenizer, TokenizerConfig(kind=kind, vocabulary=size, lowercase=lower))
    prepare.prepare(texts, data, tokenizer, valid=autoconfig.validation_share(corpus.estimated_words))
    return data
