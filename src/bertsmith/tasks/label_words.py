"""Labels as text, as in T5: the words of classes, numbers as digits, and the prompts of GLUE's tasks."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from bertsmith.errors import RecipeError
from bertsmith.text.tokenizer import Tokenizer

# Prefix, names of texts and words of classes for each task. Raffel et al. 2020, appendix D.
GLUE_PROMPTS: dict[str, dict[str, Any]] = {
    "CoLA": {"prefix": "cola sentence:", "label_words": ("unacceptable", "acceptable")},
    "SST-2": {"prefix": "sst2 sentence:", "label_words": ("negative", "positive")},
    "MRPC": {"prefix": "mrpc", "label_words": ("not_equivalent", "equivalent")},
    "STS-B": {"prefix": "stsb", "output": "number"},
    "QQP": {"prefix": "qqp", "text_names": ("question1", "question2"), "label_words": ("not_duplicate", "duplicate")},
    "MNLI": {"prefix": "mnli", "text_names": ("premise", "hypothesis"), "reverse": True},
    "QNLI": {"prefix": "qnli", "text_names": ("question", "sentence")},
    "RTE": {"prefix": "rte"},
    "WNLI": {"prefix": "wnli", "label_words": ("not_entailment", "entailment")},
}


@dataclass(frozen=True)
class LabelWords:
    """Decodes generated tokens: the tokenizer, and the class of each generated text."""

    tokenizer: Tokenizer
    labels: dict[str, str]

    @classmethod
    def of(cls, tokenizer: Tokenizer, label_words: dict[str, str], max_new_tokens: int) -> "LabelWords":
        """The classes by their text after encoding and decoding, since a tokenizer may lowercase."""
        found: dict[str, str] = {}
        for (label, word), ids in zip(label_words.items(), tokenizer.encode(list(label_words.values())), strict=True):
            decoded = tokenizer.decode(ids[: max_new_tokens - 1]).strip()
            if decoded in found:
                fact = f"'{label_words[found[decoded]]}' and '{word}' are both written '{decoded}'"
                raise RecipeError(
                    "task.label_words", fact, "Give the classes other words, or raise task.max_new_tokens"
                )
            found[decoded] = label
        return cls(tokenizer, found)


def format_number(number: float, step: float) -> str:
    """A number as the target text of T5: 3.75 as 3.8. Raffel et al. 2020, section 2.4."""
    decimals = max(0, -int(Decimal(repr(step)).as_tuple().exponent))
    return f"{round(number / step) * step:.{decimals}f}"
