"""The report: complete, self-contained, and safe to open whatever the text says."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from bertsmith.insight import report
from bertsmith.insight.report import ClozeExample, RunSummary

EVIL = "<script>alert('x')</script> & \"quotes\" [MASK]"
VOID = {"meta", "link", "line", "path", "circle", "i"}


def records(steps: int = 400) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = []
    for step in range(1, steps + 1):
        share = step / steps
        terms = {"masked": 9 - 4 * share, "nsp": 0.7 - 0.2 * share}
        told.append({"kind": "step", "step": step, "loss": sum(terms.values()), "terms": terms})
        told[-1] |= {
            "learning_rate": share / 1000,
            "tokens": 2048 * step,
            "seconds": step / 4,
            "tokens_per_second": 8000 + step % 7,
        }
        if step % 50 == 0:
            told.append({"kind": "validation", "step": step, "masked_loss": 9 - 4 * share, "masked_accuracy": 0.3})
            told[-1] |= {"nsp_loss": 0.6, "nsp_accuracy": 0.7, "bits_per_byte": 1.9}
    return told


EXAMPLE = ClozeExample("once upon a [MASK] .", "time", [("##q", 0.002), ("leaf", 0.001)], [("Time", 0.8), ("day", 0.1)])
STORY = RunSummary(
    title="bert-mini from 500,000 words",
    records=records(),
    figures={"validation loss of hidden words": "5.000 nats", "training time": "4 min"},
    examples=[
        ClozeExample("once upon a [MASK] .", "time", [("##q", 0.002), ("leaf", 0.001)], [("Time", 0.8), ("day", 0.1)])
    ],
    data={"documents": "700", "data SHA-256": "ab" * 32},
    recipe='[train]\nbudget = "4m"\n',
    machine={"device": "a laptop", "torch": "2.13.0"},
    baseline=6.4,
)


class Outline(HTMLParser):
    """Reads a page: its tags, which must close in order, and its words outside of styles and scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID - {"i"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def test_the_page_tells_the_whole_story() -> None:
    text = Outline(report.page(STORY)).text
    for part in (
        "bert-mini from 500,000 words", "validation loss of hidden words", "5.000 nats",
        "unigram baseline (word frequency)", "Validation accuracy", "Loss of next sentence", "Throughput",
        "Learning rate", "once upon a", "the word was time", "80.0%", "data SHA-256", "ab" * 32, 'budget = "4m"',
        "a laptop",
    ):  # fmt: skip
        assert part in text


def test_the_page_loads_nothing() -> None:
    page = report.page(STORY)
    outline = Outline(page)
    links = [value for _, attrs in outline.tags for key, value in attrs.items() if key in ("src", "href")]
    assert links == ["data:,"]
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest|import\(", page)
    assert set(re.findall(r"https?://[^\"' ]+", page)) <= {"http://www.w3.org/2000/svg"}


def test_whatever_comes_from_outside_is_escaped() -> None:
    evil = RunSummary(
        title=EVIL,
        records=[{"kind": "note", "step": 3, "text": EVIL}],
        figures={EVIL: EVIL},
        examples=[ClozeExample(EVIL, EVIL, [(EVIL, 0.5)], [(EVIL, 0.5)])],
        data={EVIL: EVIL},
        recipe=EVIL,
        machine={EVIL: EVIL},
    )
    outline = Outline(report.page(evil))
    assert "script" not in [tag for tag, _ in outline.tags]
    assert outline.text.count("<script>alert('x')</script>") == 14


def test_what_is_written_stands_behind_its_prompt_or_below_it() -> None:
    told = [("Once upon", "Once upon a <time>"), ("fill <extra_id_0> in", "<extra_id_0> it")]
    page = report.page(RunSummary(title="writes", generations=told))
    assert "<b>Once upon</b> a &lt;time&gt;</p>" in page
    assert "<b>fill &lt;extra_id_0&gt; in</b><br>&lt;extra_id_0&gt; it</p>" in page


def test_a_blank_is_drawn_and_the_right_guess_is_marked_whatever_its_case() -> None:
    for mask in ("[MASK]", "<mask>"):
        page = report.page(replace(STORY, examples=[replace(STORY.examples[0], text=f"once upon a {mask} .")]))
        assert mask not in Outline(page).text
        assert page.count('class="blank"') == 1
        assert re.findall(r'class="guess right"><span>(\w+)', page) == ["Time"]


def test_the_bars_of_an_example_share_one_scale() -> None:
    widths = re.findall(r'<i style="width:([\d.]+)%', report.page(STORY))
    assert [float(width) for width in widths] == pytest.approx([0.2, 0.1, 100, 12.5], abs=0.06)


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [{}],
        [{"kind": "step"}],
        [{"kind": "step", "step": 1}],
        [{"kind": "step", "step": 1, "loss": 9.1}],
        [
            {
                "kind": "step",
                "step": 1,
                "loss": float("nan"),
                "terms": {"masked": "inf"},
                "learning_rate": None,
                "tokens_per_second": 0,
            }
        ],
        [{"kind": "validation", "step": 0, "masked_loss": 9.0, "nsp_accuracy": 0.5}],
        [{"kind": "note"}],
    ],
)
def test_an_empty_or_broken_log_still_makes_a_page(lines: list[dict[str, Any]]) -> None:
    assert "bare" in Outline(report.page(RunSummary(title="bare", records=lines, baseline=6.0))).text


def test_notes_and_left_out_updates_are_told() -> None:
    lines = records(4)
    lines[2]["skipped"] = lines[3]["skipped"] = 1
    lines.append({"kind": "note", "step": 4, "resumed": "from a checkpoint"})
    text = Outline(report.page(replace(STORY, records=lines))).text
    assert text.count("update skipped") == 1
    assert "step 3: update skipped" in text
    assert "step 4: resumed from a checkpoint" in text


def test_a_long_run_makes_a_light_page() -> None:
    assert len(report.page(replace(STORY, records=records(5_000), examples=STORY.examples * 12)).encode()) < 300_000


def test_a_loss_that_falls_far_is_drawn_by_orders_of_magnitude() -> None:
    steep = [{"kind": "step", "step": step, "loss": 10 / step**2} for step in range(1, 30)]
    assert ">0.1</text>" in report.page(RunSummary(title="steep", records=steep))


def test_writing_replaces_the_page_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    report.write(path, STORY)
    assert path.read_text(encoding="utf-8") == report.page(STORY)
    assert list(tmp_path.iterdir()) == [path]
