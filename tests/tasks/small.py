"""Every kind of task on a network thirty-two wide, with examples of all lengths and a tokenizer learnt from them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch

from bertsmith.data.labelled.examples import Answer as Stretch
from bertsmith.data.labelled.examples import Example, Question, Sentence
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.tasks.base import Task
from bertsmith.tasks.classification import SequenceClassification
from bertsmith.tasks.embedding import SentenceEmbedding
from bertsmith.tasks.multiple_choice import MultipleChoice
from bertsmith.tasks.question_answering import QuestionAnswering
from bertsmith.tasks.tagging import TokenClassification
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train

WORDS = ["cat", "dog", "river", "garden", "sees", "likes", "the", "old", "green", "unbelievable", "in", "1984", "Œuvre"]
LENGTH = 32


@cache
def tokenizer() -> Tokenizer:
    return train([" ".join(WORDS)] * 3 + ["a b c d e f g h i j k l m n o p q r s t u v w x y z , . ? ' - ( )"],
                 TokenizerConfig(vocabulary=120, min_frequency=1))  # fmt: skip


def prose(count: int, seed: int, most: int = 24) -> list[str]:
    """Texts of zero to `most` words."""
    dice = np.random.default_rng(seed)
    return [" ".join(dice.choice(WORDS, size)) for size in dice.integers(0, most, count)]


def shape(**changes: Any) -> TransformerConfig:
    base = TransformerConfig(
        vocabulary=tokenizer().vocabulary, width=32, layers=2, heads=4, feed_forward=48, max_length=64
    )
    return replace(base, **changes)


def stirred(task: Any, seed: int = 0) -> Any:
    """The same network with weights of which none is trivial, not even a bias or a norm."""
    dice = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in task.named_parameters():
            middle = float("norm" in name.lower() and name.endswith("weight"))
            parameter.normal_(middle, 0.15, generator=dice)
    return task.eval()


@dataclass(frozen=True)
class Case:
    """A task, and examples that it can learn from; `nameless` are those of which nobody has said anything."""

    make: Callable[[Transformer], Task]
    examples: list[Any]
    nameless: list[Any]

    def task(self, **changes: Any) -> Task:
        made: Task = stirred(self.make(Transformer(shape(**changes))))
        return made


def _texts(label: Callable[[int], Any], texts: int, seed: int) -> list[Example]:
    written = prose(8 * texts, seed)
    return [
        Example(
            location=f"made:{number}", texts=tuple(written[number * texts : (number + 1) * texts]), label=label(number)
        )
        for number in range(8)
    ]


def _mixed(label: Callable[[int], Any]) -> list[Example]:
    """Single texts and pairs by turns."""
    return [
        replace(example, texts=example.texts[: 1 + number % 2]) for number, example in enumerate(_texts(label, 2, 3))
    ]


def _questions() -> list[Question]:
    found = []
    for number, (passage, question) in enumerate(zip(prose(8, 5, 60), prose(8, 6, 9), strict=True)):
        word = passage.split(" ")[number * 3 % max(1, passage.count(" "))] if passage else ""
        answers = (Stretch(text=word, start=passage.index(word)),) if word and number % 4 else ()
        found.append(
            Question(location=f"made:{number}", name=str(number), question=question, context=passage, answers=answers)
        )
    return found


def _sentences() -> list[Sentence]:
    cut = [tuple(text.split()) for text in prose(8, 7, 60)]
    tags = [tuple("B-X" if word == "cat" else "O" for word in words) for words in cut]
    return [Sentence(location=f"made:{n}", words=words, tags=tags[n]) for n, words in enumerate(cut)]


def _case(make: Callable[[Transformer], Task], examples: list[Any], nothing: str = "") -> Case:
    return Case(make, examples, [replace(example, **{nothing: None}) for example in examples] if nothing else [])


CASES: dict[str, Case] = {
    "class": _case(
        lambda trunk: SequenceClassification(trunk, SequenceClassification.Config(), ("no", "so-so", "yes")),
        _mixed(lambda number: ("no", "yes", "so-so")[number % 3]),
        "label",
    ),
    "number": _case(
        lambda trunk: SequenceClassification(trunk, SequenceClassification.Config(problem="regression"), ()),
        _mixed(lambda number: number / 2),
        "label",
    ),
    "labels": _case(
        lambda trunk: SequenceClassification(
            trunk, SequenceClassification.Config(problem="multi_label"), ("a", "b", "c")
        ),
        _mixed(lambda number: ((), ("a",), ("b", "c"))[number % 3]),
        "label",
    ),
    "tag": _case(
        lambda trunk: TokenClassification(trunk, TokenClassification.Config(), ("B-X", "O")), _sentences(), "tags"
    ),
    "answer": _case(
        lambda trunk: QuestionAnswering(
            trunk, QuestionAnswering.Config(max_question_length=8, overlap=6, max_answer_length=5, n_best=4)
        ),
        _questions(),
        "answers",
    ),
    "choose": _case(
        lambda trunk: MultipleChoice(trunk, MultipleChoice.Config(), ("0", "1", "2")),
        _texts(lambda number: str(number % 3), 4, 8),
        "label",
    ),
    "pairs": _case(
        lambda trunk: SentenceEmbedding(trunk, SentenceEmbedding.Config()), _texts(lambda number: None, 2, 9)
    ),
    "triples": _case(
        lambda trunk: SentenceEmbedding(trunk, SentenceEmbedding.Config(pooling="first")),
        _texts(lambda number: None, 3, 10),
    ),
    "scores": _case(
        lambda trunk: SentenceEmbedding(trunk, SentenceEmbedding.Config(loss="scores", max_score=5.0)),
        _texts(lambda number: number / 2, 2, 11),
    ),
    "dropout": _case(
        lambda trunk: SentenceEmbedding(trunk, SentenceEmbedding.Config(loss="dropout")),
        _texts(lambda number: None, 1, 12),
    ),
}
