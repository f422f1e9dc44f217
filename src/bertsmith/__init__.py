"""bertsmith turns a folder of text into your own BERT.

    import bertsmith

    mine = bertsmith.make("texts/", "runs/mine", budget="10m")
    mine.model.fill("The capital of France is [MASK].")
    reviews = bertsmith.finetune(mine, "reviews.csv", out="runs/reviews", epochs=3)
    reviews.model.predict("I liked it.")
    bertsmith.load("runs/reviews").predict(["I liked it.", "I did not."])

The public names are imported when first asked for, so that `import bertsmith` and `bertsmith --help` stay light.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bertsmith import evaluate, models, prepare
    from bertsmith.api import Evaluation, Run, finetune, make, pretrain, tokenizer
    from bertsmith.errors import BertsmithError
    from bertsmith.models.family import FAMILY
    from bertsmith.models.transformer import Transformer, TransformerConfig
    from bertsmith.objectives import OBJECTIVES
    from bertsmith.recipe import FineTune, Recipe
    from bertsmith.tasks import TASKS
    from bertsmith.text.tokenizer import Tokenizer
    from bertsmith.use.fill import Filled, Guess
    from bertsmith.use.likelihood import Scored
    from bertsmith.use.load import load
    from bertsmith.use.model import Model
    from bertsmith.use.prediction import Prediction

__version__ = "0.1.0"

_HOMES = {
    "BertsmithError": "errors",
    "Evaluation": "api",
    "FAMILY": "models.family",
    "Filled": "use.fill",
    "FineTune": "recipe",
    "Guess": "use.fill",
    "Model": "use.model",
    "OBJECTIVES": "objectives",
    "Prediction": "use.prediction",
    "Recipe": "recipe",
    "Run": "api",
    "Scored": "use.likelihood",
    "TASKS": "tasks",
    "Tokenizer": "text.tokenizer",
    "Transformer": "models.transformer",
    "TransformerConfig": "models.transformer",
    "finetune": "api",
    "load": "use.load",
    "make": "api",
    "pretrain": "api",
    "tokenizer": "api",
}
_MODULES = ("evaluate", "models", "prepare")  # files that can be called, as `callable.py` says

__all__ = [
    "FAMILY",
    "OBJECTIVES",
    "TASKS",
    "BertsmithError",
    "Evaluation",
    "Filled",
    "FineTune",
    "Guess",
    "Model",
    "Prediction",
    "Recipe",
    "Run",
    "Scored",
    "Tokenizer",
    "Transformer",
    "TransformerConfig",
    "evaluate",
    "finetune",
    "load",
    "make",
    "models",
    "prepare",
    "pretrain",
    "tokenizer",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"bertsmith.{name}")
    if name in _HOMES:
        return getattr(import_module(f"bertsmith.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'bertsmith' has no attribute '{name}'")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
