"""Names of columns in the labelled files of the field: GLUE, NLI, sentence pairs, SWAG and RACE, Kaggle's tables."""

import re
from collections.abc import Iterable, Sequence
from itertools import takewhile

TRIPLE_COLUMNS = [
    ("anchor", "positive", "negative"),
    ("query", "positive", "negative"),
    ("sent0", "sent1", "hard_neg"),
    ("question", "positive", "negative"),
]
PAIR_COLUMNS = [
    ("sentence1", "sentence2"),
    ("sentence_1", "sentence_2"),
    ("sentence_a", "sentence_b"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("query", "passage"),
    ("query", "document"),
    ("query", "answer"),
    ("query", "text"),
    ("question", "answer"),
    ("question", "passage"),
    ("question", "context"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("anchor", "positive"),
    ("query", "positive"),
    ("#1 string", "#2 string"),
]
TEXT_COLUMNS = ["sentence", "text", "review", "content", "tweet", "comment", "message", "utterance", "document", "body"]
TEXT_COLUMNS += ["question", "query", "title", "sentences", "texts"]
CLASS_COLUMNS = ["label", "gold_label", "class", "category", "target", "labels", "is_duplicate", "quality", "sentiment"]
CLASS_COLUMNS += ["intent", "topic", "emotion", "rating", "stars", "score", "answer", "y"]
SCORE_COLUMNS = ["score", "similarity", "similarity_score", "relatedness_score"]
NUMBER_COLUMNS = [*SCORE_COLUMNS, "label", "target", "rating", "stars", "y"]
MULTI_LABEL_COLUMNS = ["labels", "label", "classes", "categories", "topics", "emotions", "tags", "targets", "genres"]
CONTEXT_COLUMNS = ["startphrase", "ctx", "context", "premise", "sentence", "question", "text", "prompt", "article"]
# SWAG has two sentences, the second without its end: joined they are one context, which the endings continue.
CONTEXT_GROUPS = [("sent1", "sent2"), ("article", "question")]
ENDING_COLUMN = re.compile(r"(ending|choice|option|answer|solution|sol)[ _-]?([0-9]{1,2}|[a-j])", re.IGNORECASE)
ENDING_LETTERS = "abcdefghij"  # of columns that are named by their letters alone
ENDING_COLUMNS = ["endings", "choices", "options", "answers"]
CHOICE_COLUMNS = ["label", "answer", "answerkey", "target"]

_GROUPS = (
    *TRIPLE_COLUMNS,
    *PAIR_COLUMNS,
    TEXT_COLUMNS,
    CLASS_COLUMNS,
    NUMBER_COLUMNS,
    MULTI_LABEL_COLUMNS,
    CONTEXT_COLUMNS,
    ENDING_COLUMNS,
)
_VALUES = {"positive", "negative", "y"}  # labels as often as names of columns
COLUMN_NAMES = {name for names in _GROUPS for name in names} - _VALUES
LABEL_COLUMNS = {*CLASS_COLUMNS, *NUMBER_COLUMNS, *MULTI_LABEL_COLUMNS}


def is_label(name: str) -> bool:
    """Whether a column has one of the usual names of labels."""
    return name.casefold() in LABEL_COLUMNS


def match_columns(groups: Sequence[Sequence[str]], columns: Sequence[str]) -> tuple[str, ...]:
    """The first group of names that are all among the columns, spelt as they are spelt there."""
    by_name = {name.casefold(): name for name in columns}
    return next((tuple(by_name[name] for name in group) for group in groups if by_name.keys() >= set(group)), ())


def find_column(known: Iterable[str], columns: Sequence[str]) -> str | None:
    """The column with the first of the known names that there is."""
    return next(iter(match_columns([(name,) for name in known], columns)), None)


def ending_columns(columns: Sequence[str]) -> list[str]:
    """The columns of the endings of multiple choice in their order: ending0 to ending10, choice_a, or A, B, C, D."""
    stems: dict[str, list[tuple[int, str]]] = {}
    for name in columns:
        if match := ENDING_COLUMN.fullmatch(name):
            order = int(match[2]) if match[2].isdigit() else ENDING_LETTERS.index(match[2].lower())
            stems.setdefault(match[1].lower(), []).append((order, name))
    most = max(stems.values(), key=len) if stems else []
    return [name for _, name in sorted(most)] or letter_columns(columns)


def letter_columns(columns: Sequence[str]) -> list[str]:
    """The columns A, B, C and so on, if there are two or more."""
    by_name = {name.casefold(): name for name in columns}
    letters = [by_name[letter] for letter in takewhile(by_name.__contains__, ENDING_LETTERS)]
    return letters if len(letters) > 1 else []


def quoted_list(names: Sequence[str]) -> str:
    """Names in quotes, the last after an `and`."""
    return " and ".join(filter(None, [", ".join(f"'{name}'" for name in names[:-1]), f"'{names[-1]}'"]))
