"""Mismatch: a labelled file of another kind than a model was fine-tuned on, refused in one line."""

from itertools import islice
from pathlib import Path

from bertsmith.data.corpus.lines import READ_ERRORS
from bertsmith.data.labelled.examples import Kind
from bertsmith.data.labelled.guess import guess, guess_by_suffix
from bertsmith.data.labelled.inputs import CONLL_PEEK_LINES, is_conll
from bertsmith.data.labelled.lines import read_lines
from bertsmith.data.labelled.sources import find_sources
from bertsmith.errors import TextError

FILE_HOLDS: dict[Kind, str] = {
    "classify": "texts with classes",
    "number": "texts with numbers",
    "labels": "texts with several labels each",
    "tag": "tagged tokens",
    "answer": "questions about passages",
    "choose": "multiple-choice questions",
    "pairs": "pairs of texts without labels",
}
MODEL_DOES: dict[Kind, str] = {
    "classify": "classifies texts",
    "number": "predicts a number for a text",
    "labels": "gives a text any of several labels",
    "tag": "tags tokens",
    "answer": "answers questions about passages",
    "choose": "chooses one of several endings",
    "pairs": "compares pairs of texts",
}
TASK_NEEDS: dict[Kind, str] = {
    "classify": "a table with a column of texts and one of classes",
    "number": "a table with a column of texts and one of numbers",
    "labels": "a table with a column of texts and one of labels",
    "tag": "a file in CoNLL's columns, or JSON lines with lists of tokens and tags",
    "answer": "SQuAD's JSON, or a table with the columns question, context and answers",
    "choose": "a table with a context, its endings and the number of the right one",
    "pairs": "a table with two columns of texts",
}
# One class is one of several labels; a number may be a class.
COMPATIBLE_KINDS = [{"classify", "labels"}, {"number", "classify"}]


def kind_of(path: Path) -> Kind | None:
    """The kind of labelled data in a file, guessed; None where it cannot be."""
    try:
        if guess_by_suffix(path) == "tag":
            head = [line for _, line, _ in islice(read_lines(find_sources(path)[0]), CONLL_PEEK_LINES)]
            return "tag" if is_conll(head, frozenset()) and any(len(line.split()) > 1 for line in head) else None
        guessed = guess(path)
    except (TextError, *READ_ERRORS):
        return None
    if guessed.task == "classify":
        return {"single_label": "classify", "regression": "number", "multi_label": "labels"}[guessed.problem]  # type: ignore[return-value]
    return "pairs" if guessed.task == "embed" else guessed.task


def mismatch(path: Path, kind: Kind, *, strictly: bool = False) -> TextError | None:
    """The error that names the file's kind of data and the model's, if these differ.

    Classes, labels and numbers are accepted for each other, unless `strictly`.
    """
    found = kind_of(path)
    if found is None or found == kind or (not strictly and any({found, kind} <= pair for pair in COMPATIBLE_KINDS)):
        return None
    return TextError(
        path, f"holds {FILE_HOLDS[found]}, and the model {MODEL_DOES[kind]}", f"Give it {TASK_NEEDS[kind]}"
    )
