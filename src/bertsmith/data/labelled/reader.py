"""Labelled: what people have said of texts, read from whatever file they keep it in.

Which columns hold what is guessed from their names, and from what is in them where there are no names; the guess is
always told. Bad rows are dropped and counted, or refused at once, by the policy.
"""

import glob
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

from bertsmith.data.corpus.sources import Source
from bertsmith.data.labelled import conll, glue, parallel, squad, treebank
from bertsmith.data.labelled.examples import Example, Label, Question, Sentence, collect
from bertsmith.data.labelled.tables import BadRows, Policy, Table, find_source, open_table
from bertsmith.data.labelled.values import is_missing, is_number, parse_flag, split_labels
from bertsmith.errors import RecipeError, TextError, suggest

Kind = Literal["classify", "number", "labels", "tag", "answer", "choose", "pairs"]

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
ENDING = re.compile(r"(ending|choice|option|answer|solution|sol)[ _-]?([0-9]|[a-e])", re.IGNORECASE)
ENDING_COLUMNS = ["endings", "choices", "options", "answers"]
GROUPS = (
    *TRIPLE_COLUMNS,
    *PAIR_COLUMNS,
    TEXT_COLUMNS,
    CLASS_COLUMNS,
    NUMBER_COLUMNS,
    MULTI_LABEL_COLUMNS,
    CONTEXT_COLUMNS,
    ENDING_COLUMNS,
)
VALUES = {"positive", "negative", "y"}  # which are labels as often as the names of columns
COLUMN_NAMES = {name for names in GROUPS for name in names} - VALUES
LABEL_COLUMNS = {*CLASS_COLUMNS, *NUMBER_COLUMNS, *MULTI_LABEL_COLUMNS}
SEPARATORS = ("|", ";", ",")
FEW = 5  # rows for each value of a column, on average, make it look like a label
COUNTED = 10_000  # examples between two reports of progress

