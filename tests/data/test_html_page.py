"""HTML pages as the paragraphs that a person reads."""

from pathlib import Path

import pytest

from bertsmith.data.corpus import html_page as module
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.corpus.html_page import html_page
from bertsmith.errors import TextError

PAGE = """<!doctype html><html><head><title>t</title><style>p {}</style></head>
<body><nav><ul><li>menu</li></ul></nav><h1>A heading</h1>
<p>Some <b>bold</b> text &amp; an
<a href="x">inner</a> word.<p>Next<br>line<script>var x = "<p>no</p>";</script>
<table><tr><td>one</td><td>two</td></tr></table><!-- left out --></body></html>
"""


def test_html_becomes_paragraphs_without_scripts_and_menus() -> None:
    lines = PAGE.split("\n")
    expected = ["A heading", "Some bold text & an inner word.", "Next", "line", "one", "two"]
    for runs in ([(1, lines)], [(number, [line]) for number, line in enumerate(lines, 1)]):
        assert [text for _, text in html_page(runs)] == expected


@pytest.mark.parametrize(
    "page",
    [
        "<head><meta charset=utf-8><noscript><img src=x></noscript><title>T</title><p>Hello<p>you",
        "<html><head><title>T</title><link rel=x><main>Hello<p>you",
        "<button>Go<p>Hello<p>you",
        "<div><button>Go <span>now</div>Hello<p>you",
        "<div><nav><ul><li>Menu<li><a>More</a></div>Hello<p>you",
        "<nav>Menu<nav>inner</nav> more</nav>Hello<p>you",
        "<nav><div>Menu</div></ul><main>Hello</main><p>you",
        "<select><option>One<option>Two<h1>Hello</h1>you",
        "<p>Hello<script>if (a < b) {</script><select><option>One</select><p>you",
    ],
)
def test_a_missing_end_tag_costs_no_text(page: str) -> None:
    assert [text for _, text in html_page([(1, [page])])] == ["Hello", "you"]


@pytest.mark.parametrize(
    "word",
    [
        "<ruby><rb>猫</rb><rp>（</rp><rt>ねこ</rt><rp>）</rp></ruby>",
        "<ruby>猫<rp>(<rt>ねこ<rp>)</ruby>",
        "<ruby><rb>猫<rt>ねこ</ruby>",
    ],
)
def test_readings_of_ruby_are_left_out_and_split_no_sentence(word: str) -> None:
    assert list(html_page([(1, [f"<p>あの{word}がすき。"])])) == [(1, "あの猫がすき。")]


def test_inline_tags_split_no_sentence() -> None:
    page = "An <acronym>SOS</acronym> <big>to</big> <strike>all</strike> <nobr>of us</nobr><img src=x>here"
    assert list(html_page([(1, [page])])) == [(1, "An SOS to all of us here")]


def test_an_image_of_any_size_within_a_page_is_passed_over(tmp_path: Path) -> None:
    for name, lines in {"a.html": ["A" * 76] * 80_000, "b.html": ["A" * 5_000_000]}.items():
        page = ['<p>Before</p><img src="data:image/png;base64,', *lines, '"><p>After']
        (tmp_path / name).write_text("\n".join(page))
        assert list(Corpus([str(tmp_path / name)]).lines()) == ["Before", "After"]


def test_a_page_with_a_tag_without_end_is_left_out_from_there_and_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_TAG_CHARACTERS", 20_000)
    (tmp_path / "a.html").write_text("<p>Before\n" + '<p class="\n' + "x y\n" * 9_000)
    (tmp_path / "b.html").write_text("<p>Next")
    corpus = Corpus([str(tmp_path)])
    assert list(corpus.lines()) == ["Before", "Next"]
    note = "cannot be read (line 5000 is in a tag that never ends), left out from here on"
    assert corpus.new_notes() == [f"{tmp_path / 'a.html'}: {note}"]
    assert corpus.tally["unreadable files"] == 1
    with pytest.raises(TextError, match=r"a\.html: cannot be read\."):
        list(Corpus([str(tmp_path)], on_bad_line="fail").lines())
