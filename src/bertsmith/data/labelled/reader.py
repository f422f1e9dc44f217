"""Labelled data: the examples in TSV, CSV, JSON, Parquet, CoNLL, SQuAD, treebank or parallel files.

Bad rows are dropped and counted, or refused at once, by the policy.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from bertsmith.data.corpus.sources import Source
from bertsmith.data.labelled import conll, glue, parallel, squad, treebank
from bertsmith.data.labelled.bad_rows import BadRows, Policy
from bertsmith.data.labelled.column_names import COLUMN_NAMES, quoted_list
from bertsmith.data.labelled.columns import (
    GUESSED_COLUMNS,
    ColumnPlan,
    Columns,
    plan_choices,
    plan_columns,
    with_numbers,
)
from bertsmith.data.labelled.examples import Example, Kind, Label, Question, Sentence, collect
from bertsmith.data.labelled.labels import NumberingError, counted_from, labels_from_flags, parse_label
from bertsmith.data.labelled.sources import find_sources
from bertsmith.data.labelled.tables import Table, open_table
from bertsmith.data.labelled.values import list_of_endings
from bertsmith.errors import RecipeError, TextError, suggest

EXAMPLES_PER_REPORT = 10_000  # examples between two reports of progress

UNLABELLED, WRONG, UNKNOWN = "rows without a label", "rows with a wrong label", "rows with an unknown label"
WORDLESS = "rows without text"
NOT_UTF8 = "rows with bad bytes"


@dataclass(frozen=True, kw_only=True)
class LabelledData:
    """Labelled examples, with the columns they come from and the rows that were dropped."""

    examples: Sequence[Example] | Sequence[Sentence] | Sequence[Question]
    description: str  # which columns were taken, in words
    dropped: dict[str, int]  # how many rows, by reason
    fingerprint: str  # SHA-256 of the contents of the files
    texts: tuple[str, ...] = ()  # the columns of the texts in the first file, if it has columns
    label: str | None = None  # and the column of the label
    context_columns: int = 1  # the first n texts are one context, joined by spaces


def read(
    path: str | Path,
    kind: Kind,
    columns: Columns = GUESSED_COLUMNS,
    policy: Policy = "skip",
    *,
    folder: Path | None = None,
    progress: Callable[[int], object] = int,
) -> LabelledData:
    """The examples in a file, or in all files that a pattern such as `part-*.jsonl` matches, in the order of names.

    Parallel text is two files, as `train.en` and `train.de`: the path is `train`, the columns are `en` and `de`.
    Many examples are not held in memory but in a temporary file of `folder`; `progress` is called with the number of
    examples read so far.
    """
    for name, word, known in (("kind", kind, get_args(Kind)), ("policy", policy, get_args(Policy))):
        if word not in known:
            raise RecipeError(name, f"unknown choice '{word}'", suggest(word, known))
    dropped, digest = BadRows(policy), hashlib.sha256()
    descriptions, plans = dict[str, None](), list[ColumnPlan]()
    both = parallel.find_sides(Path(path), columns.texts, columns.label)
    files = both or find_sources(path)
    parts = [parallel.read(both, dropped)] if both else (_read(file, kind, columns, dropped, plans) for file in files)
    encodings = sorted({file.encoding for file in files if file.encoding})
    examples = collect(_with_progress(parts, descriptions, progress), folder)
    for file in files:
        with file.path.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    if not examples:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in dropped.counts.items())
        fact = f"holds no example: {'; '.join(descriptions)}" + (f"; {reasons}" if reasons else "")
        remedy = "Save the file as UTF-8" if NOT_UTF8 in dropped.counts else "Mend the file, or name other columns"
        raise TextError(path, fact, remedy)
    plan = plans[0] if plans else ColumnPlan((), None)
    return LabelledData(
        examples=examples,
        description="; ".join([*descriptions, *(f"read as {name}, not UTF-8" for name in encodings)]),
        dropped=dict(dropped.counts),
        fingerprint=digest.hexdigest(),
        texts=plan.texts,
        label=plan.label,
        context_columns=plan.context_columns,
    )


def _with_progress(
    parts: Iterable[tuple[Iterable[Any], str]], descriptions: dict[str, None], progress: Callable[[int], object]
) -> Iterator[Any]:
    """The examples of all files, one after the other; the descriptions of the files are added to `descriptions`."""
    count = 0
    for examples, description in parts:
        descriptions[description] = None
        for example in examples:
            yield example
            count += 1
            if count % EXAMPLES_PER_REPORT == 0:
                progress(count)


def _read(
    file: Source, kind: Kind, columns: Columns, dropped: BadRows, plans: list[ColumnPlan]
) -> tuple[Iterable[Any], str]:
    """The examples of one file, and a description; the columns they come from are added to `plans`."""
    if kind == "answer":
        return squad.read(file, dropped)
    if kind == "tag":
        if columns.texts is not None and len(columns.texts) != 1:
            raise RecipeError("data.texts", f"names {len(columns.texts)} columns", "The words stand in one")
        word = columns.texts[0] if columns.texts else None
        if file.kind in (".jsonl", ".ndjson", ".json", ".parquet"):
            return conll.from_rows(open_table(file), word, columns.label, dropped)
        return conll.read(file, word, columns.label, dropped)
    if file.kind == treebank.TREEBANK_SUFFIX:
        return treebank.read(file, dropped)
    named = {name for name in (*(columns.texts or ()), columns.label) if name}
    table = open_table(file, COLUMN_NAMES | glue.HEADINGS | named)
    task = None if named else glue.recognise(Path(file.path))
    if task and kind in (task.kind, "pairs") and (found := glue.task_columns(table, task)):
        label = found[1] if kind == task.kind or task.kind == "number" else None
        plan = with_numbers(table, ColumnPlan(found[0], label, classes=task.classes), kind)
        plans.append(plan)
        return _examples(table, kind, plan, dropped), f"{task.name} of GLUE: {plan.describe(table)}"
    plan = plan_choices(table, columns) if kind == "choose" else plan_columns(table, kind, columns)
    plan = with_numbers(table, plan, kind)
    plan = _numbered(table, plan) if kind == "choose" else plan
    plans.append(plan)
    return _examples(table, kind, plan, dropped), plan.describe(table)


def _numbered(table: Table, plan: ColumnPlan) -> ColumnPlan:
    """The plan of multiple choice with the number of the first ending, 0 or 1, by the first rows."""
    rows = [(row, _texts([row.get(name) for name in plan.texts], plan.context_columns, "choose")) for row in table.head]
    shown = ((plan.plain_label(row.get(plan.label or "")), len(texts) - 1) for row, texts in rows if texts is not None)
    return replace(plan, first_ending=counted_from(shown))


def _examples(table: Table, kind: Kind, plan: ColumnPlan, dropped: BadRows) -> Iterator[Example]:
    label: Label | None
    for location, row in table.rows(plan.all, dropped):
        texts = _texts([row[name] for name in plan.texts], plan.context_columns, kind)
        if texts is None:
            dropped.drop(WORDLESS, location, f"has no text in {quoted_list(plan.texts)}")
            continue
        try:
            if plan.flags:
                label = labels_from_flags([row[name] for name in plan.flags], plan.flags)
            else:
                label = None if plan.label is None else parse_label(row[plan.label], kind, plan, len(texts) - 1)
        except NumberingError as error:
            raise TextError(location, str(error), "Number the endings of all rows from 0, or all from 1") from None
        except LookupError as error:
            dropped.drop(UNKNOWN, location, str(error.args[0]))
        except ValueError as error:
            dropped.drop(WRONG, location, str(error))
        else:
            if label is None and (plan.label or plan.flags):
                columns = [plan.label] if plan.label else plan.flags
                dropped.drop(UNLABELLED, location, f"has no label in {quoted_list(columns)}")
            else:
                yield Example(location=location, texts=texts, label=label)


def _texts(values: list[Any], contexts: int, kind: Kind) -> tuple[str, ...] | None:
    """The texts of a row; None where one is missing, or all are blank (for sentence pairs, where any is blank)."""
    if kind == "choose":
        values = [text for value in values for text in (list_of_endings(value) or [value])]
    if not all(isinstance(value, str) for value in values) or (kind == "choose" and len(values) < contexts + 2):
        return None
    texts = tuple(values)
    if contexts > 1:
        texts = (" ".join(value for value in values[:contexts] if value), *values[contexts:])
    enough = all if kind == "pairs" else any
    return texts if enough(text.strip() for text in texts) else None
