"""Records: the texts in JSON lines, in Parquet and in a column of a table, a document each."""

import json
from collections.abc import Callable, Iterator

from bertsmith.data.corpus.lines import Cleaner, clean_lines, read_error
from bertsmith.data.corpus.sources import Source, import_pyarrow
from bertsmith.data.labelled.bad_rows import MAX_LINE, BadRows
from bertsmith.data.labelled.lines import first_line
from bertsmith.data.labelled.sources import with_encoding
from bertsmith.data.labelled.tables import Table, open_table
from bertsmith.errors import TextError, suggest

MAX_JSON_LINE = 1 << 24  # characters of a line of JSON
PARQUET_BATCH_ROWS = 256  # of a Parquet file, in memory at a time
DEFAULT_FIELD = "text"  # the default field

Record = tuple[int, str]  # the number of the line or row, and the text in it


def from_json(blocks: Iterator[bytes], name: str, field: str, cleaner: Cleaner) -> Iterator[Record]:
    """The text in one field of each JSON object. A field that the first object lacks is refused as misspelt."""
    line_cleaner = Cleaner(cleaner.policy, MAX_JSON_LINE, cleaner.tally, guess_encoding=cleaner.guess_encoding)
    known = False
    for first, lines in clean_lines(blocks, name, line_cleaner):
        for number, line in enumerate(lines, first):
            if not line or line.isspace():
                continue
            location = f"{name}:{number}"
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                record = None
            if not isinstance(record, dict):
                cleaner.should_repair("broken records", location)
                continue
            if field not in record and not known:
                raise TextError(location, f"has no field '{field}'", suggest(field, record))
            known = True
            text = record.get(field)
            if not isinstance(text, str):
                cleaner.should_repair("records without text", location)
            elif (text := cleaner.clean(text, location)) is not None:
                yield number, text
    cleaner.encoding, cleaner.bom_encoding = line_cleaner.encoding, line_cleaner.bom_encoding
    cleaner.mixed = line_cleaner.mixed


def json_kind(source: Source) -> str:
    """How a .json file is read: as JSON lines, as one list of objects, or, where it is no JSON, as plain text."""
    line = first_line(source).strip()
    if line.startswith("["):
        return ".json"
    if not line.startswith("{"):
        return ".txt"
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        if len(line) < MAX_LINE // 2:  # longer ones are cut
            fact = "is one JSON object over several lines"
            raise TextError(source.name, fact, "Write it as JSON lines, or add --as text") from None
    return ".jsonl"


def from_parquet(source: Source, field: str, cleaner: Cleaner, progress: Callable[[int], object]) -> Iterator[Record]:
    """The texts in one column."""
    arrow = import_pyarrow(source.name)
    done = 0  # rows
    try:
        with source.parquet() as found, arrow.parquet.ParquetFile(found) as file:
            names = file.schema_arrow.names
            if field not in names:
                raise TextError(source.name, f"has no column '{field}'", suggest(field, names))
            rows = file.metadata.num_rows
            for batch in file.iter_batches(batch_size=PARQUET_BATCH_ROWS, columns=[field]):
                # As bytes, since text that is declared as UTF-8 may be something else.
                for row, raw in enumerate(batch.column(0).cast(arrow.large_binary()).to_pylist(), done + 1):
                    location = f"{source.name}:{row}"
                    if raw is None:
                        cleaner.should_repair("records without text", location)
                    elif (text := cleaner.decode(raw, location)) is not None:
                        yield row, text
                done += len(batch)
                progress(source.size * done // rows)
    except arrow.ArrowNotImplementedError:
        raise TextError(source.name, f"the column '{field}' does not hold text") from None
    except (arrow.ArrowException, OSError, LookupError) as error:
        raise read_error(f"{source.name}:{done + 1}", error) from None


def from_table(
    source: Source, field: str, cleaner: Cleaner, progress: Callable[[int], object], note: Callable[[str], object]
) -> Iterator[Record]:
    """The texts in one column of CSV, TSV or a JSON list: the named one, else the one with the longest texts."""
    source = with_encoding(source)
    if source.encoding:
        note(f"{source.name}: read as {source.encoding}, not UTF-8")
    table = open_table(source, {field})
    if field == DEFAULT_FIELD and field not in map(str.casefold, table.columns):
        field = _longest_column(table)
        note(f"{source.name}: text from column '{field}', the one with the longest texts; --field names another")
    column = table.column(field)
    dropped = BadRows("fail" if cleaner.policy == "fail" else "skip", repair=cleaner.policy == "replace")
    for number, (location, row) in enumerate(table.rows((column,), dropped), 1):
        text = row[column]
        if not isinstance(text, str) or not text.strip():
            cleaner.should_repair("records without text", location)
        elif (text := cleaner.clean(text, location)) is not None:
            yield number, text
    progress(source.size)
    cleaner.tally.update(dropped.counts)


def _longest_column(table: Table) -> str:
    sizes = {name: sum(len(str(row.get(name) or "")) for row in table.head) for name in table.columns}
    return max(table.columns, key=lambda name: sizes[name])
