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
    from bertsmith import models
    from bertsmith.commands.api import clean, evaluate, export, finetune, inspect, make, prepare, pretrain, tokenizer
    from bertsmith.commands.results import Evaluation, Export, Run
    from bertsmith.errors import BertsmithError
    from bertsmith.inference.fill import FilledText, WordPrediction
    from bertsmith.inference.image_model import ImageModel
    from bertsmith.inference.likelihood import ScoredText
    from bertsmith.inference.load import load
    from bertsmith.inference.model import Model
    from bertsmith.inference.prediction import Prediction
    from bertsmith.insight.inspection.inspection import Inspection
    from bertsmith.models.family import FAMILY
    from bertsmith.models.transformer import Transformer
    from bertsmith.models.transformer_config import TransformerConfig
    from bertsmith.objectives import OBJECTIVES
    from bertsmith.recipe import FineTune, ImageFineTune, ImagePretraining, Recipe
    from bertsmith.tasks import TASKS
    from bertsmith.text.tokenizer import Tokenizer

__version__ = "0.2.0"

_HOMES = {
    "BertsmithError": "errors",
    "Evaluation": "commands.results",
    "Export": "commands.results",
    "FAMILY": "models.family",
    "FilledText": "inference.fill",
    "FineTune": "recipe",
    "ImageModel": "inference.image_model",
    "ImageFineTune": "recipe",
    "ImagePretraining": "recipe",
    "Inspection": "insight.inspection.inspection",
    "WordPrediction": "inference.fill",
    "Model": "inference.model",
    "OBJECTIVES": "objectives",
    "Prediction": "inference.prediction",
    "Recipe": "recipe",
    "Run": "commands.results",
    "ScoredText": "inference.likelihood",
    "TASKS": "tasks",
    "Tokenizer": "text.tokenizer",
    "Transformer": "models.transformer",
    "TransformerConfig": "models.transformer_config",
    "clean": "commands.api",
    "evaluate": "commands.api",
    "export": "commands.api",
    "finetune": "commands.api",
    "inspect": "commands.api",
    "load": "inference.load",
    "make": "commands.api",
    "prepare": "commands.api",
    "pretrain": "commands.api",
    "tokenizer": "commands.api",
}

__all__ = [
    "FAMILY",
    "OBJECTIVES",
    "TASKS",
    "BertsmithError",
    "Evaluation",
    "Export",
    "FilledText",
    "FineTune",
    "ImageFineTune",
    "ImageModel",
    "ImagePretraining",
    "Inspection",
    "Model",
    "Prediction",
    "Recipe",
    "Run",
    "ScoredText",
    "Tokenizer",
    "Transformer",
    "TransformerConfig",
    "WordPrediction",
    "clean",
    "evaluate",
    "export",
    "finetune",
    "inspect",
    "load",
    "make",
    "models",
    "prepare",
    "pretrain",
    "tokenizer",
]


def __getattr__(name: str) -> Any:
    if name == "models":  # a package that can be called
        return import_module("bertsmith.models")
    if name in _HOMES:
        return getattr(import_module(f"bertsmith.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'bertsmith' has no attribute '{name}'")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
