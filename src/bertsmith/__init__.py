"""bertsmith turns a folder of text into your own BERT.

The public names are imported when first asked for, so that `import bertsmith` and `bertsmith --help` stay light.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bertsmith.errors import BertsmithError
    from bertsmith.maker import make
    from bertsmith.models.family import FAMILY
    from bertsmith.models.transformer import Transformer, TransformerConfig
    from bertsmith.objectives import OBJECTIVES
    from bertsmith.recipe import FineTune, Recipe
    from bertsmith.run import pretrain
    from bertsmith.tasks import TASKS
    from bertsmith.text.tokenizer import Tokenizer
    from bertsmith.tune import finetune
    from bertsmith.use.fill import Filled, Guess
    from bertsmith.use.load import load
    from bertsmith.use.model import Model

__version__ = "0.1.0"

_HOMES = {
    "BertsmithError": "errors",
    "FAMILY": "models.family",
    "Filled": "use.fill",
    "FineTune": "recipe",
    "Guess": "use.fill",
    "Model": "use.model",
    "OBJECTIVES": "objectives",
    "Recipe": "recipe",
    "TASKS": "tasks",
    "Tokenizer": "text.tokenizer",
    "Transformer": "models.transformer",
    "TransformerConfig": "models.transformer",
    "finetune": "tune",
    "load": "use.load",
    "make": "maker",
    "pretrain": "run",
}

__all__ = [
    "FAMILY",
    "OBJECTIVES",
    "TASKS",
    "BertsmithError",
    "Filled",
    "FineTune",
    "Guess",
    "Model",
    "Recipe",
    "Tokenizer",
    "Transformer",
    "TransformerConfig",
    "finetune",
    "load",
    "make",
    "pretrain",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"bertsmith.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'bertsmith' has no attribute '{name}'")
