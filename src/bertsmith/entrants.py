"""The recipes that take part in a race: for the same time, on the same text, under names that say what they are."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertsmith import choose, prepare, recipes, run
from bertsmith.data.corpus import Corpus
from bertsmith.errors import RecipeError
from bertsmith.models.family import FAMILY
from bertsmith.models.networks import NetworkConfig
from bertsmith.models.transformer import TransformerConfig
from bertsmith.recipe import EXTENTS, Recipe
from bertsmith.text.pieces import Kind
from bertsmith.text.tokenizer import TokenizerConfig

OWN = frozenset({"out", "data.folder", "train.evaluations", "train.saves", "train.keep", *EXTENTS[0]})
SIZES = re.compile(r"-(tiny|mini|small|medium|base|large|xl|xlarge|xxlarge)$")  # what a member's name says of its size
LEGEND = 36  # characters of a label, at most: a legend has six of them in a line


@dataclass(frozen=True)
class Entrant:
    """A recipe as it was entered."""

    recipe: Recipe
    called: str  # what it is, in a word or two
    overrides: list[str]  # those that hold for all, then its own


def entered(given: Sequence[str], *, budget: str, points: int) -> dict[str, Entrant]:
    """The recipes by name, as they take part: for the same time, and saved at the same points of it."""
    shared = [text for text in given if "=" in text.partition(" ")[0]]
    entries = [text.split() for text in given if text.strip() and text not in shared]
    ours = [f"train.budget={budget}", "train.evaluations=0", f"train.saves={points}", "train.keep=1000"]
    found: dict[str, Entrant] = {}
    for entry, *overrides in entries:
        for text in (*shared, *overrides):
            if text.partition("=")[0].strip() in OWN:
                raise RecipeError(f"'{text}'", "is for the race to say", "Use --budget, --points, --data and --out")
        stem = recipes.find(entry).stem
        name = " ".join((stem, *overrides))
        if folder_of(name) in map(folder_of, found):
            raise RecipeError(entry, f"two recipes are called '{name}'", "Rename a file, or leave one out")
        recipe = run.read(entry, [*shared, *overrides, *ours])
        found[name] = Entrant(recipe, called(stem, recipe), [*shared, *overrides])
    if not found:
        raise RecipeError("race", "there is no recipe to race", "`bertsmith list` shows those that come with it")
    return found


def called(stem: str, recipe: Recipe) -> str:
    """The name of the recipe's file, unless that is a member's and the network has another size: bert 4 x 512."""
    shape, member = recipe.model.settings, FAMILY.get(stem)
    if member is None or replace(shape, vocabulary=member.vocabulary).count == member.count:
        return stem
    layers = f"{shape.layers} + {shape.decoder}" if shape.decoder else shape.layers
    return f"{SIZES.sub('', stem)} {layers} x {shape.width}"


def common(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The overrides that hold for all rows of a race."""
    first, *rest = [row["overrides"] for row in rows] or [[]]
    return [text for text in first if all(text in others for others in rest)]


def own(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The overrides of a row that do not hold for all."""
    shared = common(rows) if len(rows) > 1 else []
    return [text for text in row["overrides"] if text not in shared]


def labels(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What each row is called in tables and legends: with its overrides only where two are called alike, and then
    by a letter where they would fill the legend; the protocol has them whole."""
    alike = Counter(row["called"] for row in rows)
    found: list[str] = []
    for row in rows:
        label, others = row["called"], own(row, rows)
        if alike[label] > 1 and others:
            label = f"{label}, {', '.join(text.rpartition('.')[2] for text in others)}"
        found.append(label)
    seen, letters = Counter(found), Counter[str]()
    for index, (row, label) in enumerate(zip(rows, found, strict=True)):
        if seen[label] > 1 or (alike[row["called"]] > 1 and len(label) > LEGEND):
            found[index] = f"{row['called']} ({chr(ord('a') + letters[row['called']])})"
            letters[row["called"]] += 1
    return found


def folder_of(name: str) -> str:
    """The name as a folder's."""
    return re.sub(r"[^\w.=-]+", "-", name).strip("-")


def kind_of(shape: NetworkConfig) -> Kind:
    """The tokenizer that a member reads by: byte-level BPE for RoBERTa and causal models, sentinels for T5.

    Networks without attention read whole words, as they did in their time.
    """
    if not isinstance(shape, TransformerConfig):
        return "words"
    if shape.decoder:
        return "t5"
    return "bpe" if shape.offset or shape.causal else "wordpiece"


def prepared(texts: Sequence[str], out: Path, kind: Kind, lowercase: bool) -> Path:
    """The shards of the text in pieces of a kind, made now or found to be of the same text."""
    corpus, tokenizer, data = Corpus(texts), out / f"tokenizer-{kind}", out / f"data-{kind}"
    if not (tokenizer / "tokenizer.json").exists():
        size, _ = choose.vocabulary(corpus.words)
        lower = None if kind == "t5" else lowercase  # T5's pieces keep their case
        prepare.tokenizer(texts, tokenizer, TokenizerConfig(kind=kind, vocabulary=size, lowercase=lower))
    prepare.prepare(texts, data, tokenizer, valid=choose.valid_share(corpus.words))
    return data
