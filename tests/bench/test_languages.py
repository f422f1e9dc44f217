"""Models of several languages: the figures of a text, the table, and results that are gathered."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from bench.script import ROOT, script
from tiny import prepared, recipe

from bertsmith.commands import pretrain

script("record")
languages = script("languages")
PAGE = ROOT / "docs" / "guides" / "languages.md"
ROW: dict[str, Any] = {
    "script": "Chinese",
    "language": None,
    "units": "characters",
    "words": 1_200_000,
    "vocabulary": 8_192,
    "tokens_per_word": 1.1,
    "bits_per_byte": 1.5,
    "unigram_bits_per_byte": 2.25,
    "masked_accuracy": 0.35,
    "blanks": [{"text": "床前 [MASK] 月光 | <b>", "truth": "明", "predicted": ["明", "日", ","]}],
    "machine": {"device": "cpu"},
}


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", ["languages.py", *map(str, arguments)])
    languages.main()


@pytest.mark.exhaustive
@pytest.mark.slow("trains a network")
def test_a_text_is_judged_by_the_model_that_was_made_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = prepared(tmp_path)

    def make(texts: list[str], out: Path, *, budget: str) -> dict[str, float]:
        assert (texts, budget) == ([str(tmp_path / "en.txt")], "9s")
        out.mkdir(parents=True)
        (out / "data").symlink_to(data)
        return pretrain.pretrain(recipe(data, out, "train.steps=60"))

    (tmp_path / "text.txt").rename(tmp_path / "en.txt")
    monkeypatch.setattr(languages, "make", make)
    out = tmp_path / "results.json"
    run(monkeypatch, tmp_path / "en.txt", "--budget", "9s", "--runs", tmp_path / "runs", "--out", out)
    row = json.loads(out.read_text(encoding="utf-8"))["languages"]["en"]
    assert (row["script"], row["units"], row["unknown_rate"]) == ("Latin", "words", 0.0)
    assert 0 < row["bits_per_byte"] < row["unigram_bits_per_byte"]
    assert row["tokens_per_word"] >= 1
    assert len(row["blanks"]) == languages.BLANKS
    for blank in row["blanks"]:
        assert blank["text"].count("[MASK]") == 1
        assert len(blank["predicted"]) == languages.PREDICTIONS


def test_results_are_gathered_and_written_into_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, page = tmp_path / "all.json", tmp_path / "page.md"
    page.write_text(f"before\n{languages.BEGIN}\nold\n{languages.END}\nafter\n", encoding="utf-8")
    for name in ("zh", "ja"):
        (tmp_path / f"{name}.json").write_text(json.dumps({"languages": {name: ROW}}), encoding="utf-8")
    run(monkeypatch, tmp_path / "zh.json", "--out", out)
    run(monkeypatch, tmp_path / "ja.json", "--out", out, "--page", page)
    assert list(json.loads(out.read_text(encoding="utf-8"))["languages"]) == ["zh", "ja"]
    written = page.read_text(encoding="utf-8")
    assert "old" not in written
    assert written.startswith("before\n")
    assert written.endswith(f"{languages.END}\nafter\n")
    assert "| zh | Chinese | 1,200,000 characters | 8,192 | 1.10 per character | 1.50 | 2.25 | 35% |" in written
    assert "| ja | 床前 [MASK] 月光 &#124; &lt;b> | 明 | 明 · 日 · , |" in written


def test_a_page_without_marks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("no table", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"page\.md: has no .* Write them where the table shall stand"):
        languages.write_table(tmp_path / "page.md", {})


def test_the_page_shows_the_kept_results() -> None:
    results = ROOT / "bench" / "results" / "languages.json"
    rows = json.loads(results.read_text(encoding="utf-8"))["languages"] if results.exists() else {}
    written = PAGE.read_text(encoding="utf-8")
    assert languages.table(rows) in written if rows else languages.BEGIN in written
