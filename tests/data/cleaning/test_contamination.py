"""Decontamination: the texts of evaluation files, in every format, are found by 13-grams; other text is kept."""

import json
import re
from pathlib import Path

import pytest

from bertsmith.data.cleaning.clean import clean
from bertsmith.data.cleaning.config import CleaningConfig
from bertsmith.data.cleaning.contamination import EvaluationNgrams, evaluation_texts, write_ngrams
from bertsmith.data.cleaning.ngrams import WordHashes, normalised_words
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.errors import TextError

LONG = "The committee decided on Tuesday that the bridge over the river should be closed for repairs until spring."
SHORT = "He never saw the lighthouse keeper again after that."  # nine words: looked for as a whole
TINY = "He came back."
PROSE = [
    "It was a quiet town, with one church and two bakers, who did not speak to each other.",
    "Every winter the river froze, and the children walked over it to school.",
]


def found(tmp_path: Path, texts: list[str], lines: list[str]) -> set[int]:
    write_ngrams(texts, tmp_path)
    hashes = WordHashes()
    return EvaluationNgrams(tmp_path).lines_with([hashes(normalised_words(line)) for line in lines])


def test_thirteen_words_in_a_row_are_found_whatever_their_case_and_punctuation(tmp_path: Path) -> None:
    part = "they said that the BRIDGE, over the river, should be closed for repairs until spring; and left"
    assert found(tmp_path, [LONG, TINY], [PROSE[0], part, PROSE[1]]) == {1}


def test_twelve_words_in_a_row_are_not_enough(tmp_path: Path) -> None:
    part = "over the river should be closed for repairs until spring. Then they left the town"
    assert found(tmp_path, [LONG], [part]) == set()


def test_an_n_gram_may_span_lines(tmp_path: Path) -> None:
    lines = [
        PROSE[0],
        "The committee decided on Tuesday that the bridge over",
        "the river should be closed for",
        PROSE[1],
    ]
    assert found(tmp_path, [LONG], lines) == {1, 2}


def test_a_text_of_eight_to_twelve_words_is_found_as_a_whole_and_a_shorter_one_is_not(tmp_path: Path) -> None:
    assert found(tmp_path, [SHORT, TINY], [f"And so {SHORT}", "He never saw the lighthouse keeper again.", TINY]) == {0}


def test_texts_that_are_too_short_are_counted_and_labels_are_not(tmp_path: Path) -> None:
    assert write_ngrams([LONG, SHORT, TINY, "positive", "1"], tmp_path) == {"texts": 2, "short_texts": 1, "n_grams": 7}


def test_chinese_is_found_by_its_characters(tmp_path: Path) -> None:
    text = "春眠不觉晓，处处闻啼鸟。夜来风雨声，花落知多少。"
    assert found(
        tmp_path, [text], ["他说：处处闻啼鸟。夜来风雨声，花落知多少。", "今天天气很好，我们去公园散步吧。"]
    ) == {0}


CONLL = (
    "\n".join(f"{word} O" for word in LONG.split()) + "\n\n" + "\n".join(f"{word} O" for word in SHORT.split()) + "\n"
)
ANSWERS = [{"text": "bridge", "answer_start": LONG.index("bridge")}]
PARAGRAPH = {"context": LONG, "qas": [{"id": "1", "question": SHORT, "answers": ANSWERS}]}
SQUAD = {"version": "1.1", "data": [{"title": "x", "paragraphs": [PARAGRAPH]}]}
FILES = {
    "reviews.csv": f'text,label\n"{LONG}",1\n"{SHORT}",0\n',
    "no-header.tsv": f"{LONG}\t1\n{SHORT}\t0\n",
    "rows.jsonl": json.dumps({"premise": LONG, "hypothesis": SHORT, "label": 1}) + "\n",
    "rows.json": json.dumps([{"context": LONG, "endings": [SHORT, "Or not."], "label": 0}]),
    "squad.json": json.dumps(SQUAD),
    "indented.json": json.dumps(SQUAD, indent=1),
    "words.jsonl": json.dumps({"tokens": LONG.split(), "ner_tags": ["O"] * len(LONG.split())}) + "\n"
    + json.dumps({"tokens": SHORT.split(), "ner_tags": ["O"] * len(SHORT.split())}) + "\n",
    "eng.testa": CONLL,
    "ner.tsv": CONLL.replace(" ", "\t"),
    "pos.tsv": CONLL.replace(" O", "\tNN"),
    "plain.txt": f"{LONG}\n{SHORT}\n",
    "test.en": f"{LONG}\n{SHORT}\n",
    "tree.mrg": "".join(f"(S {' '.join(f'(NN {word})' for word in text.split())})\n" for text in (LONG, SHORT)),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_every_format_of_labelled_data_is_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(FILES[name], encoding="utf-8")
    texts = list(evaluation_texts(str(tmp_path / name)))
    (tmp_path / "n-grams").mkdir()
    assert found(tmp_path / "n-grams", texts, [PROSE[0], LONG, SHORT, PROSE[1]]) >= {1, 2}
    assert found(tmp_path / "n-grams", texts, PROSE) == set()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.txt",
            b"He came back.\n",
            "holds no text of 8 words or more, and shorter ones are not looked for. Leave it",
        ),
        ("a.csv", b"", "is empty. Give it rows."),
        ("a.dat", bytes(range(256)) * 99, "is not text, but binary data. Give it text."),
        ("a.csv", b"PK\x03\x04" + bytes(99), "is not text, but an archive. Unpack it"),
    ],
)
def test_a_file_without_texts_to_look_for_is_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TextError, match=re.escape(f"{tmp_path / name}: {message}")):
        list(evaluation_texts(str(tmp_path / name)))


def test_contaminated_lines_are_dropped_and_the_rest_of_the_document_is_kept(tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text(FILES["reviews.csv"])
    (tmp_path / "text.txt").write_text("\n".join([PROSE[0], LONG, PROSE[1]]) + "\n")
    config = CleaningConfig(decontaminate=(str(tmp_path / "test.csv"),), skip=("near-duplicates",))
    result = clean(Corpus([str(tmp_path / "text.txt")], layout="lines"), tmp_path / "out", config, workers=0)
    assert (tmp_path / "out" / "lines-00000.txt").read_text() == "\n".join(PROSE) + "\n\n"
    rule = next(rule for rule in result["rules"] if rule["name"] == "contamination")
    assert (rule["lines"], rule["words"]) == (1, 18)
    assert rule["dropped"][0]["text"] == LONG
    assert rule["kept"][0]["text"] == PROSE[1]
    assert result["evaluation"]["texts"] == 2


def test_an_evaluation_file_that_is_missing_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(LONG)
    config = CleaningConfig(decontaminate=(str(tmp_path / "tset.csv"),), skip=("near-duplicates",))
    (tmp_path / "test.csv").write_text(FILES["reviews.csv"])
    with pytest.raises(TextError, match=r"tset\.csv: does not exist\. Did you mean 'test\.csv'\?$"):
        clean(Corpus([str(tmp_path / "text.txt")]), tmp_path / "out", config)
    assert not (tmp_path / "out").exists()
