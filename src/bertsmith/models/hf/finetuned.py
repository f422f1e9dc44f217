"""The task of a fine-tuned folder: its kind, labels, problem type and pooling, in transformers' config.json."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bertsmith.errors import FolderError
from bertsmith.files import short_repr
from bertsmith.models.hf.layout import HFLayout
from bertsmith.nn.pooling import Pooling

TASKS = ("classify", "tag", "answer", "choose")
PROBLEM_TYPE = "problem_type"
PROBLEMS = {  # transformers' problem_type: ours
    "single_label_classification": "single_label",
    "regression": "regression",
    "multi_label_classification": "multi_label",
}
SETTINGS = {  # those that decide predictions, and for which transformers has no key: in config.json under bertsmith
    "classify": ("metric", "threshold"),
    "tag": ("overlap",),
    "answer": ("max_question_length", "overlap", "max_answer_length", "n_best", "null_threshold"),
}
MAX_LABELS = 100_000


@dataclass(frozen=True, kw_only=True)
class FinetunedTask:
    """The task that a folder was fine-tuned for."""

    task: str
    labels: tuple[str, ...] = ()  # by id
    problem: str = "single_label"  # of `classify`
    pooling: Pooling = "first"  # of `classify`: its classifier reads the first token, the last, or the mean of all

    @property
    def classes(self) -> int:
        """Outputs of the classifier."""
        return 1 if self.task == "choose" else max(1, len(self.labels))

    def to_config_json(self, layout: HFLayout) -> dict[str, Any]:
        """The keys of config.json that describe the task."""
        keys: dict[str, Any] = {"architectures": [layout.architectures[self.task]]}
        if self.labels:
            keys["id2label"] = {str(number): label for number, label in enumerate(self.labels)}
            keys["label2id"] = {label: number for number, label in enumerate(self.labels)}
        if self.task == "classify":
            if layout.poolings:
                keys["classifier_pooling"] = layout.poolings[self.pooling]
            keys[PROBLEM_TYPE] = next(theirs for theirs, ours in PROBLEMS.items() if ours == self.problem)
        return keys


def architecture_of(config_json: dict[str, Any]) -> str | None:
    """The class of transformers that config.json names."""
    named = config_json.get("architectures")
    first = named[0] if isinstance(named, list) and named else None
    return first if isinstance(first, str) else None


def finetuned_task(
    config_json: dict[str, Any], layout: HFLayout, parts: Iterable[str], path: object
) -> FinetunedTask | None:
    """The task of a folder with these parts, by its config.json; None if it was not fine-tuned."""
    parts = set(parts)
    if not parts & {"classifier", "span"}:
        return None
    named = architecture_of(config_json)
    task = next((ours for ours in TASKS if named is not None and layout.architectures.get(ours) == named), None)
    if task is None:  # no known class is named: go by the heads, which do not tell `choose` from `classify`
        whole_text = "pooler" in parts or "tag" not in layout.architectures
        task = "answer" if "span" in parts else ("classify" if whole_text else "tag")
    if task == "answer":
        return FinetunedTask(task=task)  # the two labels in its config.json are the start and the end of the span
    labels = labels_of(config_json, path)
    problem = PROBLEMS.get(str(config_json.get(PROBLEM_TYPE)), "regression" if len(labels) == 1 else "single_label")
    if task == "classify" and problem == "regression" and len(labels) != 1:
        raise FolderError(path, f"is a regression with {len(labels)} outputs", "Only models with one can be opened")
    pooling = _pooling(config_json, layout, path) if task in ("classify", "choose") else "first"
    if task == "choose" and pooling != "first":
        raise FolderError(path, "its multiple choice pools the mean of all tokens", "Only first tokens can be read")
    # Probabilities are given by label; tags are read as names of entities and stay as they are.
    labels = distinct(labels) if task == "classify" else labels
    return FinetunedTask(task=task, labels=labels, problem=problem, pooling=pooling)


def distinct(labels: Sequence[str]) -> tuple[str, ...]:
    """The labels, those that occur more than once with their id: `x (0)` and `x (1)`."""
    counts = Counter(labels)
    if len(counts) == len(labels):
        return tuple(labels)
    return distinct(tuple(f"{one} ({number})" if counts[one] > 1 else one for number, one in enumerate(labels)))


def labels_of(config_json: dict[str, Any], path: object) -> tuple[str, ...]:
    """The labels of a classifier, by id; transformers has two where none are given."""
    table, count = config_json.get("id2label"), config_json.get("num_labels", 2)
    if table is None and isinstance(count, int) and 0 < count <= MAX_LABELS:
        table = {str(number): f"LABEL_{number}" for number in range(count)}
    if not isinstance(table, dict) or len(table) > MAX_LABELS or not all(isinstance(it, str) for it in table.values()):
        raise FolderError(path, f"id2label is {short_repr(table)}", "Give every id a label")
    if set(table) != {str(number) for number in range(len(table))}:
        raise FolderError(path, "the ids of id2label are not 0, 1, 2 and so on")
    return tuple(table[str(number)] for number in range(len(table)))


def _pooling(config_json: dict[str, Any], layout: HFLayout, path: object) -> Pooling:
    name = config_json.get("classifier_pooling", "cls")
    if not layout.poolings:
        return "last" if layout.defaults.causal else "first"
    for ours, theirs in layout.poolings.items():
        if theirs == name:
            return ours
    raise FolderError(path, f"classifier_pooling is {short_repr(name)}", "Only 'cls' or 'mean' can be opened")
