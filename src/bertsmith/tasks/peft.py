"""PEFT's names: what it calls a task, its heads and the matrices that LoRA adapts, after transformers' own."""

from bertsmith.errors import RecipeError
from bertsmith.models import foreign
from bertsmith.models.dialect import Dialect
from bertsmith.models.dialects import dialect_of
from bertsmith.nn import lora
from bertsmith.tasks.answer import Answer
from bertsmith.tasks.base import Task
from bertsmith.tasks.choose import Choose
from bertsmith.tasks.classify import Classify
from bertsmith.tasks.embed import Embed
from bertsmith.tasks.tag import Tag

PREFIX = "base_model.model."  # before every name of a weight
WHOLE = "classifier"  # the module that PEFT always saves; in some classes the pooler is a part of it
# What a task is in transformers and in PEFT, which knows no choosing; and what it makes of "QUESTION_ANS" forgets which
# text is the second.
KINDS: dict[type[Task], tuple[str, str | None]] = {
    Answer: ("answer", None),
    Choose: ("choose", None),
    Classify: ("classify", "SEQ_CLS"),
    Embed: ("trunk", "FEATURE_EXTRACTION"),
    Tag: ("tag", "TOKEN_CLS"),
}


def class_of(task: Task) -> str:
    """Transformers' class for a task, after which PEFT names all weights."""
    classes, (kind, _) = dialect_of(task.trunk.config).classes, KINDS.get(type(task), ("", None))
    if kind not in classes:
        fact = f"transformers has no class for {type(task).__name__} with this network, and LoRA so no names"
        raise RecipeError("adapt.kind", fact, "Use 'full' or 'frozen'")
    return classes[kind]


def parts(task: Task) -> frozenset[str]:
    """The heads of a task."""
    return frozenset(name.partition(".")[0] for name in task.state_dict()) - {"trunk"}


def heads(task: Task) -> dict[str, str]:
    """Our names of the heads' weights, and PEFT's."""
    rules, own = foreign.rules(task.trunk.config, parts(task)), task.state_dict()
    ours = [rule for rule in rules if rule.ours in own and not rule.ours.startswith("trunk.")]
    return {rule.ours: PREFIX + _full(task, rule.theirs[0]) for rule in ours}


def saved(name: str, dialect: Dialect) -> str:
    """What PEFT is told to save for a weight of a head: the module that has it. Of a classifier it saves the whole."""
    module = name.removeprefix(PREFIX).removeprefix(dialect.prefix).rpartition(".")[0]
    return WHOLE if module.startswith(WHOLE) else module


def known(task: Task) -> list[str]:
    """The targets whose weights the network's folder has a name for: the parts of a matrix, or the whole."""
    return [name for name, (path, _, parts) in lora.TARGETS.items() if len(_theirs(task, path)) == parts]


def module(task: Task, layer: int, target: str) -> str:
    """A target's name in transformers."""
    path, part, _ = lora.TARGETS[target]
    return _full(task, _theirs(task, path)[part].format(n=layer))


def names(task: Task, layer: int, target: str) -> tuple[str, str]:
    """PEFT's names of the two thin matrices of a target."""
    adapted = PREFIX + module(task, layer, target)
    return f"{adapted}.lora_A.weight", f"{adapted}.lora_B.weight"


def _theirs(task: Task, path: str) -> tuple[str, ...]:
    """Transformers' names of a layer's matrix: one, or one for each of its parts."""
    theirs = dialect_of(task.trunk.config).layer[f"trunk.layers.{{n}}.{path}"]
    return (theirs,) if isinstance(theirs, str) else theirs


def _full(task: Task, name: str) -> str:
    """A name as transformers' class for this task has it."""
    return dialect_of(task.trunk.config).full(name, class_of(task))
