"""Configs and state dicts of Hugging Face folders: our settings and tasks, and each weight of a state dict, renamed."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from bertsmith.errors import FolderError, suggest
from bertsmith.files import short_repr
from bertsmith.models.hf import native
from bertsmith.models.hf.layout import HFLayout
from bertsmith.models.hf.layouts import GPT, GPT2, LAYOUTS, MARIAN, MODERNBERT, T5, T5_V1_1, layout_of
from bertsmith.models.networks import NetworkConfig
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.activations import Activation
from bertsmith.nn.pooling import Pooling

# --------------------------------------------------------------------------------------------------- settings

BIASES = ("norm_bias", "attention_bias", "mlp_bias", "classifier_bias")  # ModernBERT may have some; ours all or none
FULL, SLIDING = "full_attention", "sliding_attention"  # its kinds of layers
ROTARY_BASES = (("rotary_base", FULL, "global_rope_theta"), ("window_rotary_base", SLIDING, "local_rope_theta"))
DECODER_SIZES = {  # Marian's second network may have sizes of its own; ours has those of the first
    "heads": "decoder_attention_heads",
    "feed_forward": "decoder_ffn_dim",
    "vocabulary": "decoder_vocab_size",
}
MAX_SIZE = 1 << 24  # no size in a configuration is larger; a file cannot make us count further


def from_config_json(config_json: dict[str, Any], path: object) -> NetworkConfig:
    """Their settings as ours. What is left out has the value that transformers gives it."""
    if config_json.get("model_type") == native.MODEL_TYPE:
        return native.from_config_json(config_json, path)
    *most, last = (f"'{kind}'" for kind in LAYOUTS)
    known = f"{', '.join(most)} or {last}"
    if "model_type" not in config_json:
        raise FolderError(path, "names no model_type", f"Only folders of model_type {known} can be opened")
    dialect = LAYOUTS.get(str(config_json["model_type"]))
    if dialect is None:
        raise FolderError(path, f"model_type is {short_repr(config_json['model_type'])}", f"Only {known} can be opened")
    if dialect is T5 and str(config_json.get("feed_forward_proj", "")).startswith("gated"):
        dialect = T5_V1_1
    for theirs, only in dialect.fixed.items():
        _require(config_json, theirs, only, path)
    values: dict[str, Any] = {"activation": _activation(config_json, dialect, path)}
    for ours, theirs in dialect.settings.items():
        if theirs in config_json:
            values[ours] = _number(config_json[theirs], theirs, TransformerConfig.__annotations__[ours] is int, path)
    if "max_length" in values:
        values["max_length"] -= (
            dialect.defaults.position_offset
        )  # they count all rows of the table, we those that are read
    widths = [values.get(name, getattr(dialect.defaults, name)) for name in ("embedding_width", "width")]
    if dialect.tables == "either" and widths[0] == widths[1]:
        values["embedding_width"] = 0  # they always name the width of the tables, we where it is not the network's
    if dialect is MODERNBERT:
        values |= _modernbert(config_json, path)
    elif dialect in (GPT, GPT2):
        values["feed_forward"] = _feed_forward(config_json, dialect, values.get("width", dialect.defaults.width), path)
        dropout = dialect.defaults.dropout
        _require({"embd_pdrop": dropout, **config_json}, "embd_pdrop", values.get("dropout", dropout), path)
    elif dialect in (T5, T5_V1_1):
        values |= _t5(config_json, dialect, values, path)
    elif dialect is MARIAN:
        _require({"scale_embedding": False, **config_json}, "scale_embedding", True, path)
        for ours, theirs in DECODER_SIZES.items():
            _require(config_json, theirs, values.get(ours, getattr(dialect.defaults, ours)), path)
    elif config_json.get("positions") == "sinusoidal":  # our own word: transformers sees a table with the same numbers
        values["positions"] = "sinusoidal"
    try:
        return replace(dialect.defaults, **values)
    except ValueError as error:
        raise FolderError(path, str(error)) from None


def to_config_json(config: NetworkConfig, parts: Iterable[str]) -> dict[str, Any]:
    """Our settings as theirs: what config.json holds."""
    if not isinstance(config, TransformerConfig):
        return native.to_config_json(config)
    dialect = layout_of(config)
    return {
        "architectures": [dialect.architecture(parts)],
        "pad_token_id": 0,
        **dialect.fixed,
        **{theirs: getattr(config, ours) for ours, theirs in dialect.settings.items()},
        dialect.settings["max_length"]: config.max_length + config.position_offset,
        **({dialect.settings["embedding_width"]: config.table} if "embedding_width" in dialect.settings else {}),
        **({"positions": config.positions} if config.positions == "sinusoidal" else {}),
        **(_modernbert_json(config) if dialect is MODERNBERT else {}),
        **({"embd_pdrop": config.dropout} if dialect in (GPT, GPT2) else {}),
        **({"n_inner": config.feed_forward} if dialect is GPT2 else {}),
        **({"d_kv": config.head_size} if dialect in (T5, T5_V1_1) else {}),
        **({theirs: getattr(config, ours) for ours, theirs in DECODER_SIZES.items()} if dialect is MARIAN else {}),
        **dict.fromkeys(dialect.activations, _activation_name(dialect, config.activation)),
        "initializer_range": 0.02,
        "tie_word_embeddings": config.tie_embeddings,
    }


def _activation(raw: dict[str, Any], layout: HFLayout, path: object) -> Activation:
    found = set()
    for theirs in layout.activations:
        said = raw.get(theirs, _activation_name(layout, layout.defaults.activation))
        if not isinstance(said, str) or said not in layout.activation_names:
            raise FolderError(
                path, f"unknown {theirs} {short_repr(said)}", suggest(short_repr(said), layout.activation_names)
            )
        found.add(layout.activation_names[said])
    if len(found) > 1:
        raise FolderError(path, f"{' and '.join(layout.activations)} differ", "Only one curve for both can be opened")
    return found.pop()


def _activation_name(layout: HFLayout, activation: Activation) -> str:
    """Their name of a curve: of several the first."""
    return next(theirs for theirs, ours in layout.activation_names.items() if ours == activation)


def _feed_forward(raw: dict[str, Any], layout: HFLayout, width: int, path: object) -> int:
    """How wide GPT's feed-forward network is: four times the width, unless GPT-2 says otherwise."""
    said = None if layout.fourfold_feed_forward else raw.get("n_inner")
    return 4 * width if said is None else int(_number(said, "n_inner", True, path))


