"""The layout of one model type of transformers: its config.json keys, its classes and its weight names, as tables."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from bertsmith.models.transformer_config import Positions, TransformerConfig
from bertsmith.nn.activations import Activation
from bertsmith.nn.pooling import Pooling

Names = str | tuple[str, ...]  # one weight of theirs, or several that are stacked in one of ours

ACTIVATION_NAMES: dict[str, Activation] = {  # theirs: ours; of several names for one activation the first is written
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
}


@dataclass(frozen=True, kw_only=True)
class HFLayout:
    """The layout of one model type of transformers. `{n}` is the number of a layer."""

    defaults: TransformerConfig  # values of keys that config.json leaves out
    required: tuple[str, ...]  # settings that are the defaults' in every network of this type
    positions: tuple[Positions, ...]  # kinds of positions that it may have
    tables: Literal["full", "factorised", "either"] = "full"  # the embedding is as wide as the network, or factorised
    settings: Mapping[str, str]  # our setting: their key
    fixed: Mapping[str, Any]  # their key: the only value that can be opened
    activations: tuple[str, ...]  # their keys of the activation
    activation_names: Mapping[str, Activation] = field(default_factory=lambda: ACTIVATION_NAMES)  # theirs: ours
    fourfold_feed_forward: bool = False  # the feed-forward network is always four times as wide as the network
    architectures: Mapping[str, str]  # a task or a kind of pretraining: their class
    prefix: str  # of the trunk's names, unless the folder is a bare trunk
    unprefixed: tuple[str, ...]  # beginnings of names that never have the prefix
    # Each entry stands for a weight, and for a bias where the network has them, unless it ends in one of the two.
    trunk: Mapping[str, str]
    layer: Mapping[str, Names]
    decoder: Mapping[str, Names] = field(default_factory=dict)  # the layers of the decoder, where there are two stacks
    transposed: bool = False  # matrices inside layers are transposed, with a row for each input (GPT's Conv1D)
    parts: Mapping[str, Mapping[str, str]]  # heads by their name: the names of their weights
    pretrained: frozenset[str]  # heads that a folder can hold after pretraining
    pairs: Literal["nsp", "sop"] = "nsp"  # the objective of its sentence-pair head, where it has one
    tied_weights: Mapping[str, str]  # second names of the same weight, in some files
    special_tokens: Mapping[str, str]  # their keys of the ids of special tokens: the tokenizer's roles
    poolings: Mapping[Pooling, str] = field(default_factory=dict)  # our pooling of a text's classifier: their name
    ignored_buffers: frozenset[str] = frozenset()  # position ids and masks in files of older versions
    sinusoids: frozenset[str] = frozenset()  # sinusoidal tables, which a file may leave out
    zero_weights: frozenset[str] = frozenset()  # weights that a file may hold, if they are zero
    legacy_suffixes: Mapping[str, str] = field(default_factory=dict)  # of names in older versions: today's suffix
    classifier_names: Mapping[str, str] = field(default_factory=dict)  # other names in the class of `classify`

    def plain_name(self, name: str) -> str:
        """Their name of a weight, without prefix and as recent versions spell it."""
        name = name.removeprefix(self.prefix)
        for usual, theirs in self.classifier_names.items():
            name = usual + name.removeprefix(theirs) if name.startswith(theirs) else name
        for old, new in self.legacy_suffixes.items():
            name = name.removesuffix(old) + new if name.endswith(old) else name
        return name

    def is_weight(self, name: str) -> bool:
        """Whether a plain name is that of a weight, and not of a buffer that older versions saved."""
        return re.sub(r"\.\d+\.", ".{n}.", name) not in self.ignored_buffers

    def full_name(self, name: str, architecture: str) -> str:
        """The name of a weight in the given class of transformers."""
        if architecture == self.architectures.get("classify"):
            for usual, theirs in self.classifier_names.items():
                if name.startswith(usual):
                    return theirs + name.removeprefix(usual)
        bare = architecture == self.architectures["trunk"] or name.startswith(self.unprefixed)
        return name if bare else self.prefix + name

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
                return self.architectures["masked_lm"]
            case False, True:
                return self.architectures["sentence_pair"]
        # A language model has no head here: its output layer is part of the trunk.
        kinds = (kind for kind in ("causal_lm", "seq2seq_lm") if kind in self.architectures)
        return self.architectures[next(kinds, "trunk")]

    def find_parts(self, names: Iterable[str], architecture: str | None) -> frozenset[str]:
        """The heads that these weights belong to, in a folder of this class."""
        names = list(names)
        found = {
            part for part, table in self.parts.items() if any(name.startswith(tuple(table.values())) for name in names)
        }
        if self.shares_head:
            # The same names in both: with an output bias they are the MLM head's, otherwise the pooler's of a task.
            found -= {"pooler"} if self.parts["mlm_head"]["mlm_head.bias"] in names else {"mlm_head"}
            found -= {"classifier"} if architecture == self.architectures["answer"] else {"span"}
        return frozenset(found)

    @property
    def shares_head(self) -> bool:
        """Whether the MLM head's transform is the pooler of tasks, which then start from its pretrained weights."""
        if not {"pooler", "mlm_head"} <= self.parts.keys():
            return False
        return self.parts["pooler"].items() <= {
            (ours.replace("mlm_head.", "pooler."), theirs) for ours, theirs in self.parts["mlm_head"].items()
        }
