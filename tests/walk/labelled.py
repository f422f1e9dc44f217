"""Labelled files as people have them: every task, odd names of columns, and the faults that they come with."""

import csv
import gzip
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from walk.folders import ENGLISH, sentences

ROWS = 60
GOOD, BAD = ("a fine and happy film .", "the best bread of all ."), ("a cold and stormy film .", "the sick ship .")


def _table(path: Path, header: Sequence[str], rows: Sequence[Sequence[object]], delimiter: str = ",") -> Path:
    held = io.StringIO()
    writer = csv.writer(held, delimiter=delimiter, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    path.write_text(held.getvalue(), encoding="utf-8")
    return path


def _opinions(count: int = ROWS) -> list[tuple[str, str]]:
    """Texts with a word that decides the label."""
    chance = Random(3)
    lines = sentences(ENGLISH, count, seed=3)
    labels = [chance.random() < 0.5 for _ in lines]
    return [
        (f"{line} {chance.choice(GOOD if good else BAD)} {at}", "good" if good else "bad")
        for at, (line, good) in enumerate(zip(lines, labels, strict=True))
    ]


def _lines(path: Path, records: Sequence[object]) -> Path:
    path.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    return path


def reviews(folder: Path) -> Path:
    return _table(folder / "reviews.csv", ["text", "label"], _opinions())


def odd_names(folder: Path) -> Path:
    said = {"good": "sehr gut", "bad": "schlecht"}
    rows = [(number, text, said[label]) for number, (text, label) in enumerate(_opinions(), 1)]
    return _table(folder / "odd.csv", ["Nr.", "Kommentar", "Urteil"], rows, delimiter=";")


def packed(folder: Path) -> Path:
    plain = reviews(folder)
    (folder / "packed.csv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    return folder / "packed.csv.gz"


def latin_1(folder: Path) -> Path:
    rows = [(f"Schöne Straße. {text}", label) for text, label in _opinions()]
    path = _table(folder / "latin.csv", ["text", "label"], rows)
    path.write_bytes(path.read_text(encoding="utf-8").encode("latin-1"))
    return path


def missing(folder: Path) -> Path:
    rows = [(text, "NaN" if at % 6 == 0 else label) for at, (text, label) in enumerate(_opinions())]
    return _table(folder / "missing.csv", ["text", "label"], rows)


def prices(folder: Path) -> Path:
    rows = [(text, round(12.5 + 3 * (label == "good") + at / 100, 2)) for at, (text, label) in enumerate(_opinions())]
    return _table(folder / "prices.csv", ["text", "price"], rows)


def stars(folder: Path) -> Path:
    rows = [(text, 5 if label == "good" else 1) for text, label in _opinions()]
    return _table(folder / "stars.tsv", ["review", "stars"], rows, "\t")


def topics(folder: Path) -> Path:
    given = {"good": ("film,love", "love", "bread,love"), "bad": ("film,sea", "sea", "bread,sea")}
    rows = [(text, given[label][at % 3]) for at, (text, label) in enumerate(_opinions())]
    return _table(folder / "topics.csv", ["text", "topics"], rows)


def lists(folder: Path) -> Path:
    rows = [{"text": text, "labels": ["film", "love"] if label == "good" else ["sea"]} for text, label in _opinions()]
    return _lines(folder / "lists.jsonl", rows)


def flags(folder: Path) -> Path:
    rows = [(text, int(label == "good"), int(label == "bad"), at % 2) for at, (text, label) in enumerate(_opinions())]
    return _table(folder / "flags.csv", ["comment", "happy", "angry", "even"], rows)


def faq(folder: Path) -> Path:
    rows = [(f"who is it in line {at} ?", f"{line} {at}") for at, line in enumerate(sentences(ENGLISH, ROWS, seed=5))]
    return _table(folder / "faq.csv", ["question", "answer"], rows)


def similarity(folder: Path) -> Path:
    lines = sentences(ENGLISH, ROWS, seed=6)
    pairs = [(line, lines[at - 1]) for at, line in enumerate(lines)]
    alike = [float(one.split()[1] == other.split()[1]) for one, other in pairs]
    rows = [(*pair, round(5 * same + at / 500, 3)) for at, (pair, same) in enumerate(zip(pairs, alike, strict=True))]
    return _table(folder / "similar.csv", ["sentence1", "sentence2", "score"], rows)


def entailment(folder: Path) -> Path:
    rows = [(text, "it is fine .", "entailment" if label == "good" else "contradiction") for text, label in _opinions()]
    return _table(folder / "entailment.tsv", ["premise", "hypothesis", "label"], rows, "\t")


def entities(folder: Path) -> Path:
    blocks = []
    for line in sentences(ENGLISH, ROWS, seed=7):
        words = line.rstrip(".").split()
        blocks.append("\n".join(f"{word} {'B-PER' if at == 1 else 'O'}" for at, word in enumerate(words)) + "\n. O")
    (folder / "entities.conll").write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    return folder / "entities.conll"


def questions(folder: Path) -> Path:
    paragraphs = []
    for at, line in enumerate(sentences(ENGLISH, ROWS, seed=8)):
        answer = line.split()[1]
        answers = [{"text": answer, "answer_start": line.index(answer)}]
        asked = {"id": f"q{at}", "question": "Who is it ?", "answers": answers}
        paragraphs.append({"context": line, "qas": [asked]})
    whole = {"version": "1.1", "data": [{"title": "small", "paragraphs": paragraphs}]}
    (folder / "questions.json").write_text(json.dumps(whole), encoding="utf-8")
    return folder / "questions.json"


def endings(folder: Path) -> Path:
    chance, rows = Random(9), []
    for subject, (verb, place) in list(ENGLISH.items()) * (ROWS // len(ENGLISH)):
        others = chance.sample([one for one in ENGLISH.values() if one != (verb, place)], 3)
        right = chance.randrange(4)
        choices = [other[1] for other in others]
        choices.insert(right, place)
        rows.append((f"{subject} {verb}", *choices, right))
    return _table(folder / "endings.csv", ["startphrase", "ending0", "ending1", "ending2", "ending3", "label"], rows)


def one_class_per_row(folder: Path) -> Path:
    rows = [(text, f"id-{at:05}") for at, (text, _) in enumerate(_opinions())]
    return _table(folder / "ids.csv", ["text", "label"], rows)


LABELLED: dict[str, Callable[[Path], Path]] = {
    "reviews": reviews,
    "odd names": odd_names,
    "packed": packed,
    "Latin-1": latin_1,
    "missing labels": missing,
    "prices": prices,
    "stars": stars,
    "topics in one cell": topics,
    "lists of labels": lists,
    "a column for each label": flags,
    "questions and answers": faq,
    "similarity": similarity,
    "entailment": entailment,
    "entities": entities,
    "SQuAD": questions,
    "endings": endings,
}
