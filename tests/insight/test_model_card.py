"""The model card: front matter that is YAML, and texts of others that stay texts."""

import re
from dataclasses import replace
from typing import Any

import pytest

from bertsmith.insight.model_card import Use, finetuned_card, pretrained_card
from bertsmith.insight.report import RunSummary

EVIL = "<script>alert(1)</script>|[x](javascript:y) `` ``` \n---\n# a heading"
STORY = RunSummary(
    title=EVIL, figures={EVIL: EVIL}, data={"text": EVIL}, recipe=f"name = '{EVIL}'", machine={"device": EVIL}
)
RESULT: dict[str, Any] = {
    "summary": {EVIL: {"mean": 0.5, "deviation": 0.0, "low": None, "high": None}},
    "runs": [{}],
    "protocol": {
        "machine": {"device": EVIL},
        "examples": {"train": 3, "dev": 1},
        "selection": "the last step",
        "data_sha256": "0",
        "recipe": f"model = '{EVIL}'",
    },
}


def outside_code(text: str) -> str:
    """What is not inside a fenced block, where everything is shown as it is."""
    return re.sub(r"^(`{3,})\w*\n.*?^\1$", "", text, flags=re.S | re.M)


@pytest.mark.parametrize(
    "written",
    [
        pretrained_card(STORY),
        pretrained_card(STORY, "cc-by: 4.0", use="recurrent_lm"),
        finetuned_card("classify", RESULT, "odd: network"),
    ],
    ids=["pretrained", "recurrent", "tuned"],
)
def test_texts_of_others_are_neither_html_nor_markdown_in_a_card(written: str) -> None:
    yaml = pytest.importorskip("yaml")
    _, front, body = written.split("---\n", 2)
    assert set(yaml.safe_load(front)) >= {"library_name", "pipeline_tag", "tags"}
    shown = outside_code(body)
    assert "<script" not in shown
    assert "&lt;script&gt;" in shown
    assert not re.search(r"(?<!\\)\[x(?<!\\)\]", shown)
    assert not re.search(r"^# a heading", shown, re.M)
    rows = [line for line in shown.splitlines() if line.startswith("| ")]
    assert rows
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 3 for line in rows)  # two cells, whatever is in them


def test_a_card_of_plain_words_reads_as_before() -> None:
    plain = pretrained_card(
        replace(STORY, title="bert-mini", figures={"loss of hidden words": "5.0"}, data={}, recipe="a = 1")
    )
    assert "# bert-mini\n" in plain
    assert "| loss of hidden words | 5.0 |" in plain
    assert "```toml\na = 1\n```" in plain


@pytest.mark.parametrize(
    ("use", "pipeline"),
    [
        ("fill_mask", "fill-mask"),
        ("causal_lm", "text-generation"),
        ("text_to_text", "text2text-generation"),
        ("discriminator", "feature-extraction"),
        ("features", "feature-extraction"),
        ("recurrent_lm", "text-generation"),
    ],
)
def test_a_card_names_the_pipeline_of_its_use_and_the_library_that_opens_it(use: Use, pipeline: str) -> None:
    written = pretrained_card(STORY, use=use)
    assert f"pipeline_tag: {pipeline}\n" in written
    assert ("library_name: transformers\n" in written) == ("`transformers." in written)
