"""Cleaning as a whole: near-duplicates, languages, repeated lines; the same result with workers and after kills."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertsmith.data.cleaning import clean as cleaning
from bertsmith.data.cleaning import duplicates, passages, repeated_lines
from bertsmith.data.cleaning.clean import clean
from bertsmith.data.cleaning.config import CleaningConfig
from bertsmith.data.cleaning.ngrams import WordHashes, ngram_hashes, normalised_words
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.errors import BertsmithError, FolderError, RecipeError, TextError
from bertsmith.text import language

pytest.importorskip("rensa")

NOUNS = ["house", "river", "stone", "tree", "man", "woman", "child", "road", "bread", "light", "water", "ship", "town"]
WORDS = sorted(language.COMMON_WORD_SETS["English"]) + NOUNS
GERMAN = sorted(language.COMMON_WORD_SETS["German"])
CHUNK = 1 << 17  # characters, of which a small text has several


def document(seed: int, sentences: int = 8, words: list[str] = WORDS) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(words, k=12)).capitalize() + "." for _ in range(sentences)]


def write(path: Path, documents: list[list[str]]) -> str:
    path.write_text("\n\n".join("\n".join(lines) for lines in documents) + "\n", encoding="utf-8")
    return str(path)


def cleaned(
    tmp_path: Path, documents: list[list[str]], out: str = "out", **options: Any
) -> tuple[list[list[str]], Any]:
    """The documents that are left, and the result."""
    workers = options.pop("workers", 0)
    text = write(tmp_path / "text.txt", documents)
    result = clean(Corpus([text], layout="lines"), tmp_path / out, CleaningConfig(**options), workers=workers)
    files = [tmp_path / out / name for name in result["files"]]
    return [one.sentences for one in Corpus(list(map(str, files)), layout="lines").documents()], result


def dropped(result: dict[str, Any], kind: str = "documents") -> dict[str, int]:
    return {rule["name"]: rule[kind] for rule in result["rules"] if rule[kind]}


def test_near_duplicates_are_dropped_and_the_first_is_kept(tmp_path: Path) -> None:
    documents = [document(seed) for seed in range(20)]
    copy = [*documents[3][:-1], "One sentence is another one."]
    upper = [line.upper() for line in documents[5]]
    left, result = cleaned(tmp_path, [*documents, copy, upper])
    assert left == documents
    assert dropped(result) == {"near-duplicates": 2}
    rule = next(rule for rule in result["rules"] if rule["name"] == "near-duplicates")
    assert {one["text"][:20] for one in rule["kept"]} == {documents[3][0][:20], documents[5][0][:20]}
    assert all(one["note"].startswith("like ") for one in rule["dropped"])


def test_documents_that_share_half_of_their_text_are_kept(tmp_path: Path) -> None:
    first = document(1)
    left, _ = cleaned(tmp_path, [first, [*first[:4], *document(2)[:4]]])
    assert len(left) == 2


def test_the_share_of_equal_values_estimates_the_jaccard_similarity() -> None:
    draw, hashes = random.Random(0), WordHashes()
    first = draw.choices([f"word{number}" for number in range(5000)], k=600)
    second = first[:500] + draw.choices([f"other{number}" for number in range(5000)], k=100)
    shingles = [set(ngram_hashes(hashes(words), duplicates.NGRAM).tolist()) for words in (first, second)]
    true = len(shingles[0] & shingles[1]) / len(shingles[0] | shingles[1])
    one, other = duplicates.signatures([hashes(first), hashes(second)])
    assert abs(np.mean(one == other) - true) < 0.12


def test_a_band_in_slices_finds_the_same_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = WordHashes()
    texts = [document(seed % 30) for seed in range(60)]
    found = duplicates.signatures([hashes(normalised_words(" ".join(lines))) for lines in texts])
    rows = np.arange(60)
    whole = duplicates.find_near_duplicates(found, rows, 0.75)
    monkeypatch.setattr(duplicates, "SLICE", 7)
    monkeypatch.setattr(duplicates, "BLOCK", 4)
    assert (duplicates.find_near_duplicates(found, rows, 0.75) == whole).all()
    assert whole[30:].tolist() == list(range(30))


def test_another_language_is_dropped_unless_it_has_a_tenth_of_the_text(tmp_path: Path) -> None:
    english, german = [document(seed) for seed in range(30)], [document(seed, words=GERMAN) for seed in range(10)]
    russian = ["Все счастливые семьи похожи друг на друга, каждая несчастливая семья несчастлива по-своему."]
    left, result = cleaned(tmp_path, [*english, german[0], russian])
    assert left == english
    assert dropped(result) == {"language": 2}
    assert result["languages"] == ["English"]
    left, result = cleaned(tmp_path, [*english, *german], "both")
    assert len(left) == 40
    assert {"English", "German"} <= set(result["languages"])
    left, _ = cleaned(tmp_path, [*english, german[0], russian], "skipped", skip=("language",))
    assert len(left) == 32


def test_names_that_are_not_utf_8_are_cleaned_and_shown(tmp_path: Path) -> None:
    documents = [document(seed) for seed in range(3)]
    text = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt")
    write(Path(text), [*documents, documents[0], document(9)])
    evaluation = os.fsdecode(os.fsencode(tmp_path) + b"/t\xe9st.txt")
    Path(evaluation).write_text(document(9)[0])
    config = CleaningConfig(decontaminate=(evaluation,))
    result = clean(Corpus([text], layout="lines"), tmp_path / "out", config, workers=0)
    rule = next(rule for rule in result["rules"] if rule["name"] == "near-duplicates")
    assert rule["dropped"][0]["location"] == f"{tmp_path}/caf\\udce9.txt:28"
    assert clean(Corpus([text], layout="lines"), tmp_path / "out", config)["reused"]


def test_a_line_in_ten_documents_is_dropped_from_all_but_the_first(tmp_path: Path) -> None:
    notice = "Subscribe to our weekly letter for more stories like this."
    documents = [[*document(seed), notice] for seed in range(12)]
    left, result = cleaned(tmp_path, documents)
    assert [notice in lines for lines in left] == [True] + [False] * 11
    assert dropped(result, "lines") == {"repeated-lines": 11}
    left, result = cleaned(tmp_path, documents[:9], "few")
    assert all(notice in lines for lines in left)


def test_short_lines_such_as_speakers_may_recur(tmp_path: Path) -> None:
    documents = [["ROMEO:", *document(seed)] for seed in range(20)]
    assert cleaned(tmp_path, documents)[0] == documents


def test_in_a_file_without_blank_lines_a_line_is_kept_once(tmp_path: Path) -> None:
    lines = [line for seed in range(80) for line in document(seed)]
    left, result = cleaned(tmp_path, [[*lines[:300], lines[0], "Exit.", *lines[300:], lines[599].upper(), "Exit."]])
    assert left == [[*lines[:300], "Exit.", *lines[300:], "Exit."]]
    assert dropped(result, "lines") == {"repeated-lines": 2}


def test_a_list_of_sentences_that_each_stand_twice_keeps_one_of_each(tmp_path: Path) -> None:
    lines = [line for seed in range(25) for line in document(seed)]
    left, result = cleaned(tmp_path, [[line for line in lines for _ in range(2)]])
    assert left == [lines]
    assert dropped(result, "lines") == {"repeated-lines": 200}


def test_repeated_lines_in_slices_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [[*document(seed), f"This line stands in every document of group {seed % 3}."] for seed in range(60)]
    left, _ = cleaned(tmp_path, documents)
    monkeypatch.setattr(repeated_lines, "SLICE", 50)
    assert cleaned(tmp_path, documents, "sliced")[0] == left
    assert sum(map(len, left)) == 60 * 8 + 3


def test_short_documents_of_running_text_are_dropped_where_most_are_long(tmp_path: Path) -> None:
    long = [" ".join(document(seed, 20)) for seed in range(12)]
    for number, text in enumerate([*long, "Page not found."]):
        (tmp_path / f"{number:02}.txt").write_text(text)
    corpus = Corpus([str(tmp_path / "*.txt")], layout="running")
    result = clean(corpus, tmp_path / "out", CleaningConfig(), workers=0)
    assert dropped(result) == {"too-short": 1}
    assert result["files"] == ["running-00000.txt"]
    assert [one.texts for one in Corpus([str(tmp_path / "out")], layout="running").passages()] == [
        [text] for text in long
    ]


def test_notices_of_web_pages_are_dropped_from_running_text(tmp_path: Path) -> None:
    notices = ["Please enable JavaScript to view this page.", "© 2020 Example. All rights reserved."]
    (tmp_path / "page.txt").write_text("\n".join([*document(1, 20), *notices]))
    result = clean(
        Corpus([str(tmp_path / "page.txt")], layout="running"), tmp_path / "out", CleaningConfig(), workers=0
    )
    assert dropped(result, "lines") == {"notices": 2}


def test_source_code_is_kept_where_the_text_is_source_code(tmp_path: Path) -> None:
    code = [
        [f"int value_{seed}_{line}(int x) {{ return x_{line} + array[{seed}]; }}" for line in range(12)]
        for seed in range(12)
    ]
    left, result = cleaned(tmp_path, code)
    assert len(left) == 12
    assert {"braces", "symbols", "contamination"} <= {rule["name"] for rule in result["rules"] if not rule["on"]}
    assert dropped(cleaned(tmp_path, [*(document(seed) for seed in range(40)), code[0]], "prose")[1])["braces"] == 1


def test_addresses_are_replaced_only_on_request(tmp_path: Path) -> None:
    line = "Write to jane.doe@mail.example.org from 203.0.113.77, or to 12 North Main Street, about version 1.2.3.4.5."
    documents = [[*document(1), line]]
    assert cleaned(tmp_path, documents)[0] == documents
    left, result = cleaned(tmp_path, documents, "replaced", personal=True)
    assert left[0][-1] == "Write to name@example.com from 192.0.2.1, or to 1 Example Street, about version 1.2.3.4.5."
    assert result["personal"]["replaced"] == 3


@pytest.mark.slow("starts a process")
def test_standard_input_is_read_twice_and_a_file_given_so_is_resumed(tmp_path: Path) -> None:
    text = Path(write(tmp_path / "text.txt", [document(seed) for seed in range(4)]))
    command = [sys.executable, "-m", "bertsmith", "clean", "-", "--layout", "lines", "--out"]
    piped = subprocess.run([*command, "piped"], input=text.read_bytes(), cwd=tmp_path, capture_output=True, check=True)
    assert b"kept: 4 of 4 documents" in piped.stdout
    for said in (b"cleaned in", b"already cleaned"):
        with text.open("rb") as file:
            done = subprocess.run([*command, "out"], stdin=file, cwd=tmp_path, capture_output=True, check=True)
        assert said in done.stdout
    assert (tmp_path / "out" / "lines-00000.txt").read_bytes() == (tmp_path / "piped" / "lines-00000.txt").read_bytes()


@pytest.fixture
def many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A text of several chunks with something for every kind of rule."""
    monkeypatch.setattr(passages, "CHUNK_CHARACTERS", CHUNK)
    documents = [document(seed, 15) for seed in range(1, 900)]
    documents[400] = documents[20]
    documents[500] = [*documents[30][:-1], "Another end of it."]
    documents[600] = document(1, words=GERMAN)
    documents[700] = ["Lorem ipsum dolor sit amet."]
    for number in range(100, 130):
        documents[number] = [*documents[number], "Subscribe to our weekly letter for more stories like this."]
    write(tmp_path / "a.txt", documents)
    (tmp_path / "b.txt").write_text("\n".join(line for seed in range(2000, 2200) for line in document(seed)))
    return str(tmp_path / "?.txt")


