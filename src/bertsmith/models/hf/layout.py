"""A dialect: the words that one class of transformers' models has for a network, its settings and its weights."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from bertsmith.models.transformer_config import Positions, TransformerConfig
from bertsmith.nn.activations import Activation
from bertsmith.nn.pooling import Pooling

Names = str | tuple[str, ...]  # one weight of theirs, or several that stand one above the other in ours

ACTIVATION_NAMES: dict[str, Activation] = {  # theirs: ours; of several names for one curve the first is written
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
}


@dataclass(frozen=True, kw_only=True)
class HFLayout:
    """How one class of transformers' models is spelt. `{n}` is the number of a layer."""

    defaults: TransformerConfig  # what is meant where a file says nothing
    required: tuple[str, ...]  # settings that every network of this kind has in common
    positions: tuple[Positions, ...]  # the kinds it may have
    tables: Literal["wide", "mapped", "either"] = "wide"  # as wide as the network; mapped to it; mapped if they are not
    settings: Mapping[str, str]  # ours: theirs
    fixed: Mapping[str, Any]  # theirs: the only value this network has
    activations: tuple[str, ...]  # their names of it
    activation_names: Mapping[str, Activation] = field(
        default_factory=lambda: ACTIVATION_NAMES
    )  # what they mean by an activation
    fourfold_feed_forward: bool = False  # the feed-forward network is always four times as wide as the vectors
    architectures: Mapping[str, str]  # what a folder is for: their class
    prefix: str  # before the trunk's names, unless the folder is a bare trunk
    unprefixed: tuple[str, ...]  # how names begin that never have the prefix
    # Each line stands for a weight, and for a bias where the network has them, unless it ends in one of the two.
    trunk: Mapping[str, str]
    layer: Mapping[str, Names]
    decoder: Mapping[str, Names] = field(default_factory=dict)  # the same of the layers of a second network
    transposed: bool = False  # matrices inside layers lie on their side: a row for each number that comes in
    parts: Mapping[str, Mapping[str, str]]
    pretrained: frozenset[str]  # parts that a folder has room for after pretraining
    pairs: Literal["nsp", "sop"] = "nsp"  # what its head for two texts tells, where it has one
    tied_weights: Mapping[str, str]  # a second name of the same weight, in some files
    special_tokens: Mapping[str, str]  # their names of the numbers of special pieces: the tokenizer's roles
    poolings: Mapping[Pooling, str] = field(default_factory=dict)  # their names of what a text's classifier reads
    ignored_buffers: frozenset[str] = frozenset()  # 0, 1, 2 ... and masks, kept by older versions
    sinusoids: frozenset[str] = frozenset()  # tables of fixed waves, which a file may leave out
    zero_weights: frozenset[str] = frozenset()  # what a file may hold, if it is nought
    legacy_suffixes: Mapping[str, str] = field(default_factory=dict)  # older spellings
    classifier_names: Mapping[str, str] = field(
        default_factory=dict
    )  # how a text's classifier spells what others call so

    def plain_name(self, name: str) -> str:
        """Their name of a weight without prefix and in today's spelling."""
        name = name.removeprefix(self.prefix)
        for usual, theirs in self.classifier_names.items():
            name = usual + name.removeprefix(theirs) if name.startswith(theirs) else name
        for old, new in self.legacy_suffixes.items():
            name = name.removesuffix(old) + new if name.endswith(old) else name
        return name

    def is_weight(self, name: str) -> bool:
        """Whether a plain name is that of a weight, and not of something that older versions kept beside them."""
        return re.sub(r"\.\d+\.", ".{n}.", name) not in self.ignored_buffers

    def full_name(self, name: str, architecture: str) -> str:
        """The name as this class of transformers spells it."""
        if architecture == self.architectures.get("classify"):
            for usual, theirs in self.classifier_names.items():
                if name.startswith(usual):
                    return theirs + name.removeprefix(usual)
        return (
            name
            if architecture == self.architectures["trunk"] or name.startswith(self.unprefixed)
            else self.prefix + name
        )

    def architecture(self, parts: Iterable[str]) -> str:
        """The class of transformers that has these parts."""
        parts = set(parts)
        if "span" in parts:
            return self.architectures["answer"]
        if "discriminator" in parts:
            return self.architectures["pretraining"]
        if "classifier" in parts:
            return self.architectures["classify" if "pooler" in parts or "tag" not in self.architectures else "tag"]
        match "mlm_head" in parts, "sentence_pair" in parts:
            case True, True:
                return self.architectures["pretraining"]
            case True, False:
                return self.architectures["masked"]
            case False, True:
                return self.architectures["sentence_pair"]
        # Whoever writes guesses the next token by a table of the trunk's: it needs no head.
        return self.architectures.get("writing", self.architectures["trunk"])

    def find_parts(self, names: Iterable[str], architecture: str | None) -> frozenset[str]:
        """Which parts these weights of theirs belong to, in a folder that says it is of this class."""
        names = list(names)
        there = {
            part for part, table in self.parts.items() if any(name.startswith(tuple(table.values())) for name in names)
        }
        if self.shares_head:
            # One head for all: a vocabulary behind it makes it the masked-word head, and a classifier the task's own.
            there -= {"pooler"} if self.parts["mlm_head"]["mlm_head.bias"] in names else {"mlm_head"}
            there -= {"classifier"} if architecture == self.architectures["answer"] else {"span"}
        return frozenset(there)

    @property
    def shares_head(self) -> bool:
        """Whether the masked-word head and the tasks' are one, so that a task begins with what guessing has learnt."""
        if not {"pooler", "mlm_head"} <= self.parts.keys():
            return False
        return self.parts["pooler"].items() <= {
            (ours.replace("mlm_head.", "pooler."), theirs) for ours, theirs in self.parts["mlm_head"].items()
        }