UNLABELLED, WRONG, UNKNOWN = "rows without a label", "rows with a wrong label", "rows with an unknown label"
WORDLESS = "rows without text"
NOT_UTF8 = "rows with bad bytes"
REMEDY = """Name them with data.texts='["..."]' data.label='...'"""


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Which columns hold what; None is guessed. Columns without a name go by their number, from 0."""

    texts: tuple[str, ...] | None = None
    label: str | None = None
    separator: str | None = None  # between several labels in one cell; lists in JSON and Parquet need none
    labels: tuple[str, ...] | None = None  # instead of a label: columns of 0 and 1, one for each of several labels


GUESS = Columns()


@dataclass(frozen=True, kw_only=True)
class LabelledData:
    """Labelled examples, and how they were come by."""

    examples: Sequence[Example] | Sequence[Sentence] | Sequence[Question]
    description: str  # which columns were taken, in words
    dropped: dict[str, int]  # how many rows, by reason
    fingerprint: str  # SHA-256 of the contents of the files
    texts: tuple[str, ...] = ()  # the columns that the texts were read from, where they have any, in the first file
    label: str | None = None  # and the column of the label
    context_columns: int = 1  # so many of the texts are one, with blanks between


@dataclass(frozen=True)
class _ColumnPlan:
    """Which columns are read, and how."""

    texts: tuple[str, ...]
    label: str | None
    context_columns: int = 1  # so many of the texts are one, with blanks between
    separator: str | None = None
    classes: tuple[str, ...] = ()  # where they are known beforehand
    flags: tuple[str, ...] = ()  # columns of 0 and 1, one for each label


def read(
    path: str | Path,
    kind: Kind,
    columns: Columns = GUESS,
    policy: Policy = "skip",
    *,
    folder: Path | None = None,
    progress: Callable[[int], object] = int,
) -> LabelledData:
    """The examples in a file, or in all that a pattern such as `part-*.jsonl` matches, in the order of their names.

    Of two files side by side, as `train.en` and `train.de`, the path is `train`, and the columns are `en` and `de`.
    Many examples are not held in memory but in a temporary file of `folder`; `progress` is called with the number of
    those that were read so far.
    """
    for name, word, known in (("kind", kind, get_args(Kind)), ("policy", policy, get_args(Policy))):
        if word not in known:
            raise RecipeError(name, f"unknown choice '{word}'", suggest(word, known))
    dropped, digest = BadRows(policy), hashlib.sha256()
    found, plans = dict[str, None](), list[_ColumnPlan]()
    both = parallel.find_sides(Path(path), columns.texts, columns.label)
    files = both or sources(path)
    parts = [parallel.read(both, dropped)] if both else (_read(file, kind, columns, dropped, plans) for file in files)
    encodings = sorted({file.encoding for file in files if file.encoding})
    examples = collect(_counted(parts, found, progress), folder)
    for file in files:
        with file.path.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    if not examples:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in dropped.counts.items())
        fact = f"holds no example: {'; '.join(found)}" + (f"; {reasons}" if reasons else "")
        remedy = "Save the file as UTF-8" if NOT_UTF8 in dropped.counts else "Mend the file, or name other columns"
        raise TextError(path, fact, remedy)
    counts = dict(dropped.counts)
    taken = plans[0] if plans else _ColumnPlan((), None)
    return LabelledData(
        examples=examples,
        description="; ".join([*found, *(f"read as {name}, not UTF-8" for name in encodings)]),
        dropped=counts,
        fingerprint=digest.hexdigest(),
        texts=taken.texts,
        label=taken.label,
        context_columns=taken.context_columns,
    )


def _counted(
    parts: Iterable[tuple[Iterable[Any], str]], found: dict[str, None], progress: Callable[[int], object]
) -> Iterator[Any]:
    """The examples of all files, one after the other; and in `found` what each file is said to hold."""
    count = 0
    for some, said in parts:
        found[said] = None
        for one in some:
            yield one
            count += 1
            if count % COUNTED == 0:
                progress(count)


def sources(path: str | Path) -> list[Source]:
    """The file of this name, or all that a pattern matches."""
    if glob.has_magic(str(path)) and "\0" not in str(path) and not Path(path).exists():
        found = sorted(glob.glob(str(path)))  # noqa: PTH207  (a Path takes no absolute pattern)
        if not found:
            raise TextError(path, "matches no file")
        return [find_source(Path(name)) for name in found]
    return [find_source(Path(path))]


def _read(
    file: Source, kind: Kind, columns: Columns, dropped: BadRows, plans: list[_ColumnPlan]
) -> tuple[Iterable[Any], str]:
    """The examples of one file and what was found; the columns they come from are added to `plans`."""
    if kind == "answer":
        return squad.read(file, dropped)
    if kind == "tag":
        if columns.texts is not None and len(columns.texts) != 1:
            raise RecipeError("data.texts", f"names {len(columns.texts)} columns", "The words stand in one")
        word = columns.texts[0] if columns.texts else None
        if file.kind in (".jsonl", ".ndjson", ".json", ".parquet"):
            return conll.from_rows(open_table(file), word, columns.label, dropped)
        return conll.read(file, word, columns.label, dropped)
    if file.kind == treebank.ENDING:
        return treebank.read(file, dropped)
    named = {name for name in (*(columns.texts or ()), columns.label) if name}
    table = open_table(file, COLUMN_NAMES | glue.HEADINGS | named)
    task = None if named else glue.recognise(file.path)
    if task and kind in (task.kind, "pairs") and (held := glue.task_columns(table, task)):
        plan = _ColumnPlan(
            held[0], held[1] if kind == task.kind or task.kind == "number" else None, classes=task.classes
        )
        plans.append(plan)
        return _examples(table, kind, plan, dropped), f"{task.name} of GLUE: {_describe(table, plan)}"
    plan = _plan_choices(table, columns) if kind == "choose" else plan_columns(table, kind, columns)
    plans.append(plan)
    return _examples(table, kind, plan, dropped), _describe(table, plan)


def _examples(table: Table, kind: Kind, plan: _ColumnPlan, dropped: BadRows) -> Iterator[Example]:
    label: Label | None
    for place, row in table.rows((*plan.texts, *([plan.label] if plan.label else []), *plan.flags), dropped):
        texts = _texts([row[name] for name in plan.texts], plan.context_columns, kind)
        if texts is None:
            dropped.drop(WORDLESS, place, f"has no text in {quoted_list(plan.texts)}")
            continue
        try:
            if plan.flags:
                label = _labels_from_flags([row[name] for name in plan.flags], plan.flags)
            else:
                label = None if plan.label is None else _label(row[plan.label], kind, plan, len(texts) - 1)
        except LookupError as error:
            dropped.drop(UNKNOWN, place, str(error.args[0]))
        except ValueError as error:
            dropped.drop(WRONG, place, str(error))
        else:
            if label is None and (plan.label or plan.flags):
                dropped.drop(
                    UNLABELLED, place, f"has no label in {quoted_list([plan.label] if plan.label else plan.flags)}"
                )
            else:
                yield Example(location=place, texts=texts, label=label)


def _texts(values: list[Any], joined: int, kind: Kind) -> tuple[str, ...] | None:
    """The texts of a row; None where one is missing, or all are blank. Of a pair to be drawn together, none may be."""
    if kind == "choose":
        values = [one for value in values for one in (_endings(value) or [value])]
    if not all(isinstance(value, str) for value in values) or (kind == "choose" and len(values) < joined + 2):
        return None
    texts = (" ".join(value for value in values[:joined] if value), *values[joined:]) if joined > 1 else tuple(values)
    enough = all if kind == "pairs" else any
    return texts if enough(text.strip() for text in texts) else None


def _label(value: Any, kind: Kind, plan: _ColumnPlan, endings: int) -> Label | None:
    """What a cell says, as the kind of task needs it; None where it says nothing."""
    if kind == "labels":
        if is_missing(value) and value != "":  # an empty cell says that none of the labels fits
            return None
        named = [name for name in map(_class, split_labels(value, plan.separator)) if name is not None]
        return tuple(dict.fromkeys(named))  # none at all is a statement too
    if kind in ("number", "pairs"):
        if is_missing(value):
            return None
        if not isinstance(value, str | int | float) or not is_number(value):
            raise ValueError(f"has the label {_shown(value)}, which is no number")
        return float(value)
    name = _class(value)
    if name is None or (name == "-" and (plan.label or "").casefold() == "gold_label"):  # the annotators disagreed
        return None
    if kind == "choose":
        number = "abcde".find(name.lower()) if name.isalpha() else int(name) if re.fullmatch("[0-9]{1,3}", name) else -1
        if not 0 <= number < endings:
            raise ValueError(f"has the label {_shown(value)}, which is none of its {endings} endings")
        return str(number)
    if plan.classes and name not in plan.classes:
        if name not in map(str, range(len(plan.classes))):
            raise LookupError(f"has the label {_shown(value)}, which is none of {', '.join(plan.classes)}")
        return plan.classes[int(name)]
    return name


def _class(value: Any) -> str | None:
    """The name of a class. Numbers and truth values are names too, but 1.0 is the 1 that a gap has made of it."""
    if is_missing(value):
        return None
    if isinstance(value, float):
        value = int(value) if value.is_integer() else value
    if not isinstance(value, str | int | float):
        raise ValueError(f"has the label {_shown(value)}, which names no class")
    return str(value).strip()


def _labels_from_flags(values: list[Any], names: Sequence[str]) -> tuple[str, ...] | None:
    """The labels whose columns say 1; None where no column says anything."""
    if all(map(is_missing, values)):
        return None
    said = [parse_flag(value) for value in values]
    if None in said:
        raise ValueError(f"has {_shown(values[said.index(None)])} in a column of 0 and 1")
    return tuple(name for name, given in zip(names, said, strict=True) if given)


def plan_columns(table: Table, kind: Kind, columns: Columns) -> _ColumnPlan:
    """The columns that were named, and a guess at the others: the label first, then the texts."""
    texts = tuple(map(table.column, columns.texts or ()))
    flags = tuple(map(table.column, columns.labels or ())) if kind == "labels" else ()
    label = None if flags else table.column(columns.label) if columns.label else _guess_label(table, kind, texts)
    free = [name for name in table.columns if name != label and name not in flags]
    most = 3 if kind == "pairs" else 2
    if not texts:
        texts = match_columns(
            [*(TRIPLE_COLUMNS if kind == "pairs" else []), *PAIR_COLUMNS, *((name,) for name in TEXT_COLUMNS)], free
        )
    if not texts:  # no name is known: what has blanks in it is text
        wordy = _text_columns(table, free)
        texts = tuple(wordy if 1 <= len(wordy) <= most else free if len(free) == 1 else ())
    if not texts or (label is None and not flags and kind != "pairs"):
        raise _guess_error(table, "the texts and the label" if not texts else "the label")
    if kind == "pairs" and len(texts) > most:
        raise TextError(table.name, f"{len(texts)} columns of text", "One, two or three can be drawn together")
    separator = _separator(table, label, columns) if kind == "labels" else None
    return _ColumnPlan(texts, label, separator=separator, flags=flags)


def is_label(name: str) -> bool:
    """Whether a column's name is one that labels go by."""
    return name.casefold() in LABEL_COLUMNS