def outcome(folder: Path) -> dict[str, Any]:
    """Every file of a cleaning; of clean.json all but the time it took."""
    result = json.loads((folder / "clean.json").read_text())
    del result["seconds"]
    return {"result": result, **{path.name: path.read_bytes() for path in folder.glob("*.txt")}}


@pytest.mark.slow("starts worker processes, and kills a run several times")
def test_workers_and_kills_do_not_change_the_result(tmp_path: Path, many: str) -> None:
    result = clean(Corpus([many], layout="lines"), tmp_path / "alone", CleaningConfig(), workers=0)
    assert dropped(result) == {"language": 1, "lorem-ipsum": 1, "near-duplicates": 2}
    assert dropped(result, "lines") == {"repeated-lines": 29}
    clean(Corpus([many], layout="lines"), tmp_path / "workers", CleaningConfig(), workers=3)
    assert outcome(tmp_path / "workers") == outcome(tmp_path / "alone")
    program = (
        "import sys; from pathlib import Path; from bertsmith.data.cleaning import clean, passages\n"
        "from bertsmith.data.cleaning.config import CleaningConfig\n"
        "from bertsmith.data.corpus.corpus import Corpus\n"
        f"clean.JOURNAL_SECONDS, passages.CHUNK_CHARACTERS = 0, {CHUNK}\n"
        "show = lambda share, documents: print(share, flush=True)\n"
        f"corpus = Corpus([{many!r}], layout='lines')\n"
        f"clean.clean(corpus, Path({str(tmp_path / 'killed')!r}), CleaningConfig(), workers=1, progress=show)\n"
    )
    shares = list[float]()
    for steps in (3, 4, 4, 99):
        run = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        assert run.stdout is not None
        seen = [float(line) for line, _ in zip(run.stdout, range(steps), strict=False)]
        shares += seen[:1]
        if len(seen) == steps:
            run.send_signal(signal.SIGKILL)
        run.stdout.close()
        if run.wait() == 0:
            break
        assert not (tmp_path / "killed" / "clean.json").exists()
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "alone")
    assert shares == sorted(shares)  # every start went on
    assert shares[-1] > shares[0]


