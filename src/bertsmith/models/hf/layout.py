"""The layout of one model type of transformers: its config.json keys, its classes and its weight names, as tables."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from bertsmith.errors import FolderError, suggest
from bertsmith.files import short_repr
from bertsmith.models.hf.values import number, require
from bertsmith.models.networks import NetworkConfig
from bertsmith.models.transformer_config import TransformerConfig
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
CLASSES = {  # the ends of transformers' names of classes
    "trunk": "Model",
    "masked_lm": "ForMaskedLM",
    "causal_lm": "LMHeadModel",
    "sentence_pair": "ForNextSentencePrediction",
    "pretraining": "ForPreTraining",
    "classify": "ForSequenceClassification",
    "tag": "ForTokenClassification",
    "answer": "ForQuestionAnswering",
    "choose": "ForMultipleChoice",
}


def class_names(beginning: str, kinds: str) -> dict[str, str]:
    """transformers' classes of a model type: of the bare network, and of these tasks or kinds of pretraining."""
    return {kind: beginning + CLASSES[kind] for kind in ("trunk", *kinds.split())}


class HFLayout:
    """The layout of one model type of transformers: a table, and two methods between config.json and our settings.

    A setting that config.json cannot say has the default's value. `{n}` is the number of a layer.
    """

    model_type: str
    defaults: TransformerConfig  # values of keys that config.json leaves out
    settings: Mapping[str, str] = {}  # our setting: their key
    fixed: Mapping[str, Any] = {}  # their key: the only value that can be opened
    activations: tuple[str, ...] = ("hidden_act",)  # their keys of the activation
    activation_names: Mapping[str, Activation] = ACTIVATION_NAMES  # theirs: ours
    mlm_activation: Activation | None = None  # of the masked LM head, where it is not the network's
    architectures: Mapping[str, str]  # a task or a kind of pretraining: their class
    prefix = ""  # of the trunk's names, unless the folder is a bare trunk
    unprefixed: tuple[str, ...] = ()  # beginnings of names that never have the prefix
    # Each entry stands for a weight, and for a bias where the network has them, unless it ends in one of the two.
    trunk: Mapping[str, str] = {}
    layer: Mapping[str, Names] = {}
    decoder: Mapping[str, Names] = {}  # the layers of the decoder, where there are two stacks
    transposed = False  # matrices inside layers are transposed, with a row for each input (GPT's Conv1D)
    parts: Mapping[str, Mapping[str, str]] = {}  # heads by their name: the names of their weights
    pretrained: frozenset[str] = frozenset()  # heads that a folder can hold after pretraining
    pairs: Literal["nsp", "sop"] = "nsp"  # the objective of its sentence-pair head, where it has one
    tied_weights: Mapping[str, str] = {}  # second names of the same weight, in some files
    special_tokens: Mapping[str, str] = {"pad_token_id": "padding"}  # their keys of ids: the tokenizer's roles
    poolings: Mapping[Pooling, str] = {}  # our pooling of a text's classifier: their name
    ignored_buffers: frozenset[str] = frozenset()  # position ids and masks in files of older versions
    sinusoids: frozenset[str] = frozenset()  # sinusoidal tables, which a file may leave out
    zero_weights: frozenset[str] = frozenset()  # weights that a file may hold, if they are zero
    legacy_suffixes: Mapping[str, str] = {}  # of names in older versions: today's suffix
    classifier_names: Mapping[str, str] = {}  # other names in the class of `classify`

    def to_config_json(self, config: TransformerConfig) -> dict[str, Any]:
        """The config.json of a network, except for the class of its heads."""
        sizes = {
            "max_length": config.max_length + self.defaults.position_offset,  # all rows of the table
            "embedding_width": config.table,  # given for every embedding, factorised or not
            "head_width": config.head_size,
            "segments": max(1, config.segments),  # there always is a table of them
        }
        return {
            "model_type": self.model_type,
            "pad_token_id": 0,
            "initializer_range": 0.02,
            "tie_word_embeddings": config.tie_embeddings,
            **{theirs: sizes.get(ours, getattr(config, ours)) for ours, theirs in self.settings.items()},
            **dict.fromkeys(self.activations, self._activation_name(config.activation)),
            **self.fixed,
        }

    def settings_of(self, config_json: dict[str, Any], path: object) -> dict[str, Any]:
        """All our settings for a config.json. Keys that are left out have transformers' defaults."""
        for theirs, only in self.fixed.items():
            require(config_json, theirs, only, path)
        settings = {**vars(self.defaults), "activation": self._activation(config_json, path)}
        for ours, theirs in self.settings.items():
            if theirs in config_json:
                integer = TransformerConfig.__annotations__[ours] is int
                settings[ours] = number(config_json[theirs], theirs, integer, path)
                if ours == "max_length":  # transformers counts all rows of the table, we those of real positions
                    settings[ours] -= self.defaults.position_offset
        return settings

    def lost_settings(self, config: TransformerConfig) -> dict[str, Any]:
        """The settings that config.json cannot say: the values that they would have when it is read again."""
        read = self.settings_of(self.to_config_json(config), "model")
        return {name: value for name, value in read.items() if value != getattr(config, name)}

    def _activation(self, config_json: dict[str, Any], path: object) -> Activation:
        found = set()
        for key in self.activations:
            name = config_json.get(key, self._activation_name(self.defaults.activation))
            if not isinstance(name, str) or name not in self.activation_names:
                known = suggest(short_repr(name), self.activation_names)
                raise FolderError(path, f"unknown {key} {short_repr(name)}", known)
            found.add(self.activation_names[name])
        if len(found) > 1:
            fact = f"{' and '.join(self.activations)} differ"
            raise FolderError(path, fact, "Only one activation for both can be opened")
        return found.pop()

    def _activation_name(self, activation: Activation) -> str:
        """transformers' name of an activation, of several the first; of one that it lacks here, the default's."""
        names = {ours: theirs for theirs, ours in reversed([*self.activation_names.items()])}
        return names.get(activation, names[self.defaults.activation])

    def weight_names(self, config: TransformerConfig, parts: Iterable[str]) -> dict[str, Names]:
        """Our names of the weights that a network with these heads may have: their names, without the prefix."""
        names: dict[str, Names] = {**self.trunk}
        for table, layers in ((self.layer, config.distinct), (self.decoder, config.decoder_layers)):
            for n in range(layers):
                for ours, theirs in table.items():
                    one = theirs if isinstance(theirs, tuple) else (theirs,)
                    names[ours.format(n=n)] = tuple(name.format(n=n) for name in one)
        for part, table in self.parts.items():
            names |= table if part in parts else {}
        return names

    def second_names(self, config: NetworkConfig) -> Mapping[str, str]:
        """Names of weights that some files hold twice: the first names of the same weights."""
        return self.tied_weights

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