def _guess_label(table: Table, kind: Kind, texts: Sequence[str]) -> str | None:
    """The column of the label, by its name; else the only one whose values look like labels."""
    free = [name for name in table.columns if name not in texts]
    numbers = [name for name in free if 2 * sum(is_number(row.get(name)) for row in table.head) > len(table.head)]
    if kind == "pairs":  # a score may be there, but need not; a number in front is a count of rows
        last = free[-1:] if not table.has_header and len(free) > 2 else []
        return next(iter(match_columns([(name,) for name in (*SCORE_COLUMNS, *last)], numbers)), None)
    names = {"number": NUMBER_COLUMNS, "labels": MULTI_LABEL_COLUMNS}.get(kind, CLASS_COLUMNS)
    if named := match_columns([(name,) for name in names], free):
        return named[0]
    told = texts or match_columns([*PAIR_COLUMNS, *((name,) for name in TEXT_COLUMNS)], free)
    told = told or _text_columns(table, free)
    left = [name for name in free if name not in told]
    left = [name for name in left if not _numbers_rows(table, name)] or left
    if told and len(left) == 1 and (kind != "number" or left[0] in numbers):
        return left[0]
    among = left if told else free
    alike = [name for name in among if (name in numbers if kind == "number" else has_few_values(table, name))]
    return alike[0] if len(alike) == 1 else None


