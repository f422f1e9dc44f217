"""Our words and theirs: how Hugging Face's BERT names settings and weights. Tables, read both ways."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bertsmith.errors import FolderError, nearest
from bertsmith.models.transformer import TransformerConfig
from bertsmith.nn.layers import Activation

# --------------------------------------------------------------------------------------------------- settings

SETTINGS = {  # ours: theirs
    "vocabulary": "vocab_size",
    "width": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "feed_forward": "intermediate_size",
    "length": "max_position_embeddings",
    "segments": "type_vocab_size",
    "norm_eps": "layer_norm_eps",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
}
ACTIVATIONS: dict[str, Activation] = {  # theirs: ours; of several names for one curve the first is written
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
}
FIXED = {  # theirs: the only value this network has
    "model_type": "bert",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}
LARGEST = 1 << 24  # no size in a configuration is larger; a file cannot make us count further


def config_of(raw: dict[str, Any], place: object) -> TransformerConfig:
    """Their settings as ours. What is left out has BERT-base's value, as in transformers."""
    if "model_type" not in raw:
        raise FolderError(place, "names no model_type", "Only folders of model_type 'bert' can be opened")
    for theirs, only in FIXED.items():
        if raw.get(theirs, only) != only:
            raise FolderError(place, f"{theirs} is {shown(raw[theirs])}", f"Only {shown(only)} can be opened")
    activation = raw.get("hidden_act", "gelu")
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise FolderError(place, f"unknown hidden_act {shown(activation)}", nearest(shown(activation), ACTIVATIONS))
    values: dict[str, Any] = {"activation": ACTIVATIONS[activation]}
    if raw.get("positions") == "sinusoidal":  # our own word: transformers sees a learned table with the same numbers
        values["positions"] = "sinusoidal"
    for ours, theirs in SETTINGS.items():
        if theirs not in raw:
            continue
        value, whole = raw[theirs], TransformerConfig.__annotations__[ours] is int
        known = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if not known or not 0 <= value <= LARGEST:
            raise FolderError(place, f"{theirs} is {shown(value)}", f"Give a {'whole ' if whole else ''}number")
        values[ours] = value if whole else float(value)
    try:
        return TransformerConfig(**values)
    except ValueError as error:
        raise FolderError(place, str(error)) from None


def words_of(config: TransformerConfig, parts: Iterable[str]) -> dict[str, Any]:
    """Our settings as theirs: what config.json holds."""
    written = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    return {
        "architectures": [architecture(parts)],
        **FIXED,
        **{theirs: getattr(config, ours) for ours, theirs in SETTINGS.items()},
        **({"positions": config.positions} if config.positions != "learned" else {}),
        "hidden_act": written[config.activation],
        "initializer_range": 0.02,
        "pad_token_id": 0,
        "tie_word_embeddings": True,
    }


TASKS = {  # ours: the class of transformers
    "classify": "BertForSequenceClassification",
    "tag": "BertForTokenClassification",
    "answer": "BertForQuestionAnswering",
    "choose": "BertForMultipleChoice",
}
PROBLEMS = {  # theirs: what Classify answers
    "single_label_classification": "class",
    "regression": "number",
    "multi_label_classification": "labels",
}
MOST_LABELS = 100_000


@dataclass(frozen=True, kw_only=True)
class Learnt:
    """What a fine-tuned folder can do: the task, its labels by number, and for `classify` what it answers."""

    task: str
    labels: tuple[str, ...] = ()
    answer: str = "class"

    @property
    def classes(self) -> int:
        """Outputs of the classifier."""
        return 1 if self.task == "choose" else max(1, len(self.labels))

    def words(self) -> dict[str, Any]:
        """The same as config.json says it."""
        named: dict[str, Any] = {"architectures": [TASKS[self.task]]}
        if self.labels:
            named["id2label"] = {str(number): label for number, label in enumerate(self.labels)}
            named["label2id"] = {label: number for number, label in enumerate(self.labels)}
        if self.task == "classify":
            named["problem_type"] = next(theirs for theirs, ours in PROBLEMS.items() if ours == self.answer)
        return named


def learnt(raw: dict[str, Any], parts: Iterable[str], place: object) -> Learnt | None:
    """What a folder with these parts was fine-tuned for, as its config.json says."""
    parts = set(parts)
    if not parts & {"classifier", "span"}:
        return None
    named = raw.get("architectures")
    first = named[0] if isinstance(named, list) and named else None
    task = next((ours for ours, theirs in TASKS.items() if theirs == first), None)
    if task is None:  # the weights themselves tell, but for one kind from another
        task = "answer" if "span" in parts else ("classify" if "pooler" in parts else "tag")
    if task == "answer":
        return Learnt(task=task)  # what its config.json calls labels are the beginning and the end
    table, count = raw.get("id2label"), raw.get("num_labels", 2)
    if table is None and isinstance(count, int) and 0 < count <= MOST_LABELS:
        table = {str(number): f"LABEL_{number}" for number in range(count)}
    if not isinstance(table, dict) or len(table) > MOST_LABELS or not all(isinstance(it, str) for it in table.values()):
        raise FolderError(place, f"id2label is {shown(table)}", "Give every number a name")
    if set(table) != {str(number) for number in range(len(table))}:
        raise FolderError(place, "the numbers of id2label are not 0, 1, 2 and so on")
    labels = tuple(table[str(number)] for number in range(len(table)))
    answer = PROBLEMS.get(str(raw.get("problem_type")), "number" if len(labels) == 1 else "class")
    if task == "classify" and answer == "number" and len(labels) != 1:
        raise FolderError(place, f"it answers with {len(labels)} numbers", "Only models with one can be opened")
    return Learnt(task=task, labels=labels, answer=answer)


