"""A mismatch: a labelled file that holds another kind of labels than a model was fine-tuned for, said in one line."""

from itertools import islice
from pathlib import Path

from bertsmith.data.corpus.lines import READ_ERRORS
from bertsmith.data.labelled.guess import guess, guess_by_suffix
from bertsmith.data.labelled.inputs import PEEK, is_conll
from bertsmith.data.labelled.reader import Kind, sources
from bertsmith.data.labelled.tables import read_lines
from bertsmith.errors import TextError

HOLDS: dict[Kind, str] = {
    "classify": "texts with classes",
    "number": "texts with numbers",
    "labels": "texts with several labels each",
    "tag": "tagged tokens",
    "answer": "questions about passages",
    "choose": "multiple-choice questions",
    "pairs": "pairs of texts without labels",
}
DOES: dict[Kind, str] = {
    "classify": "classifies texts",
    "number": "predicts a number for a text",
    "labels": "gives a text any of several labels",
    "tag": "tags tokens",
    "answer": "answers questions about passages",
    "choose": "chooses one of several endings",
    "pairs": "compares pairs of texts",
}
NEEDS: dict[Kind, str] = {
    "classify": "a table with a column of texts and one of classes",
    "number": "a table with a column of texts and one of numbers",
    "labels": "a table with a column of texts and one of labels",
    "tag": "a file in CoNLL's columns, or JSON lines with lists of tokens and tags",
    "answer": "SQuAD's JSON, or a table with the columns question, context and answers",
    "choose": "a table with a context, its endings and the number of the right one",
    "pairs": "a table with two columns of texts",
}
ALIKE = [{"classify", "labels"}, {"number", "classify"}]  # one class is one of several labels; a number may be a class


def held(path: Path) -> Kind | None:
    """What a file seems to hold; None where nothing tells."""
    try:
        if guess_by_suffix(path) == "tag":
            some = [line for _, line, _ in islice(read_lines(sources(path)[0]), PEEK)]
            return "tag" if is_conll(some, frozenset()) and any(len(line.split()) > 1 for line in some) else None
        found = guess(path)
    except (TextError, *READ_ERRORS):
        return None
    if found.task == "classify":
        return {"single_label": "classify", "regression": "number", "multi_label": "labels"}[found.problem]  # type: ignore[return-value]
    return "pairs" if found.task == "embed" else found.task


def mismatch(path: Path, kind: Kind, *, strictly: bool = False) -> TextError | None:
    """The error that names what the file holds and what the model does, if these differ.

    Classes, labels and numbers may stand for each other where they can be read; `strictly`, where they could not.
    """
    found = held(path)
    if found is None or found == kind or (not strictly and any({found, kind} <= pair for pair in ALIKE)):
        return None
    return TextError(path, f"holds {HOLDS[found]}, and the model {DOES[kind]}", f"Give it {NEEDS[kind]}")