def _plan_choices(table: Table, columns: Columns) -> _ColumnPlan:
    """The columns of a beginning, of its endings, and of the number of the right one."""
    label = table.column(columns.label) if columns.label else None
    label = label or next(
        iter(match_columns([("label",), ("answer",), ("answerkey",), ("target",)], table.columns)), None
    )
    if columns.texts:
        texts, joined = tuple(map(table.column, columns.texts)), 1
    else:
        free = [name for name in table.columns if name != label]
        stems: dict[str, list[tuple[str, str]]] = {}
        for name in free:
            if match := ENDING.fullmatch(name):
                stems.setdefault(match[1].lower(), []).append((match[2].lower(), name))
        most = max(stems.values(), key=len, default=[])
        endings = [name for _, name in sorted(most)] or list(match_columns([(name,) for name in ENDING_COLUMNS], free))
        # SWAG has two sentences, the second without its end; they are one text, which the endings go on with.
        contexts = match_columns(
            [("sent1", "sent2"), ("article", "question"), *((name,) for name in CONTEXT_COLUMNS)], free
        )
        if not contexts or not endings:
            raise _guess_error(table, "a beginning and its endings")
        texts, joined = (*contexts, *endings), len(contexts)
    if label is None:
        raise _guess_error(table, "the label")
    return _ColumnPlan(texts, label, joined)


def _guess_error(table: Table, what: str) -> TextError:
    if len(table.columns) == 1:
        return TextError(table.name, "has one column, and so no labels", "Give it a file with a column of labels")
    columns = ", ".join(table.columns) + ("" if table.has_header else " (there is no header)")
    return TextError(table.name, f"which columns hold {what} cannot be guessed from {columns}", REMEDY)


def match_columns(groups: Sequence[Sequence[str]], columns: Sequence[str]) -> tuple[str, ...]:
    """The first group of names that are all there, as they are written there."""
    there = {name.casefold(): name for name in columns}
    return next((tuple(there[name] for name in group) for group in groups if there.keys() >= set(group)), ())


def _wordy(table: Table, name: str) -> bool:
    values = [row.get(name) for row in table.head]
    return all(isinstance(value, str) for value in values) and any(" " in value.strip() for value in values if value)


def _text_columns(table: Table, names: Sequence[str]) -> list[str]:
    """The columns with words in them; but for those of a few values, as "very good" is, if there are others."""
    wordy = [name for name in names if _wordy(table, name)]
    return [name for name in wordy if FEW * len({row.get(name) for row in table.head}) > len(table.head)] or wordy


def _numbers_rows(table: Table, name: str) -> bool:
    """Whether a column only numbers the rows."""
    values = [row.get(name) for row in table.head]
    if len(values) < 3 or not all(map(is_number, values)):
        return False
    numbers = list(map(float, values))  # type: ignore[arg-type]
    return all(following == number + 1 for number, following in pairwise(numbers))


def has_few_values(table: Table, name: str) -> bool:
    """Whether a column has few different values."""
    values = [str(row.get(name)) for row in table.head]
    return len(values) > 1 and 2 * len(set(values)) <= len(values) and any(value.strip() for value in values)


def _separator(table: Table, label: str | None, columns: Columns) -> str | None:
    held = [value for row in table.head if isinstance(value := row.get(label or ""), str)]
    return columns.separator or next((mark for mark in SEPARATORS if any(mark in value for value in held)), None)


def _endings(value: Any) -> list[Any]:
    """The texts in a list, or in a record that keeps one."""
    inside = value.get("text") if isinstance(value, dict) else value
    return inside if isinstance(inside, list) else []


def _describe(table: Table, plan: _ColumnPlan) -> str:
    label = f", label from {quoted_list([plan.label])}" if plan.label else ", no label"
    label = f", labels from {quoted_list(plan.flags)}" if plan.flags else label
    separated = f" separated by '{plan.separator}'" if plan.separator else ""
    return f"texts from {quoted_list(plan.texts)}{label}{separated}" + (
        "" if table.has_header else " (there is no header)"
    )


def quoted_list(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(f"'{name}'" for name in names[:-1]), f"'{names[-1]}'"]))


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
