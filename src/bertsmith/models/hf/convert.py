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
from bertsmith.models.transformer import TransformerConfig
from bertsmith.nn.activations import Activation
from bertsmith.nn.pooling import Pooling

# --------------------------------------------------------------------------------------------------- settings

BIASES = ("norm_bias", "attention_bias", "mlp_bias", "classifier_bias")  # ModernBERT may have some; ours all or none
FULL, NEAR = "full_attention", "sliding_attention"  # its kinds of layers
TURNING = (("rotary_base", FULL, "global_rope_theta"), ("window_rotary_base", NEAR, "local_rope_theta"))
WRITER = {  # Marian's second network may have sizes of its own; ours has those of the first
    "heads": "decoder_attention_heads",
    "feed_forward": "decoder_ffn_dim",
    "vocabulary": "decoder_vocab_size",
}
LARGEST = 1 << 24  # no size in a configuration is larger; a file cannot make us count further


def from_config_json(raw: dict[str, Any], place: object) -> NetworkConfig:
    """Their settings as ours. What is left out has the value that transformers gives it."""
    if raw.get("model_type") == native.MODEL_TYPE:
        return native.from_config_json(raw, place)
    *most, last = (f"'{kind}'" for kind in LAYOUTS)
    known = f"{', '.join(most)} or {last}"
    if "model_type" not in raw:
        raise FolderError(place, "names no model_type", f"Only folders of model_type {known} can be opened")
    dialect = LAYOUTS.get(str(raw["model_type"]))
    if dialect is None:
        raise FolderError(place, f"model_type is {short_repr(raw['model_type'])}", f"Only {known} can be opened")
    if dialect is T5 and str(raw.get("feed_forward_proj", "")).startswith("gated"):
        dialect = T5_V1_1
    for theirs, only in dialect.fixed.items():
        _only(raw, theirs, only, place)
    values: dict[str, Any] = {"activation": _activation(raw, dialect, place)}
    for ours, theirs in dialect.settings.items():
        if theirs in raw:
            values[ours] = _number(raw[theirs], theirs, TransformerConfig.__annotations__[ours] is int, place)
    if "max_length" in values:
        values["max_length"] -= (
            dialect.defaults.position_offset
        )  # they count all rows of the table, we those that are read
    widths = [values.get(name, getattr(dialect.defaults, name)) for name in ("embedding_width", "width")]
    if dialect.tables == "either" and widths[0] == widths[1]:
        values["embedding_width"] = 0  # they always name the width of the tables, we where it is not the network's
    if dialect is MODERNBERT:
        values |= _modern(raw, place)
    elif dialect in (GPT, GPT2):
        values["feed_forward"] = _feed_forward(raw, dialect, values.get("width", dialect.defaults.width), place)
        dropout = dialect.defaults.dropout
        _only({"embd_pdrop": dropout, **raw}, "embd_pdrop", values.get("dropout", dropout), place)
    elif dialect in (T5, T5_V1_1):
        values |= _t5(raw, dialect, values, place)
    elif dialect is MARIAN:
        _only({"scale_embedding": False, **raw}, "scale_embedding", True, place)
        for ours, theirs in WRITER.items():
            _only(raw, theirs, values.get(ours, getattr(dialect.defaults, ours)), place)
    elif raw.get("positions") == "sinusoidal":  # our own word: transformers sees a table with the same numbers
        values["positions"] = "sinusoidal"
    try:
        return replace(dialect.defaults, **values)
    except ValueError as error:
        raise FolderError(place, str(error)) from None


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
        **(_modern_words(config) if dialect is MODERNBERT else {}),
        **({"embd_pdrop": config.dropout} if dialect in (GPT, GPT2) else {}),
        **({"n_inner": config.feed_forward} if dialect is GPT2 else {}),
        **({"d_kv": config.head_size} if dialect in (T5, T5_V1_1) else {}),
        **({theirs: getattr(config, ours) for ours, theirs in WRITER.items()} if dialect is MARIAN else {}),
        **dict.fromkeys(dialect.activations, _written(dialect, config.activation)),
        "initializer_range": 0.02,
        "tie_word_embeddings": config.tie_embeddings,
    }


def _activation(raw: dict[str, Any], dialect: HFLayout, place: object) -> Activation:
    found = set()
    for theirs in dialect.activations:
        said = raw.get(theirs, _written(dialect, dialect.defaults.activation))
        if not isinstance(said, str) or said not in dialect.activation_names:
            raise FolderError(
                place, f"unknown {theirs} {short_repr(said)}", suggest(short_repr(said), dialect.activation_names)
            )
        found.add(dialect.activation_names[said])
    if len(found) > 1:
        raise FolderError(place, f"{' and '.join(dialect.activations)} differ", "Only one curve for both can be opened")
    return found.pop()


