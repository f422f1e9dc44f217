"""Markdown and reStructuredText as the paragraphs that a person reads."""

import pytest

from bertsmith.data.corpus.markup import markdown

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

   Keep in mind: ``it``.

.. image:: x.png

After it, an example::

    left = out

The end.
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
        "Keep in mind: it.",
        "After it, an example:",
        "The end.",
    ]


def test_code_within_a_line_opens_no_code_block() -> None:
    text = """First:
```pip install tool```
then use it.

````
a = 1
``` not the end
```` nor this
```
````
After the code.
~~~ python `x`
b = 2
~~~
The end."""
    assert [text for _, text in markdown([(1, text.split("\n"))])] == [
        "First: pip install tool then use it.",
        "After the code.",
        "The end.",
    ]


@pytest.mark.parametrize(("after", "kept"), [(["---"], False), (["..."], False), ([], True), (["---"], True)])
def test_only_settings_that_end_are_left_out_at_the_beginning(after: list[str], kept: bool) -> None:
    words = ["word"] * (200 if kept else 90)
    found = list(markdown([(1, ["---", *words, *after, "", "The end."])]))
    assert found[-1] == (len(words) + len(after) + 3, "The end.")
    assert len(found) == 1 + kept


def test_the_prose_of_directives_is_kept_and_their_code_is_not() -> None:
    text = """.. warning:: Never do
   this.
.. py:function:: run(name)
   :async:

   Runs it at once, as in::

      run("x")

   .. versionadded:: 3.2
      With a name.

   .. code-block:: python
      :linenos:

      left = out

   :param name: left out
      and so on
   Returns nothing.

.. _target:
.. a comment
   goes on

>>> run("y")
out

.. |x| replace:: left out
.. math:: a + b
::

   left out

The end."""
    assert [text for _, text in markdown([(1, text.split("\n"))], rst=True)] == [
        "Never do this.",
        "Runs it at once, as in:",
        "With a name.",
        "Returns nothing.",
        "The end.",
    ]