def test_a_finished_folder_is_reused_and_another_text_is_refused(tmp_path: Path) -> None:
    documents = [document(seed) for seed in range(3)]
    cleaned(tmp_path, documents)
    text = Corpus([str(tmp_path / "text.txt")], layout="lines")
    assert clean(text, tmp_path / "out", CleaningConfig())["reused"]
    with pytest.raises(FolderError, match=r"out: was cleaned with personal=False \(now True\)\. Choose another folder"):
        clean(text, tmp_path / "out", CleaningConfig(personal=True))


def test_a_kill_before_the_last_file_is_written_is_no_finished_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = [document(seed) for seed in range(5)]
    cleaned(tmp_path, documents, "whole")
    real = cleaning.files.write_json

    def fail(path: Path, value: Any) -> Any:
        if path.name == "clean.json":
            raise KeyboardInterrupt
        return real(path, value)

    monkeypatch.setattr(cleaning.files, "write_json", fail)
    corpus = Corpus([str(tmp_path / "text.txt")], layout="lines")
    with pytest.raises(KeyboardInterrupt):
        clean(corpus, tmp_path / "out", CleaningConfig(), workers=0)
    monkeypatch.undo()
    assert not clean(corpus, tmp_path / "out", CleaningConfig(), workers=0).get("reused")
    assert outcome(tmp_path / "out") == outcome(tmp_path / "whole")
    assert not (tmp_path / "out" / "unfinished").exists()


