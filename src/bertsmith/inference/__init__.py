"""A trained model in a person's hands: `load` opens a folder as a `model`; then `fill` blanks, make `vectors`, ask how
likely a text is (`likelihood`), and which of two (`minimal`), let it go on with one (`generate`) or say it in another
language (`translate`), or classify by examples that it is shown (`shots`). What it was fine-tuned for, it says by its
task. `words` asks word vectors.
"""

from bertsmith.inference.fill import FilledText, WordPrediction
from bertsmith.inference.load import load
from bertsmith.inference.model import Model

__all__ = ["FilledText", "Model", "WordPrediction", "load"]
