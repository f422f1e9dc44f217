"""Few-shot prompts: the template of an example, and the choice of the shots before a text."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from bertsmith.data.labelled.examples import Example
from bertsmith.errors import RecipeError, suggest
from bertsmith.random_bits import mix, permute

Texts = tuple[str, ...]  # one text, or a pair

TEMPLATES = {1: "{text} => {label}\n", 2: "{text} | {second} => {label}\n"}  # by the number of texts
TEMPLATE_FIELD = re.compile(r"\{(text|second)\}")
YES_NO = {"entailment": "yes", "neutral": "maybe", "contradiction": "no", "not_entailment": "no"}
GLUE_LABEL_WORDS: dict[str, dict[str, str]] = {  # the words for the classes of GLUE: common, and of few tokens
    "CoLA": {"0": "wrong", "1": "right"},
    "SST-2": {"0": "negative", "1": "positive"},
    "MRPC": {"0": "different", "1": "same"},
    "QQP": {"0": "different", "1": "same"},
    "MNLI": YES_NO,
    "QNLI": YES_NO,
    "RTE": YES_NO,
    "WNLI": {"0": "no", "1": "yes"},
}
DRAW_CLASS, DRAW_EXAMPLE, DRAW_ORDER = range(3)  # random streams: the order of classes, an example, the order of shots


class Template:
    """The template of an example: its texts first, then its label.

    The space before a label belongs to the label, as in tokens of byte-level BPE, so that the question has the same
    tokens with every label.
    """

    def __init__(self, pattern: str) -> None:
        head, label, self._tail = pattern.partition("{label}")
        if not label or "{text}" not in head or TEMPLATE_FIELD.search(self._tail) or "{label}" in self._tail:
            fact = f"{pattern!r} has not its texts first and then one label"
            raise RecipeError("template", fact, "Write it as in '{text} => {label}' or '{text} | {second} => {label}'")
        self.pattern, self._head = pattern, head.rstrip()
        self._gap = head[len(self._head) :]
        self.text_count = 2 if "{second}" in head else 1

    @classmethod
    def of(cls, pattern: str | None, texts: int) -> "Template":
        """The given template, or the default for this number of texts."""
        return cls(TEMPLATES[min(texts, 2)] if pattern is None else pattern)

    def question(self, texts: Texts) -> str:
        """An example up to its label. Texts are put on one line, since a line break separates examples."""
        if len(texts) != self.text_count:
            fact = f"{self.pattern!r} has a place for {self.text_count} and not for {len(texts)} texts"
            raise RecipeError("template", fact, "Write {text} for one, {text} and {second} for two")
        values = {name: " ".join(text.split()) for name, text in zip(("text", "second"), texts, strict=False)}
        return TEMPLATE_FIELD.sub(lambda found: values[found[1]], self._head)

    def answer(self, label_words: str) -> str:
        """A label as the continuation of the question."""
        return self._gap + label_words

    def demonstration(self, texts: Texts, label_words: str) -> str:
        """An example with its label."""
        return self.question(texts) + self.answer(label_words) + self._tail


class DemonstrationPool:
    """Labelled examples to draw shots from.

    The shots of a text are a pure function of the seed and the text's number. The classes take turns, in a random order
    for each text; k shots are the first k of more, so that runs differ only in the number of shots.
    """

    def __init__(self, examples: Sequence[Example]) -> None:
        self.examples = examples
        members: dict[str, list[int]] = {}
        for number, example in enumerate(examples):
            members.setdefault(str(example.label), []).append(number)
        self._members = [np.array(members[label]) for label in sorted(members)]

    def draw(self, count: int, seed: int, number: int) -> list[Example]:
        """`count` examples for a text, or all if there are fewer."""
        return [self.examples[one] for one in islice(self._turns(seed, number), count)]

    def _turns(self, seed: int, number: int) -> Iterator[int]:
        classes = len(self._members)
        order = permute(np.arange(classes), classes, int(mix(seed, DRAW_CLASS, number))).tolist()
        for rank in range(max(map(len, self._members), default=0)):
            for turn in order:
                own = self._members[turn]
                if rank < len(own):
                    [place] = permute(np.array([rank]), len(own), int(mix(seed, DRAW_EXAMPLE, number, turn)))
                    yield int(own[place])


def label_words(labels: Sequence[str], overrides: Mapping[str, str], task: str = "") -> dict[str, str]:
    """The words for each label: those given, else those known for a task of GLUE, else the label itself."""
    for label in overrides:
        if label not in labels:
            raise RecipeError("label_words", f"there is no label '{label}'", suggest(label, labels))
    known = {**GLUE_LABEL_WORDS.get(task, {}), **overrides}
    return {label: known.get(label, label) for label in labels}
