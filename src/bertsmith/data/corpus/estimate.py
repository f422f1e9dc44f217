"""The estimate of a text's words, from the first megabyte of a file."""

from collections import Counter
from itertools import islice

from bertsmith.data.corpus import documents, encoding
from bertsmith.data.corpus.html_page import html_page
from bertsmith.data.corpus.lines import Cleaner
from bertsmith.data.corpus.passages import NO_LIMIT
from bertsmith.data.corpus.records import PARQUET_BATCH_ROWS, from_parquet
from bertsmith.data.corpus.sources import DOCUMENTS, HTML, Source
from bertsmith.text.language import count_words


def count_words_of(source: Source, field: str) -> tuple[int, int]:
    """The number of words at the beginning of a file, and their bytes on disk."""
    position = [0]
    try:
        if source.kind == ".parquet":
            rows = from_parquet(source, field, Cleaner("skip", NO_LIMIT, Counter()), position.append)
            return sum(count_words(text) for _, text in islice(rows, PARQUET_BATCH_ROWS + 1)), position[-1]
        if source.kind in DOCUMENTS:
            paragraphs = documents.pages(source) if source.kind == ".pdf" else documents.paragraphs(source)
            return sum(count_words(text) for _, text in paragraphs), source.size
        block = b"" if source.is_stream else next(source.blocks(position.append), b"")
        text = block.decode(encoding.wide(block) or encoding.guess(block), errors="ignore")
        if source.kind in HTML:
            return sum(count_words(text) for _, text in html_page([(1, text.split("\n"))])), position[-1]
    except Exception:  # of the disk, the decompressor, or a library that reads documents
        return 0, 0  # reported when the whole corpus is read
    return count_words(text), position[-1]
