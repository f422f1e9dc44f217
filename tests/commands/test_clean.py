"""The verb `clean`: its output, its page, and its folder as the text of other verbs."""

import json
from pathlib import Path

import pytest
from data.cleaning.test_clean import document, write
from typer.testing import CliRunner

from bertsmith.cli import app
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.insight import cleaning
from bertsmith.train.clock import Clock

pytest.importorskip("rensa")

RUNNER = CliRunner()


def run(*arguments: object) -> str:
    answer = RUNNER.invoke(app, [str(one) for one in arguments])
    assert answer.exit_code == 0, answer.output
    return answer.output


def test_clean_writes_text_figures_and_a_page(tmp_path: Path) -> None:
    evil = ["Lorem ipsum dolor sit amet <script>alert('x')</script> & so on."]
    documents = [document(seed) for seed in range(6)]
    text = write(tmp_path / "text.txt", [*documents, documents[2], evil])
    output = run("clean", text, "--out", tmp_path / "out", "--layout", "lines")
    assert "kept: 6 of 8 documents" in output
    assert "near-duplicates: 1 documents" in output
    page = (tmp_path / "out" / cleaning.PAGE).read_text()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    assert "Near duplicates" in page
    assert f"{tmp_path}/text.txt:" in page  # where an example comes from
    assert json.loads((tmp_path / "out" / "clean.json").read_text())["kept_documents"] == 6
    assert "already cleaned" in run("clean", text, "--out", tmp_path / "out", "--layout", "lines")


def test_the_folder_is_read_without_its_page(tmp_path: Path) -> None:
    documents = [document(seed) for seed in range(3)]
    run("clean", write(tmp_path / "text.txt", documents), "--out", tmp_path / "out", "--layout", "lines")
    assert [path.name for path in Corpus([str(tmp_path / "out")]).files] == ["lines-00000.txt"]
    (tmp_path / "out" / "clean.json").unlink()  # not a folder of ours: the page is text as any other
    assert "clean.html" in [path.name for path in Corpus([str(tmp_path / "out")]).files]


def test_cleaned_text_is_read_again_as_it_was_read_first(tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    # Each would be guessed otherwise: paragraphs of a sentence, and lines with sentences that end inside of them.
    paragraphs = [" ".join(document(seed, 1 + seed % 2)) for seed in range(30)]
    (texts / "a.md").write_text("\n\n".join(paragraphs) + "\n")
    records = [[" ".join(document(seed, 20)) for seed in range(first, first + 99)] for first in (100, 200)]
    (texts / "b.jsonl").write_text("".join(json.dumps({"text": "\n".join(one)}) + "\n" for one in records))
    inside = [[f"She said so. And then {' '.join(document(seed, 1))}" for seed in range(400, 410)], document(500)]
    write(texts / "c.txt", [*(document(seed) for seed in range(600, 640)), *inside])
    before = [(one.layout, one.sentences()) for one in Corpus([str(texts)]).passages()]
    assert {layout for layout, _ in before} == {"lines", "running"}
    run("clean", texts, "--out", tmp_path / "out", "--skip", "near-duplicates")
    for names in ([tmp_path / "out"], sorted((tmp_path / "out").glob("*-*.txt"))):
        for plain in (False, True):
            again = Corpus(list(map(str, names)), plain=plain)
            found = [(one.layout, one.sentences()) for one in again.passages() if one.file.endswith(".txt")]
            if plain and len(names) == 1:
                found = [one for one in found if "{" not in one[1][0]]
            assert sorted(found) == sorted(before)


def test_options_reach_the_cleaning(tmp_path: Path) -> None:
    text = write(
        tmp_path / "text.txt", [document(1), document(1), ["Mail to jane@doe.example.org, please do it soon."]]
    )
    evaluation = tmp_path / "test.txt"
    evaluation.write_text(document(1)[3])
    options = ("--layout", "lines", "--skip", "near-duplicates", "--personal", "--decontaminate", evaluation)
    output = run("clean", text, "--out", tmp_path / "out", *options)
    assert "contamination: 2 lines" in output
    assert "addresses replaced: 1" in output
    assert "looked for: 1 evaluation texts" in output
    result = json.loads((tmp_path / "out" / "clean.json").read_text())
    assert result["kept_documents"] == 3
    assert [rule["name"] for rule in result["rules"] if not rule["on"]] == ["near-duplicates"]
    assert "Addresses replaced" in (tmp_path / "out" / cleaning.PAGE).read_text()


def test_a_deeper_mistake_in_options_is_one_line(tmp_path: Path) -> None:
    text = write(tmp_path / "text.txt", [document(1)])
    for verb, *others in (("make",), ("prepare", "--tokenizer", tmp_path)):
        answer = RUNNER.invoke(
            app, [verb, text, "--out", str(tmp_path / "out"), *map(str, others), "--decontaminate", text]
        )
        assert str(answer.exception) == "--decontaminate: is part of cleaning. Add --clean."


def test_prepare_cleans_first_and_resumes(tmp_path: Path) -> None:
    documents = [document(seed) for seed in range(30)]
    text = write(tmp_path / "text.txt", [*documents, [*documents[3][:-1], "Another end."]])
    run("tokenizer", text, "--out", tmp_path / "tokenizer", "--vocabulary", 120)
    options = ("--tokenizer", tmp_path / "tokenizer", "--validation-share", 0.1, "--layout", "lines", "--clean")
    output = run("prepare", text, "--out", tmp_path / "data", *options)
    assert "near-duplicates: 1 documents" in output
    assert json.loads((tmp_path / "data" / "summary.json").read_text())["documents"] == 30
    assert (tmp_path / "data" / "clean.html").exists()
    output = run("prepare", text, "--out", tmp_path / "data", *options)
    assert "already cleaned" in output
    assert "already prepared" in output


@pytest.mark.exhaustive
@pytest.mark.slow("makes a model")
def test_make_cleans_first_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Clock, "progress", lambda self, step, epoch: min(1.0, step / 2))  # two updates, soon done
    documents = [document(seed) for seed in range(200)]
    text = write(tmp_path / "text.txt", [*documents, [*documents[3][:-1], "Another end."]])
    options = ("--out", tmp_path / "run", "--budget", "5m", "--layout", "lines", "--clean")
    assert "near-duplicates: 1 documents" in run("make", text, *options)
    assert (tmp_path / "run" / "report.html").exists()
    assert (tmp_path / "run" / "clean.html").exists()
    assert json.loads((tmp_path / "run" / "data" / "summary.json").read_text())["documents"] == 200
    output = run("make", text, *options)
    assert "already cleaned" in output
    assert "this run is finished" in output
