"""Documents: the paragraphs of PDF and Word files, by libraries that are wanted only where there is such a file."""

import io
import logging
import re
import zipfile
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from bertsmith.data.corpus.markup import Paragraph
from bertsmith.data.corpus.sources import DOCUMENTS, MAX_RATIO, UNPACKED, Source
from bertsmith.errors import TextError

LARGEST = 1 << 28  # bytes of a file
HYPHEN = re.compile(r"(?<=[^\W\d_])[-\u00ad]\n(?=[^\W\d_A-Z])")  # a word that was broken at the end of a line


def pages(source: Source) -> Iterator[Paragraph]:
    """The text of a PDF file, page by page."""
    library = _library(source)
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it remarks on every flaw of every file
    for number, found in enumerate(library.PdfReader(io.BytesIO(_bytes(source))).pages, 1):
        text = HYPHEN.sub("", found.extract_text())
        if joined := " ".join(text.split()):
            yield number, joined


def paragraphs(source: Source) -> Iterator[Paragraph]:
    """The paragraphs of a Word document, and the rows of its tables."""
    library, raw = _library(source), _bytes(source)
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        size = sum(member.file_size for member in archive.infolist())
    if size > max(UNPACKED, MAX_RATIO * len(raw)) or size > LARGEST:
        fact = f"unpacks to {size:,} bytes, {size // max(len(raw), 1):,} times its size"
        raise TextError(source.name, fact, "Do not trust this file")
    number = 0
    for part in library.Document(io.BytesIO(raw)).iter_inner_content():
        rows = [" ".join(dict.fromkeys(cell.text for cell in row.cells)) for row in part.rows] if _rows(part) else None
        for text in [part.text] if rows is None else rows:
            number += 1
            if joined := " ".join(text.split()):
                yield number, joined


def _rows(part: Any) -> bool:
    return hasattr(part, "rows")


def _bytes(source: Source) -> bytes:
    if source.size > LARGEST:
        raise TextError(source.name, f"is larger than {LARGEST:,} bytes", "Turn it into text first")
    return source.path.read_bytes()


def _library(source: Source) -> Any:
    name = DOCUMENTS[source.kind]
    try:
        return import_module(name)
    except ImportError:
        package = {"docx": "python-docx"}.get(name, name)
        raise TextError(
            source.name, f"needs {package}", "Install it with: pip install 'bertsmith[documents]'"
        ) from None
