"""A trained model in a person's hands: open a folder, fill blanks."""

from bertsmith.use.fill import Filled, Guess
from bertsmith.use.load import Model, load

__all__ = ["Filled", "Guess", "Model", "load"]