def test_an_unfinished_cleaning_of_another_text_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "text.txt", [document(1)])
    monkeypatch.setattr(cleaning.Cleaning, "decide", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        clean(Corpus([str(tmp_path / "text.txt")], layout="lines"), tmp_path / "out", CleaningConfig())
    monkeypatch.undo()
    documents = [document(2), document(3)]
    assert cleaned(tmp_path, documents)[0] == documents


def test_where_time_is_short_the_beginning_of_the_text_is_cleaned(tmp_path: Path, many: str) -> None:
    result = clean(Corpus([many], layout="lines"), tmp_path / "out", CleaningConfig(), workers=0, seconds=1e-9)
    assert 0 < result["share_read"] < 0.9
    assert 0 < result["documents"] < 900
    assert result["kept_documents"] == result["documents"]


def test_a_table_that_is_read_to_its_end_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passages, "CHUNK_CHARACTERS", 100)  # the last row fills a chunk
    (tmp_path / "a.csv").write_text(
        "text,label\n" + "".join(f'"{" ".join(document(seed))}",1\n' for seed in range(250))
    )
    result = clean(Corpus([str(tmp_path / "a.csv")]), tmp_path / "out", CleaningConfig(), workers=0)
    assert (result["documents"], result["share_read"]) == (250, 1.0)