def _t5(raw: dict[str, Any], layout: HFLayout, values: dict[str, Any], path: object) -> dict[str, Any]:
    """What T5 says in words of its own kind: its second network is as deep as the first unless it says otherwise."""
    # Whether words have a table of their own; the later word for it is of those who believe that none has.
    tied = raw.get("scale_decoder_outputs", raw.get("tie_word_embeddings", True))
    if tied is not layout.defaults.tie_embeddings:
        table = "the one that they are read by" if layout.defaults.tie_embeddings else "one of their own"
        raise FolderError(path, f"tie_word_embeddings is {short_repr(tied)}", f"Such a T5 tells words by {table}")
    whole = {name: values.get(name, getattr(layout.defaults, name)) for name in ("layers", "width", "heads")}
    head = values.get("head_width", 64)
    return {
        "decoder_layers": values.get("decoder_layers", whole["layers"]),
        "head_width": 0 if head * whole["heads"] == whole["width"] else head,
    }


def _modernbert(raw: dict[str, Any], path: object) -> dict[str, Any]:
    """What ModernBERT says in words of its own kind."""
    biases = raw.get("norm_bias", False)
    for name in BIASES:
        _require(raw, name, biases, path)
    if not isinstance(biases, bool):
        raise FolderError(path, f"norm_bias is {short_repr(biases)}", "Give true or false")
    reach = _window(raw, path)
    bases = {
        ours: _number(_rotary_base(raw, kind, old, getattr(MODERNBERT.defaults, ours), path), "rope_theta", False, path)
        for ours, kind, old in (ROTARY_BASES if reach["window"] else ROTARY_BASES[:1])
    }
    return {"biases": biases, **bases, **reach}


def _rotary_base(raw: dict[str, Any], kind: str, legacy_key: str, default: float, path: object) -> Any:
    """How slowly layers of a kind turn."""
    turning = raw.get("rope_parameters")
    if not isinstance(turning, dict) or not isinstance(turning.get(kind), dict):
        return raw.get(legacy_key, default)
    _require(turning[kind], "rope_type", "default", path)
    return turning[kind].get("rope_theta", default)


