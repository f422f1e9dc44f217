"""PEFT's names of tasks, heads and LoRA matrices, which follow transformers' names."""

from bertsmith.errors import RecipeError
from bertsmith.models.hf import convert
from bertsmith.models.hf.layout import HFLayout
from bertsmith.models.hf.layouts import layout_of
from bertsmith.nn import lora
from bertsmith.tasks.base import Task
from bertsmith.tasks.classification import SequenceClassification
from bertsmith.tasks.embedding import SentenceEmbedding
from bertsmith.tasks.multiple_choice import MultipleChoice
from bertsmith.tasks.question_answering import QuestionAnswering
from bertsmith.tasks.tagging import TokenClassification

PREFIX = "base_model.model."  # of every weight's name
CLASSIFIER = "classifier"  # the module that PEFT always saves; in some classes the pooler is a part of it
# The tasks in transformers and in PEFT, which has no multiple choice, and whose "QUESTION_ANS" drops token_type_ids.
TASK_TYPES: dict[type[Task], tuple[str, str | None]] = {
    QuestionAnswering: ("answer", None),
    MultipleChoice: ("choose", None),
    SequenceClassification: ("classify", "SEQ_CLS"),
    SentenceEmbedding: ("trunk", "FEATURE_EXTRACTION"),
    TokenClassification: ("tag", "TOKEN_CLS"),
}


def transformers_class(task: Task) -> str:
    """transformers' class for a task, whose names of weights PEFT takes over."""
    classes, (kind, _) = layout_of(task.trunk.config).architectures, TASK_TYPES.get(type(task), ("", None))
    if kind not in classes:
        fact = f"transformers has no class for {type(task).__name__} with this network, so LoRA has no names"
        raise RecipeError("adapt.kind", fact, "Use 'full' or 'frozen'")
    return classes[kind]


def head_names(task: Task) -> frozenset[str]:
    """The names of a task's heads."""
    return frozenset(name.partition(".")[0] for name in task.state_dict()) - {"trunk"}


def head_weight_names(task: Task) -> dict[str, str]:
    """Our names of the heads' weights, and PEFT's."""
    rules, own = convert.weight_rules(task.trunk.config, head_names(task)), task.state_dict()
    ours = [rule for rule in rules if rule.ours in own and not rule.ours.startswith("trunk.")]
    return {rule.ours: PREFIX + _full_name(task, rule.theirs[0]) for rule in ours}


def module_to_save(name: str, layout: HFLayout) -> str:
    """The entry of PEFT's `modules_to_save` for a head's weight: its module; for a classifier, the whole of it."""
    module = name.removeprefix(PREFIX).removeprefix(layout.prefix).rpartition(".")[0]
    return CLASSIFIER if module.startswith(CLASSIFIER) else module


def supported_targets(task: Task) -> list[str]:
    """The targets that are separate weights in the network's folder: query, key and value, or qkv."""
    return [name for name, (path, _, parts) in lora.TARGETS.items() if len(_transformers_names(task, path)) == parts]


def target_module(task: Task, layer: int, target: str) -> str:
    """A target's name in transformers."""
    path, part, _ = lora.TARGETS[target]
    return _full_name(task, _transformers_names(task, path)[part].format(n=layer))


def lora_weight_names(task: Task, layer: int, target: str) -> tuple[str, str]:
    """PEFT's names of the two low-rank matrices of a target."""
    adapted = PREFIX + target_module(task, layer, target)
    return f"{adapted}.lora_A.weight", f"{adapted}.lora_B.weight"


def _transformers_names(task: Task, path: str) -> tuple[str, ...]:
    """transformers' names of a layer's matrix: one, or one for each part of it."""
    theirs = layout_of(task.trunk.config).layer[f"trunk.layers.{{n}}.{path}"]
    return (theirs,) if isinstance(theirs, str) else theirs


def _full_name(task: Task, name: str) -> str:
    """A weight's full name in transformers' class for this task."""
    return layout_of(task.trunk.config).full_name(name, transformers_class(task))
