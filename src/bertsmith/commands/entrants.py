"""The entrants of a race: the recipes that take part, their labels in tables, and their text."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertsmith import recipes
from bertsmith.commands import prepare, pretrain
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.errors import RecipeError
from bertsmith.models.family import FAMILY
from bertsmith.recipe import EXTENTS, Recipe
from bertsmith.runs import autoconfig
from bertsmith.text.special_tokens import Kind
from bertsmith.text.tokenizer import TokenizerConfig

# Settings that the race itself sets.
RACE_KEYS = frozenset(
    {
        "out",
        "data.folder",
        "keep",
        "train.evaluations",
        "train.patience",
        "train.checkpoints",
        "train.keep_checkpoints",
        *EXTENTS[0],
    }
)
SIZE_SUFFIX = re.compile(r"-(tiny|mini|small|medium|base|large|xl|xlarge|xxlarge)$")
MAX_LABEL = 36  # characters of a label: a legend has six labels in a line


@dataclass(frozen=True)
class Entrant:
    """A recipe that takes part in a race."""

    recipe: Recipe
    label: str  # its short name
    overrides: list[str]  # those of all recipes, then its own


def read_entries(
    given: Sequence[str], *, stem: Callable[[str], str], race_keys: Collection[str]
) -> dict[str, tuple[str, list[str], list[str]]]:
    """Each recipe of a race by its name, with the overrides of all recipes and with its own.

    An override by itself is for all. `race_keys` are settings that the race itself sets.
    """
    shared = [text for text in given if "=" in text.partition(" ")[0]]
    entries = [text.split() for text in given if text.strip() and text not in shared]
    found: dict[str, tuple[str, list[str], list[str]]] = {}
    for entry, *overrides in entries:
        for text in (*shared, *overrides):
            if text.partition("=")[0].strip() in race_keys:
                raise RecipeError(f"'{text}'", "is set by the race", "Use --budget, --points, --data and --out")
        name = " ".join((stem(entry), *overrides))
        if folder_name(name) in map(folder_name, found):
            raise RecipeError(entry, f"two recipes have the name '{name}'", "Rename a file, or leave one out")
        found[name] = entry, shared, overrides
    if not found:
        raise RecipeError("race", "no recipe is given", "`bertsmith list` shows those that come with it")
    return found


def read_entrants(given: Sequence[str], *, budget: str, points: int) -> dict[str, Entrant]:
    """The recipes by name, all with the same budget and the same checkpoints."""
    race_settings = [
        f"train.budget={budget}",
        "train.evaluations=0",
        f"train.checkpoints={points}",
        "train.keep_checkpoints=1000",
    ]
    entries = read_entries(given, stem=lambda entry: recipes.find(entry).stem, race_keys=RACE_KEYS)
    entrants: dict[str, Entrant] = {}
    for name, (entry, shared, overrides) in entries.items():
        recipe = pretrain.read_recipe(entry, [*shared, *overrides, *race_settings])
        # Whatever a recipe keeps of a run of its own: a point has the weights that its compute has led to.
        recipe = replace(recipe, keep="last", train=replace(recipe.train, patience=None))
        label = short_name(recipes.find(entry).stem, recipe)
        entrants[name] = Entrant(recipe, label, [*shared, *overrides])
    return entrants


def short_name(stem: str, recipe: Recipe) -> str:
    """The name of the recipe's file; for a member of the family at another size, the size it has: bert 4 x 512."""
    shape, member = recipe.model.settings, FAMILY.get(stem)
    if member is None or replace(shape, vocabulary=member.vocabulary).parameter_count == member.parameter_count:
        return stem
    layers = f"{shape.layers} + {shape.decoder_layers}" if shape.decoder_layers else shape.layers
    return f"{SIZE_SUFFIX.sub('', stem)} {layers} x {shape.width}"


def shared_overrides(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The overrides that all rows of a race have."""
    first, *rest = [row["overrides"] for row in rows] or [[]]
    return [text for text in first if all(text in others for others in rest)]


def own_overrides(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The overrides of a row that not all rows have."""
    shared = shared_overrides(rows) if len(rows) > 1 else []
    return [text for text in row["overrides"] if text not in shared]


def labels(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A label for each row in tables and legends.

    Rows with the same short name add their overrides, or a letter where these are too long for a legend; the protocol
    has the overrides in full.
    """
    alike = Counter(row["label"] for row in rows)
    result: list[str] = []
    for row in rows:
        label, overrides = row["label"], own_overrides(row, rows)
        if alike[label] > 1 and overrides:
            label = f"{label}, {', '.join(text.rpartition('.')[2] for text in overrides)}"
        result.append(label)
    seen, letters = Counter(result), Counter[str]()
    for index, (row, label) in enumerate(zip(rows, result, strict=True)):
        if seen[label] > 1 or (alike[row["label"]] > 1 and len(label) > MAX_LABEL):
            result[index] = f"{row['label']} ({chr(ord('a') + letters[row['label']])})"
            letters[row["label"]] += 1
    return result


def folder_name(name: str) -> str:
    """The name of a recipe as the name of a folder."""
    return re.sub(r"[^\w.=-]+", "-", name).strip("-")


def prepare_text(texts: Sequence[str], out: Path, kind: Kind, lowercase: bool) -> Path:
    """The folder of the text, tokenised by a tokenizer of this kind; both are made unless they exist."""
    corpus, tokenizer, data = Corpus(texts), out / f"tokenizer-{kind}", out / f"data-{kind}"
    if not (tokenizer / "tokenizer.json").exists():
        size, _ = autoconfig.vocabulary_size(corpus.estimated_words)
        lower = None if kind in ("t5", "bpe") else lowercase  # these keep case
        prepare.tokenizer(texts, tokenizer, TokenizerConfig(kind=kind, vocabulary=size, lowercase=lower))
    share = autoconfig.validation_share(corpus.estimated_words)
    prepare.prepare(texts, data, tokenizer, validation_share=share)
    return data
