"""The page of a taught model: everything that was found stands on it, escaped, and it loads nothing."""

import math
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from bertsmith.data.labelled.examples import Example
from bertsmith.insight.evaluation import comparison_lines, page, write
from bertsmith.tasks.class_findings import ClassificationFindings
from bertsmith.tasks.findings import Prior, warnings
from bertsmith.tasks.value_findings import RegressionFindings

EVIL = "<script>alert(1)</script>"


def result(classes: int = 2, right: float = 0.8) -> dict[str, Any]:
    labels = [f"{EVIL}{number}" if number == 1 else f"class {number}" for number in range(classes)]
    found = ClassificationFindings(labels, Prior(counts={labels[0]: 10}))
    for number in range(40 * classes):
        gold, said = labels[number % classes], labels[(number + (number % 10 >= 10 * right)) % classes]
        chances = {label: 0.9 if label == said else 0.1 / (classes - 1) for label in labels}
        found.add([Example(location=f"a.csv:{number}", texts=(f"{EVIL} text {number}",), label=gold)],
                  [{"label": said, "probabilities": chances}])  # fmt: skip
    return whole(found)


def whole(found: Any) -> dict[str, Any]:
    details = found.to_dict()
    headline = next(iter(details["metrics"]))
    summary = {name: {"mean": one, "low": one - 0.1, "high": one + 0.1} for name, one in details["metrics"].items()}
    return {
        "headline": headline,
        "summary": summary,
        "details": details,
        "untrained": {headline: 0.4},
        "warnings": warnings(details, headline, details["metrics"][headline]),
        "runs": [{"seed": seed, "metrics": {**details["metrics"], "step": 8, "seconds": 2.5}} for seed in range(2)],
        "protocol": {"measured_on": EVIL, "data": ["one", "two"], "machine": {"device": "cpu"}, "recipe": "a = 1"},
    }


RECORDS = [
    {"kind": "untrained", "step": 0, "accuracy": 0.4},
    *({"kind": "step", "step": step, "loss": 1 / step} for step in range(1, 9)),
    {"kind": "validation", "step": 8, "accuracy": 0.8},
]


def test_everything_that_was_found_stands_on_the_page() -> None:
    text = page(f"{EVIL} title", result(), RECORDS)
    results = ("Key figures", "Compared with baselines", "Seeds", "Class by class", "Confusion matrix", "Calibration")
    for heading in (*results, "Learning curves", "The most confident mistakes", "How it was measured", "Recipe"):
        assert f"<h2>{heading}</h2>" in text, heading
    for words in ("always predicting", "this model before training", "macro mean", "expected calibration error"):
        assert words in text, words


def test_what_comes_from_outside_is_escaped_and_nothing_is_loaded() -> None:
    text = page(f"{EVIL} title", result(), RECORDS)
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text
    assert not re.findall(r"(?:src|href)=[\"']?(?!data:,)[^\"'\s>]+", text)
    assert "default-src 'none'" in text


def test_a_matrix_of_many_classes_numbers_its_columns_and_stays_small() -> None:
    text = page("many", result(classes=45))
    matrix = text[text.index("matrix many") :]
    assert matrix.count("<tr>") >= 31
    assert "(others)" in matrix
    assert "The largest classes; the others are one." in text


def test_a_warning_stands_first() -> None:
    text = page("bad", result(right=0.0))
    assert text.index("Look here first") < text.index("Key figures")
    assert "is not better than always predicting" in text
    lines = comparison_lines(result(right=0.0))
    assert lines[0].startswith("baseline: accuracy 0.5000, always predicting 'class 0'")
    assert lines[1] == "before training: accuracy 0.4000"
    assert any(line.startswith("warning: accuracy") for line in lines)


def test_numbers_are_drawn_against_the_true_ones() -> None:
    found = RegressionFindings(None)
    found.add(
        [Example(location="x", texts=("t",), label=float(n)) for n in range(20)], [{"number": n} for n in range(20)]
    )
    text = page("numbers", whole(found))
    assert text.count('<circle class="dot"') == 20
    assert "MAE" in text
    assert "Predicted number, by true number" in text


def test_numbers_that_are_none_leave_a_page_all_the_same() -> None:
    found = RegressionFindings(None)
    found.add([Example(location="x", texts=("t",), label=float(n)) for n in range(3)], [{"number": math.nan}] * 3)
    text = page("astray", whole(found))
    assert "Look here first" in text
    assert "Predicted number" not in text


@pytest.mark.slow
def test_the_page_fits_the_windows_of_phones_and_desks(tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no Chromium")
    path = write(tmp_path, "many classes", result(classes=45), RECORDS)
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for width in (400, 1400):
            opened, said = browser.new_page(viewport={"width": width, "height": 900}), list[str]()
            opened.on("pageerror", lambda error, said=said: said.append(str(error)))
            opened.goto(path.as_uri())
            wide = opened.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert (wide, said) == (0, []), width
        browser.close()
