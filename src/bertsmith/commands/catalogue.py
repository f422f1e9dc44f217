"""`list`: the models of the family, the objectives, the tasks and the recipes."""

import re
from collections.abc import Mapping
from typing import Any

from rich.table import Table

from bertsmith import config, recipes, terminal
from bertsmith.models.elmo import ElmoConfig
from bertsmith.models.family import FAMILY
from bertsmith.models.networks import NetworkConfig
from bertsmith.models.recurrent import RecurrentConfig
from bertsmith.models.seq2seq import Seq2SeqConfig
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.models.vision_config import VisionConfig
from bertsmith.models.vision_family import IMAGE_FAMILY
from bertsmith.models.word2vec import Word2VecConfig
from bertsmith.objectives import IMAGE_OBJECTIVES, OBJECTIVES
from bertsmith.runs.image_pretraining import reads_images
from bertsmith.runs.image_recipe import TASK as IMAGES
from bertsmith.tasks import TASK_NAMES, TASKS, task_name

CONSOLE = terminal.console()
SIZE = re.compile(r"(-v1\.1)?-(tiny|mini|small|medium|base|large|xl|xlarge|xxlarge)$")  # at the end of a member's name


def list_all() -> None:
    """Print the models of the family, the objectives, the tasks and the recipes."""
    CONSOLE.print("Models", style="bold")
    CONSOLE.print(_models())
    _print_names(
        "Objectives of pretraining: objective.kind=NAME",
        {key: _first_line(one) for key, one in (OBJECTIVES | IMAGE_OBJECTIVES).items()},
    )
    others = {kind: [name for name, (task, _) in TASK_NAMES.items() if task == kind] for kind in TASKS}
    tasks = {
        task_name(kind): _first_line(task) + "".join(f"; also {', '.join(others[kind][1:])}" for _ in others[kind][1:2])
        for kind, task in TASKS.items()
    }
    tasks[IMAGES] = "the class of each image, by a vision transformer or a convolutional network"
    _print_names("Tasks of fine-tuning: bertsmith finetune MODEL DATA --task NAME --out runs/tuned", tasks)
    titles = {name: _title(name) for name in sorted(recipes.names(), key=lambda name: name.startswith("tiny/"))}
    tuning = {name: title for name, title in titles.items() if "task" in config.read_toml(recipes.find(name))}
    images = {name: title for name, title in titles.items() if reads_images(config.read_toml(recipes.find(name)))}
    pretraining = {name: title for name, title in titles.items() if name not in tuning | images}
    _print_names("Recipes of pretraining: bertsmith pretrain NAME --data PREPARED --out runs/mine", pretraining)
    _print_names("Recipes of pretraining on images: bertsmith pretrain NAME IMAGES --out runs/mine", images)
    _print_names("Recipes of training a task from random weights: bertsmith finetune NAME DATA --out runs/mine", tuning)


def _models() -> Table:
    """A row for each member, one family after the other in the order of their papers."""
    table = Table(box=None)
    table.add_column("", no_wrap=True)
    for name in ("layers", "width", "heads", "feed-forward", "parameters"):
        table.add_column(name, justify="right", no_wrap=True)
    families: dict[str, list[str]] = {}
    for name, shape in FAMILY.items():
        families.setdefault(_family(name, shape), []).append(name)
    for family, members in families.items():
        if family != next(iter(families)):
            table.add_row()
        for name in members:
            shape = FAMILY[name]
            layers = f"{shape.layers} + {shape.decoder_layers}" if shape.decoder_layers else f"{shape.layers}"
            inner = (shape.heads, shape.feed_forward) if isinstance(shape, TransformerConfig) else ("", "")
            row = (layers, shape.width, *inner, f"{shape.parameter_count / 1e6:,.1f} M")
            table.add_row(name, *map(str, row))
    table.add_row()
    for name, network in IMAGE_FAMILY.items():
        sizes: tuple[Any, ...] = ("", network.width, "", "")
        if isinstance(network, VisionConfig):
            sizes = (network.layers, network.width, network.heads, network.feed_forward)
        table.add_row(name, *map(str, sizes), f"{network.parameter_count / 1e6:,.1f} M")
    table.add_row()
    table.add_row("word2vec", "1", str(Word2VecConfig().width), "", "", "2 x width x words")
    return table


def _family(name: str, shape: NetworkConfig) -> str:
    """The family of a member: members that differ in size, recurrent networks, and the kin of RoBERTa and of BERT."""
    kinds = {RecurrentConfig: "recurrent", Seq2SeqConfig: "seq2seq", ElmoConfig: "elmo"}
    kin = {"xlm-roberta": "roberta", "camembert": "roberta", "distilbert": "bert", "mpnet": "bert", "gpt2": "gpt"}
    family = SIZE.sub("", name)
    return kinds.get(type(shape), kin.get(family, family))


def _print_names(title: str, names: Mapping[str, str]) -> None:
    """A title, and a line for each name, aligned."""
    CONSOLE.print(f"\n{title}", style="bold")
    width = max(map(len, names))
    for name, about in names.items():
        CONSOLE.print(f" {name:<{width}}  {about}")


def _first_line(kind: type) -> str:
    return (kind.__doc__ or "").splitlines()[0].rstrip(".")


def _title(name: str) -> str:
    """The title of a recipe: the first sentence of its file."""
    with recipes.find(name).open(encoding="utf-8") as file:
        line = file.readline().lstrip("# ").strip()
    return re.split(r"(?<=on a laptop): |\. (?=[A-Z])", line)[0].rstrip(".:")