def _written(dialect: HFLayout, activation: Activation) -> str:
    """Their name of a curve: of several the first."""
    return next(theirs for theirs, ours in dialect.activation_names.items() if ours == activation)


def _feed_forward(raw: dict[str, Any], dialect: HFLayout, width: int, place: object) -> int:
    """How wide GPT's feed-forward network is: four times the width, unless GPT-2 says otherwise."""
    said = None if dialect.fourfold_feed_forward else raw.get("n_inner")
    return 4 * width if said is None else int(_number(said, "n_inner", True, place))


def _t5(raw: dict[str, Any], dialect: HFLayout, values: dict[str, Any], place: object) -> dict[str, Any]:
    """What T5 says in words of its own kind: its second network is as deep as the first unless it says otherwise."""
    # Whether words have a table of their own; the later word for it is of those who believe that none has.
    tied = raw.get("scale_decoder_outputs", raw.get("tie_word_embeddings", True))
    if tied is not dialect.defaults.tie_embeddings:
        table = "the one that they are read by" if dialect.defaults.tie_embeddings else "one of their own"
        raise FolderError(place, f"tie_word_embeddings is {short_repr(tied)}", f"Such a T5 tells words by {table}")
    whole = {name: values.get(name, getattr(dialect.defaults, name)) for name in ("layers", "width", "heads")}
    head = values.get("head_width", 64)
    return {
        "decoder_layers": values.get("decoder_layers", whole["layers"]),
        "head_width": 0 if head * whole["heads"] == whole["width"] else head,
    }


def _modern(raw: dict[str, Any], place: object) -> dict[str, Any]:
    """What ModernBERT says in words of its own kind."""
    biases = raw.get("norm_bias", False)
    for name in BIASES:
        _only(raw, name, biases, place)
    if not isinstance(biases, bool):
        raise FolderError(place, f"norm_bias is {short_repr(biases)}", "Give true or false")
    reach = _reach(raw, place)
    bases = {
        ours: _number(_base(raw, kind, old, getattr(MODERNBERT.defaults, ours), place), "rope_theta", False, place)
        for ours, kind, old in (TURNING if reach["window"] else TURNING[:1])
    }
    return {"biases": biases, **bases, **reach}


def _base(raw: dict[str, Any], kind: str, old: str, usual: float, place: object) -> Any:
    """How slowly layers of a kind turn."""
    turning = raw.get("rope_parameters")
    if not isinstance(turning, dict) or not isinstance(turning.get(kind), dict):
        return raw.get(old, usual)
    _only(turning[kind], "rope_type", "default", place)
    return turning[kind].get("rope_theta", usual)


