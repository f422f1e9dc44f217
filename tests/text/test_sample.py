"""The sample text of the package is as its README describes it."""

import lzma
import re
from importlib import resources

SAMPLE = resources.files("bertsmith.text") / "sample"
TEXT = lzma.decompress((SAMPLE / "sample.txt.xz").read_bytes()).decode("ascii")
README = (SAMPLE / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [document.splitlines() for document in TEXT.strip().split("\n\n")]


def test_the_sample_is_as_large_as_its_readme_says_and_no_larger_than_three_megabytes() -> None:
    sentences, words = sum(map(len, DOCUMENTS)), len(TEXT.split())
    told = f"{len(TEXT):,} bytes, {len((SAMPLE / 'sample.txt.xz').read_bytes()):,} packed"
    assert told in " ".join(README.split())
    assert f"{len(DOCUMENTS)} documents, {sentences:,} sentences, {words:,} words" in " ".join(README.split())
    assert len(TEXT) <= 3_000_000


def test_the_titles_add_up_to_the_whole() -> None:
    rows = re.findall(r"\| (\d+) \| ([\d,]+) \|$", README, flags=re.MULTILINE)
    assert sum(int(documents) for documents, _ in rows) == len(DOCUMENTS)
    assert sum(int(words.replace(",", "")) for _, words in rows) == len(TEXT.split())


def test_every_document_has_enough_sentences_to_draw_pairs_from() -> None:
    assert min(map(len, DOCUMENTS)) >= 12
    assert max(map(len, DOCUMENTS)) <= 60


def test_the_sample_is_prose_alone() -> None:
    assert not re.search(r"[\[\]{}<>|*_\t]|https?:|gutenberg|wikipedia", TEXT, flags=re.IGNORECASE)
    lines = [line for document in DOCUMENTS for line in document]
    assert all(line == line.strip() and len(line.split()) >= 2 for line in lines)


def test_no_longer_sentence_stands_in_two_documents() -> None:
    found = [line.lower() for document in DOCUMENTS for line in set(document) if len(line.split()) >= 9]
    assert len(set(found)) == len(found)