def architecture(parts: Iterable[str]) -> str:
    """The class of transformers that has these parts."""
    if "span" in parts:
        return TASKS["answer"]
    if "classifier" in parts:
        return TASKS["classify" if "pooler" in parts else "tag"]
    match "head" in parts, "next" in parts:
        case True, True:
            return "BertForPreTraining"
        case True, False:
            return "BertForMaskedLM"
        case False, True:
            return "BertForNextSentencePrediction"
    return "BertModel"


# ---------------------------------------------------------------------------------------------------- weights


@dataclass(frozen=True)
class Rule:
    """One weight of ours, and the weights of theirs that make it up, one above the other."""

    ours: str
    theirs: tuple[str, ...]


# Each line stands for a weight and a bias, unless it ends in one of them.
TRUNK = {
    "trunk.embedding.weight": "embeddings.word_embeddings.weight",
    "trunk.positions.weight": "embeddings.position_embeddings.weight",
    "trunk.segments.weight": "embeddings.token_type_embeddings.weight",
    "trunk.norm": "embeddings.LayerNorm",
}
LAYER = {
    "trunk.layers.{n}.attention.project": (
        "encoder.layer.{n}.attention.self.query",
        "encoder.layer.{n}.attention.self.key",
        "encoder.layer.{n}.attention.self.value",
    ),
    "trunk.layers.{n}.attention.output": "encoder.layer.{n}.attention.output.dense",
    "trunk.layers.{n}.attention_norm": "encoder.layer.{n}.attention.output.LayerNorm",
    "trunk.layers.{n}.feed_forward.widen": "encoder.layer.{n}.intermediate.dense",
    "trunk.layers.{n}.feed_forward.narrow": "encoder.layer.{n}.output.dense",
    "trunk.layers.{n}.feed_forward_norm": "encoder.layer.{n}.output.LayerNorm",
}
PARTS: dict[str, dict[str, str]] = {
    "pooler": {"pooler.dense": "pooler.dense"},
    "head": {
        "head.dense": "cls.predictions.transform.dense",
        "head.norm": "cls.predictions.transform.LayerNorm",
        "head.bias": "cls.predictions.bias",
    },
    "next": {"next.dense": "cls.seq_relationship"},
    "classifier": {"classifier.dense": "classifier"},
    "span": {"span.dense": "qa_outputs"},
}
TRUNK_PREFIX = "bert."  # before the trunk's and the pooler's names, unless the folder is a bare BertModel
OLD_ENDINGS = {".LayerNorm.gamma": ".LayerNorm.weight", ".LayerNorm.beta": ".LayerNorm.bias"}
TWINS = {  # a second name of the same weight, in some files
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
COUNTERS = {"embeddings.position_ids", "embeddings.token_type_ids"}  # 0, 1, 2 ... kept by older versions


def rules(config: TransformerConfig, parts: Iterable[str]) -> list[Rule]:
    """Every weight of a network with these parts; the trunk's names without their prefix."""
    lines: list[tuple[str, str | tuple[str, ...]]] = [*TRUNK.items()]
    for n in range(config.layers):
        for ours, theirs in LAYER.items():
            names = (theirs,) if isinstance(theirs, str) else theirs
            lines.append((ours.format(n=n), tuple(name.format(n=n) for name in names)))
    for part in PARTS:
        lines += PARTS[part].items() if part in parts else ()
    expanded = []
    for ours, theirs in lines:
        names = (theirs,) if isinstance(theirs, str) else theirs
        for end in ("",) if ours.endswith((".weight", ".bias")) else (".weight", ".bias"):
            expanded.append(Rule(ours + end, tuple(name + end for name in names)))
    return expanded


def plain(name: str) -> str:
    """Their name of a weight without prefix and in today's spelling."""
    name = name.removeprefix(TRUNK_PREFIX)
    for old, new in OLD_ENDINGS.items():
        name = name.removesuffix(old) + new if name.endswith(old) else name
    return name


def full(name: str, parts: Iterable[str]) -> str:
    """The name as the class of transformers with these parts spells it."""
    prefixed = architecture(parts) != "BertModel" and not name.startswith(("cls.", "classifier.", "qa_outputs."))
    return TRUNK_PREFIX + name if prefixed else name


def shown(value: object) -> str:
    """A value from a file, short enough for one line."""
    text = repr(value)
    return text if len(text) <= 100 else text[:97] + "..."