def _reach(raw: dict[str, Any], place: object) -> dict[str, int]:
    """Which layers look only at their neighbours, and how far."""
    standard, kinds = MODERNBERT.defaults, raw.get("layer_types")
    every = _number(
        raw.get("global_attn_every_n_layers", standard.global_every), "global_attn_every_n_layers", True, place
    )
    if kinds is not None:
        layers = raw.get("num_hidden_layers", standard.layers)
        if not isinstance(kinds, list) or len(kinds) != layers or not set(map(str, kinds)) <= {FULL, NEAR}:
            raise FolderError(
                place, f"layer_types is {short_repr(kinds)}", f"Give '{FULL}' or '{NEAR}' for every layer"
            )
        wide = [number for number, kind in enumerate(kinds) if kind == FULL]
        every = wide[1] if len(wide) > 1 else len(kinds)
        if wide != list(range(0, len(kinds), every)):
            fact = "the layers that look at all do not follow each other at one distance from the first"
            raise FolderError(place, fact, "Only such networks can be opened")
    if every < 1:
        raise FolderError(place, f"global_attn_every_n_layers is {every}", "Give at least 1")
    if every == 1:
        return {"window": 0}
    width = _number(raw.get("local_attention", 2 * standard.window), "local_attention", True, place)
    if width < 2:
        raise FolderError(place, f"local_attention is {width}", "Give at least 2")
    return {"window": int(width) // 2, "global_every": int(every)}


def _modern_words(config: TransformerConfig) -> dict[str, Any]:
    bases = {kind: getattr(config, ours if config.window else "rotary_base") for ours, kind, _ in TURNING}
    return {
        **dict.fromkeys(BIASES, config.biases),
        "embedding_dropout": config.dropout,
        "classifier_dropout": config.dropout,
        "layer_types": [NEAR if config.is_local(number) else FULL for number in range(config.layers)],
        "rope_parameters": {kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()},
        **({"local_attention": 2 * config.window} if config.window else {}),
        # The same in the words of transformers before version 5, which knows only these.
        "global_attn_every_n_layers": config.global_every if config.window else 1,
        **{old: bases[kind] for _, kind, old in TURNING},
    }


def _only(raw: dict[str, Any], theirs: str, only: Any, place: object) -> None:
    if raw.get(theirs, only) != only:
        raise FolderError(place, f"{theirs} is {short_repr(raw[theirs])}", f"Only {short_repr(only)} can be opened")


def _number(value: object, theirs: str, whole: bool, place: object) -> int | float:
    numeric = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not numeric or not 0 <= value <= LARGEST:  # type: ignore[operator]
        raise FolderError(place, f"{theirs} is {short_repr(value)}", f"Give a {'whole ' if whole else ''}number")
    return value if whole else float(value)  # type: ignore[return-value,arg-type]


TASKS = ("classify", "tag", "answer", "choose")
PROBLEMS = {  # theirs: what Classify answers
    "single_label_classification": "single_label",
    "regression": "regression",
    "multi_label_classification": "multi_label",
}
MOST_LABELS = 100_000


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

    def to_config_json(self, dialect: HFLayout) -> dict[str, Any]:
        """The same as config.json says it."""
        named: dict[str, Any] = {"architectures": [dialect.architectures[self.task]]}
        if self.labels:
            named["id2label"] = {str(number): label for number, label in enumerate(self.labels)}
            named["label2id"] = {label: number for number, label in enumerate(self.labels)}
        if self.task == "classify":
            if dialect.poolings:
                named["classifier_pooling"] = dialect.poolings[self.pooling]
            named["problem_type"] = next(theirs for theirs, ours in PROBLEMS.items() if ours == self.problem)
        return named


def architecture_of(raw: dict[str, Any]) -> str | None:
    """The class of transformers that a folder says it is of."""
    named = raw.get("architectures")
    first = named[0] if isinstance(named, list) and named else None
    return first if isinstance(first, str) else None


def finetuned_task(raw: dict[str, Any], dialect: HFLayout, parts: Iterable[str], place: object) -> FinetunedTask | None:
    """What a folder with these parts was fine-tuned for, as its config.json says."""
    parts = set(parts)
    if not parts & {"classifier", "span"}:
        return None
    named = architecture_of(raw)
    task = next((ours for ours in TASKS if named is not None and dialect.architectures.get(ours) == named), None)
    if task is None:  # the weights themselves tell, but for one kind from another
        whole = "pooler" in parts or "tag" not in dialect.architectures
        task = "answer" if "span" in parts else ("classify" if whole else "tag")
    if task == "answer":
        return FinetunedTask(task=task)  # what its config.json calls labels are the beginning and the end
    table, count = raw.get("id2label"), raw.get("num_labels", 2)
    if table is None and isinstance(count, int) and 0 < count <= MOST_LABELS:
        table = {str(number): f"LABEL_{number}" for number in range(count)}
    if not isinstance(table, dict) or len(table) > MOST_LABELS or not all(isinstance(it, str) for it in table.values()):
        raise FolderError(place, f"id2label is {short_repr(table)}", "Give every number a name")
    if set(table) != {str(number) for number in range(len(table))}:
        raise FolderError(place, "the numbers of id2label are not 0, 1, 2 and so on")
    labels = tuple(table[str(number)] for number in range(len(table)))
    answer = PROBLEMS.get(str(raw.get("problem_type")), "regression" if len(labels) == 1 else "single_label")
    if task == "classify" and answer == "regression" and len(labels) != 1:
        raise FolderError(place, f"it answers with {len(labels)} numbers", "Only models with one can be opened")
    pooling = _pooling(raw, dialect, place) if task in ("classify", "choose") else "first"
    if task == "choose" and pooling != "first":
        raise FolderError(place, "endings are compared by their mean vectors", "Only first tokens can be read")
    return FinetunedTask(task=task, labels=labels, problem=answer, pooling=pooling)


def _pooling(raw: dict[str, Any], dialect: HFLayout, place: object) -> Pooling:
    said = raw.get("classifier_pooling", "cls")
    if not dialect.poolings:
        return "last" if dialect.defaults.causal else "first"
    for ours, theirs in dialect.poolings.items():
        if theirs == said:
            return ours
    raise FolderError(place, f"classifier_pooling is {short_repr(said)}", "Only 'cls' or 'mean' can be opened")


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
