"""The tokens that a network reads in an epoch: more than the text has, by special tokens and random second texts.

Of short texts it is a matter of half as many again: a list of titles has [CLS] and [SEP] around six tokens each.
"""

from bertsmith.data.packing.pairs import Pairs
from bertsmith.data.packing.plan import Plan
from bertsmith.data.shards.shards import Shards
from bertsmith.objectives import OBJECTIVES
from bertsmith.recipe import Recipe


def epoch_tokens(recipe: Recipe, shards: Shards) -> float:
    """The tokens of an epoch of a recipe over a prepared text, about."""
    if OBJECTIVES[recipe.objective.kind].needs == "recurrent":
        return shards.tokens + shards.documents  # one text after the other, with a separator between two
    pairs: Pairs = getattr(recipe.objective.settings, "pairs", "none")
    return packed_tokens(shards, recipe.data.max_length, pairs, cross_documents=recipe.data.cross_documents)


def packed_tokens(shards: Shards, max_length: int, pairs: Pairs, *, cross_documents: bool = False) -> float:
    """The tokens of an epoch that is packed into sequences of this length, about."""
    return Plan(shards, length=max_length, pairs=pairs, seed=0, cross_documents=cross_documents).epoch_tokens()