def test_the_kept_examples_of_a_rule_are_those_nearest_to_its_limit(tmp_path: Path) -> None:
    def with_numbers(seed: int, share: float) -> list[str]:
        draw = random.Random(seed)
        return [" ".join(str(draw.randrange(99)) if draw.random() < share else draw.choice(WORDS) for _ in range(200))]

    documents = [with_numbers(seed, share) for seed, share in enumerate((0.0, 0.1, 0.2, 0.25, 0.3, 0.6))]
    _, result = cleaned(tmp_path, documents)
    rule = next(rule for rule in result["rules"] if rule["name"] == "numbers")
    assert [one["number"] for one in rule["dropped"]] == [5]
    assert [one["number"] for one in rule["kept"]] == [4, 3, 2]


def test_a_long_text_is_written_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning, "PART_BYTES", 100_000)
    monkeypatch.setattr(passages, "CHUNK_CHARACTERS", CHUNK)
    documents = [document(seed, 20) for seed in range(500)]
    left, result = cleaned(tmp_path, documents)
    assert len(result["files"]) > 2
    assert left == documents
    assert (tmp_path / "out" / "clean.json").stat().st_size < 100_000  # of the text it has only examples


def test_a_text_that_loses_everything_is_refused_with_the_rule(tmp_path: Path) -> None:
    with pytest.raises(
        TextError, match=r"^clean: no text is left: lorem-ipsum dropped 5 of 5 words\. Leave the rule out"
    ):
        cleaned(tmp_path, [["Lorem ipsum dolor sit amet."]])


def test_without_rensa_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rensa", None)
    remedy = r"Install it with: pip install 'bertsmith\[clean\]', or leave the rule out with --skip near-duplicates"
    with pytest.raises(TextError, match=rf"^clean: near-duplicates need rensa\. {remedy}\.$"):
        cleaned(tmp_path, [document(1)])
    assert cleaned(tmp_path, [document(1)], skip=("near-duplicates",))[0] == [document(1)]


def test_too_few_workers_and_a_foreign_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"^workers: is -1\."):
        cleaned(tmp_path, [document(1)], workers=-1)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    with pytest.raises(FolderError, match="holds files that bertsmith has not written there"):
        cleaned(tmp_path, [document(1)], "mine")


def test_two_runs_in_one_folder_are_refused(tmp_path: Path) -> None:
    text = write(tmp_path / "text.txt", [document(1)])
    with (
        cleaning.lock_folder(tmp_path / "out", "cleaning"),
        pytest.raises(BertsmithError, match="another run is cleaning"),
    ):
        clean(Corpus([text], layout="lines"), tmp_path / "out", CleaningConfig(), workers=0)


def test_a_journal_whose_file_has_lost_its_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = write(tmp_path / "text.txt", [document(seed, 60) for seed in range(300)])
    monkeypatch.setattr(cleaning, "JOURNAL_SECONDS", 0.0)

    calls = list[int]()

    def stop(share: float, documents: int) -> None:
        calls.append(documents)
        if len(calls) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        clean(Corpus([text], layout="lines"), tmp_path / "out", CleaningConfig(), workers=0, progress=stop)
    (tmp_path / "out" / "unfinished" / "documents.bin").write_bytes(b"")
    with pytest.raises(FolderError, match=r"documents\.bin: has lost its end\. Delete the folder, and run again\.$"):
        clean(Corpus([text], layout="lines"), tmp_path / "out", CleaningConfig(), workers=0)
