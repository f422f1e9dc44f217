"""PDF and Word files: their paragraphs, by libraries that are needed only for such files."""

import io
import logging
import re
import zipfile
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from bertsmith.data.corpus.decompression import MAX_DECOMPRESSED_BYTES, MAX_RATIO
from bertsmith.data.corpus.markup import Paragraph
from bertsmith.data.corpus.sources import DOCUMENTS, Source
from bertsmith.errors import TextError

MAX_DOCUMENT_BYTES = 1 << 28  # bytes of a file
HYPHEN = re.compile(r"(?<=[^\W\d_])[-\u00ad]\n(?=[^\W\d_A-Z])")  # a word hyphenated at the end of a line


def pages(source: Source) -> Iterator[Paragraph]:
    """The text of a PDF file, page by page."""
    library = _library(source)
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it warns of every flaw of every file
    for number, page in enumerate(library.PdfReader(io.BytesIO(_bytes(source))).pages, 1):
        text = HYPHEN.sub("", page.extract_text())
        if joined := " ".join(text.split()):
            yield number, joined


def paragraphs(source: Source) -> Iterator[Paragraph]:
    """The paragraphs of a Word document, and the rows of its tables."""
    library, raw = _library(source), _bytes(source)
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        size = sum(member.file_size for member in archive.infolist())
    if size > max(MAX_DECOMPRESSED_BYTES, MAX_RATIO * len(raw)) or size > MAX_DOCUMENT_BYTES:
        fact = f"unpacks to {size:,} bytes, {size // max(len(raw), 1):,} times its size"
        raise TextError(source.name, fact, "Do not trust this file")
    number = 0
    for part in library.Document(io.BytesIO(raw)).iter_inner_content():
        rows = [" ".join(dict.fromkeys(cell.text for cell in row.cells)) for row in getattr(part, "rows", ())]
        for text in rows if hasattr(part, "rows") else [part.text]:
            number += 1
            if joined := " ".join(text.split()):
                yield number, joined


def _bytes(source: Source) -> bytes:
    if source.size > MAX_DOCUMENT_BYTES:
        raise TextError(source.name, f"is larger than {MAX_DOCUMENT_BYTES:,} bytes", "Turn it into text first")
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