def _window(raw: dict[str, Any], path: object) -> dict[str, int]:
    """Which layers look only at their neighbours, and how far."""
    standard, kinds = MODERNBERT.defaults, raw.get("layer_types")
    every = _number(
        raw.get("global_attn_every_n_layers", standard.global_every), "global_attn_every_n_layers", True, path
    )
    if kinds is not None:
        layers = raw.get("num_hidden_layers", standard.layers)
        if not isinstance(kinds, list) or len(kinds) != layers or not set(map(str, kinds)) <= {FULL, SLIDING}:
            raise FolderError(
                path, f"layer_types is {short_repr(kinds)}", f"Give '{FULL}' or '{SLIDING}' for every layer"
            )
        wide = [number for number, kind in enumerate(kinds) if kind == FULL]
        every = wide[1] if len(wide) > 1 else len(kinds)
        if wide != list(range(0, len(kinds), every)):
            fact = "the layers that look at all do not follow each other at one distance from the first"
            raise FolderError(path, fact, "Only such networks can be opened")
    if every < 1:
        raise FolderError(path, f"global_attn_every_n_layers is {every}", "Give at least 1")
    if every == 1:
        return {"window": 0}
    width = _number(raw.get("local_attention", 2 * standard.window), "local_attention", True, path)
    if width < 2:
        raise FolderError(path, f"local_attention is {width}", "Give at least 2")
    return {"window": int(width) // 2, "global_every": int(every)}


def _modernbert_json(config: TransformerConfig) -> dict[str, Any]:
    bases = {kind: getattr(config, ours if config.window else "rotary_base") for ours, kind, _ in ROTARY_BASES}
    return {
        **dict.fromkeys(BIASES, config.biases),
        "embedding_dropout": config.dropout,
        "classifier_dropout": config.dropout,
        "layer_types": [SLIDING if config.is_local(number) else FULL for number in range(config.layers)],
        "rope_parameters": {kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()},
        **({"local_attention": 2 * config.window} if config.window else {}),
        # The same in the words of transformers before version 5, which knows only these.
        "global_attn_every_n_layers": config.global_every if config.window else 1,
        **{old: bases[kind] for _, kind, old in ROTARY_BASES},
    }


def _require(raw: dict[str, Any], theirs: str, expected: Any, path: object) -> None:
    if raw.get(theirs, expected) != expected:
        raise FolderError(path, f"{theirs} is {short_repr(raw[theirs])}", f"Only {short_repr(expected)} can be opened")


def _number(value: object, theirs: str, whole: bool, path: object) -> int | float:
    numeric = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not numeric or not 0 <= value <= MAX_SIZE:  # type: ignore[operator]
        raise FolderError(path, f"{theirs} is {short_repr(value)}", f"Give a {'whole ' if whole else ''}number")
    return value if whole else float(value)  # type: ignore[return-value,arg-type]


TASKS = ("classify", "tag", "answer", "choose")
PROBLEMS = {  # theirs: what Classify answers
    "single_label_classification": "single_label",
    "regression": "regression",
    "multi_label_classification": "multi_label",
}
MAX_LABELS = 100_000


@dataclass(frozen=True, kw_only=True)
class FinetunedTask:
    """What a fine-tuned folder can do: the task, its labels by number, and for `classify` what it answers."""

    task: str
    labels: tuple[str, ...] = ()
    problem: str = "single_label"
    pooling: Pooling = "first"  # what `classify` reads of a text: its first token, its last, or the mean of all

    @property
    def classes(self) -> int:
        """Outputs of the classifier."""
        return 1 if self.task == "choose" else max(1, len(self.labels))

    def to_config_json(self, layout: HFLayout) -> dict[str, Any]:
        """The same as config.json says it."""
        named: dict[str, Any] = {"architectures": [layout.architectures[self.task]]}
        if self.labels:
            named["id2label"] = {str(number): label for number, label in enumerate(self.labels)}
            named["label2id"] = {label: number for number, label in enumerate(self.labels)}
        if self.task == "classify":
            if layout.poolings:
                named["classifier_pooling"] = layout.poolings[self.pooling]
            named["problem_type"] = next(theirs for theirs, ours in PROBLEMS.items() if ours == self.problem)
        return named


def architecture_of(config_json: dict[str, Any]) -> str | None:
    """The class of transformers that a folder says it is of."""
    named = config_json.get("architectures")
    first = named[0] if isinstance(named, list) and named else None
    return first if isinstance(first, str) else None


def finetuned_task(
    config_json: dict[str, Any], layout: HFLayout, parts: Iterable[str], path: object
) -> FinetunedTask | None:
    """What a folder with these parts was fine-tuned for, as its config.json says."""
    parts = set(parts)
    if not parts & {"classifier", "span"}:
        return None
    named = architecture_of(config_json)
    task = next((ours for ours in TASKS if named is not None and layout.architectures.get(ours) == named), None)
    if task is None:  # the weights themselves tell, but for one kind from another
        whole = "pooler" in parts or "tag" not in layout.architectures
        task = "answer" if "span" in parts else ("classify" if whole else "tag")
    if task == "answer":
        return FinetunedTask(task=task)  # what its config.json calls labels are the beginning and the end
    table, count = config_json.get("id2label"), config_json.get("num_labels", 2)
    if table is None and isinstance(count, int) and 0 < count <= MAX_LABELS:
        table = {str(number): f"LABEL_{number}" for number in range(count)}
    if not isinstance(table, dict) or len(table) > MAX_LABELS or not all(isinstance(it, str) for it in table.values()):
        raise FolderError(path, f"id2label is {short_repr(table)}", "Give every number a name")
    if set(table) != {str(number) for number in range(len(table))}:
        raise FolderError(path, "the numbers of id2label are not 0, 1, 2 and so on")
    labels = tuple(table[str(number)] for number in range(len(table)))
    answer = PROBLEMS.get(str(config_json.get("problem_type")), "regression" if len(labels) == 1 else "single_label")
    if task == "classify" and answer == "regression" and len(labels) != 1:
        raise FolderError(path, f"it answers with {len(labels)} numbers", "Only models with one can be opened")
    pooling = _pooling(config_json, layout, path) if task in ("classify", "choose") else "first"
    if task == "choose" and pooling != "first":
        raise FolderError(path, "endings are compared by their mean vectors", "Only first tokens can be read")
    return FinetunedTask(task=task, labels=labels, problem=answer, pooling=pooling)


def _pooling(raw: dict[str, Any], layout: HFLayout, path: object) -> Pooling:
    said = raw.get("classifier_pooling", "cls")
    if not layout.poolings:
        return "last" if layout.defaults.causal else "first"
    for ours, theirs in layout.poolings.items():
        if theirs == said:
            return ours
    raise FolderError(path, f"classifier_pooling is {short_repr(said)}", "Only 'cls' or 'mean' can be opened")


# ---------------------------------------------------------------------------------------------------- weights


@dataclass(frozen=True)
class WeightRule:
    """One weight of ours, and the weights of theirs that make it up, one above the other."""

    ours: str
    theirs: tuple[str, ...]
    transposed: bool = False  # theirs lies on its side
    integer: bool = False  # it holds whole numbers


def weight_rules(config: TransformerConfig, parts: Iterable[str]) -> list[WeightRule]:
    """Every weight that a network with these parts might have; the trunk's names without their prefix."""
    dialect = layout_of(config)
    lines: list[tuple[str, str | tuple[str, ...]]] = [*dialect.trunk.items()]
    for n in range(config.distinct):
        for ours, theirs in dialect.layer.items():
            names = (theirs,) if isinstance(theirs, str) else theirs
            lines.append((ours.format(n=n), tuple(name.format(n=n) for name in names)))
    for n in range(config.decoder_layers):
        for ours, theirs in dialect.decoder.items():
            names = (theirs,) if isinstance(theirs, str) else theirs
            lines.append((ours.format(n=n), tuple(name.format(n=n) for name in names)))
    for part, table in dialect.parts.items():
        lines += table.items() if part in parts else ()
    expanded = []
    for ours, theirs in lines:
        names = (theirs,) if isinstance(theirs, str) else theirs
        for end in ("",) if ours.endswith((".weight", ".bias")) else (".weight", ".bias"):
            whole = ours + end
            matrix = whole.startswith("trunk.layers.") and whole.endswith(".weight") and "norm" not in whole
            expanded.append(WeightRule(whole, tuple(name + end for name in names), dialect.transposed and matrix))
    return expanded
