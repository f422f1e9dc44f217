"""The sources of the inspection's page: markup never comes out of data, and nothing is loaded."""

import re
from pathlib import Path
from typing import Any

from insight.inspection.made_figures import embedded, figures

from bertsmith.insight import page

TEMPLATES = Path(page.__file__).parent / "templates"
PARTS = [TEMPLATES / "inspect.js", *sorted((TEMPLATES / "inspect").glob("*.js"))]


def rendered(**options: Any) -> str:
    return page.render("inspect.html", title="<b>title</b>", data=embedded(figures(**options)), sections=())


def test_scripts_make_text_and_elements_but_no_markup() -> None:
    for part in PARTS:
        text = part.read_text(encoding="utf-8")
        found = re.findall(
            r"innerHTML|outerHTML|AdjacentHTML|document\.write|\beval\b|Function\(|fetch\(|https?://(?!www\.w3\.org/2000/svg)",
            text,
        )
        assert not found, (part.name, found)


def test_every_part_of_the_script_is_on_the_page_and_short() -> None:
    html = rendered()
    for part in PARTS:
        lines = part.read_text(encoding="utf-8").splitlines()
        assert len(lines) <= 300, part.name
        if part.parent.name == "inspect":
            assert lines[0] in html


def test_data_cannot_end_its_script_element() -> None:
    html = rendered(size=20, hostile=True)
    assert html.count("</script>") == 2
    assert "<script>alert" not in html
    assert "default-src 'none'" in html
    assert "&lt;b&gt;title" in html


def test_sections_from_elsewhere_stand_as_they_are_and_their_titles_are_escaped() -> None:
    made = page.render("page.css")  # any markup that a template rendered
    html = page.render(
        "inspect.html", title="t", data=embedded(figures()), sections=[("Gates & <cells>", made, "lead")]
    )
    assert "<h2>Gates &amp; &lt;cells&gt;</h2>" in html
