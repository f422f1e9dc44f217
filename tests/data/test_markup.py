"""Markdown, reStructuredText and HTML as the paragraphs that a person reads."""

import pytest

from bertsmith.data.corpus import markup
from bertsmith.data.corpus.markup import html_page, markdown
from bertsmith.errors import TextError

MARKDOWN = """---
title: settings
---
# A *heading* #
Some **bold** text
that goes on, with a [link](http://x.org/a_(b)) and `code`.

- first item
- [x] second &amp; last
  goes on

> quoted words

![a picture](x.png) <b>inline</b> snake_case_name

```python
left = out
```
| a | b |
|---|---|
| 1 | 2 |

Title
=====
[ref]: http://x.org
the end
"""

RST = """Title
=====

Some *text* with ``code`` and :func:`a role <x>`, `a link <http://x.org>`_.

.. note::

   left out

.. image:: x.png

After it, an example::

    left = out

The end.
"""

PAGE = """<!doctype html><html><head><title>t</title><style>p {}</style></head>
<body><nav><ul><li>menu</li></ul></nav><h1>A heading</h1>
<p>Some <b>bold</b> text &amp; an
<a href="x">inner</a> word.<p>Next<br>line<script>var x = "<p>no</p>";</script>
<table><tr><td>one</td><td>two</td></tr></table><!-- left out --></body></html>
"""


def test_markdown_becomes_paragraphs_without_marks() -> None:
    assert list(markdown([(1, MARKDOWN.split("\n"))])) == [
        (4, "A heading"),
        (5, "Some bold text that goes on, with a link and code."),
        (8, "first item"),
        (9, "second & last goes on"),
        (12, "quoted words"),
        (14, "a picture inline snake_case_name"),
        (19, "a b"),
        (21, "1 2"),
        (23, "Title"),
        (26, "the end"),
    ]


def test_restructured_text_becomes_paragraphs_without_directives() -> None:
    assert [text for _, text in markdown([(1, RST.split("\n"))], rst=True)] == [
        "Title",
        "Some text with code and a role, a link.",
        "After it, an example:",
        "The end.",
    ]


def test_html_becomes_paragraphs_without_scripts_and_menus() -> None:
    lines = PAGE.split("\n")
    expected = ["A heading", "Some bold text & an inner word.", "Next", "line", "one", "two"]
    for runs in ([(1, lines)], [(number, [line]) for number, line in enumerate(lines, 1)]):
        assert [text for _, text in html_page(runs, "a.html")] == expected


def test_a_tag_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markup, "MAX_TAG_CHARACTERS", 1_000)
    with pytest.raises(TextError, match=r"^a\.html:\d+: has a tag that never ends\. Mend the file, or add --as text\."):
        list(html_page([(1, ['<p class="' + "x" * 100] * 50)], "a.html"))
