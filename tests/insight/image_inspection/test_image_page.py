"""The page about images in real Chromium: shares that are read out, patches that are chosen, nothing that is loaded."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inference import photos
from insight.inspection.browser import Shown
from models.test_vision import DISTILLED

from bertsmith.inference.load import load_image_model
from bertsmith.insight.image_inspection.inspection import ImageInspection

pytestmark = pytest.mark.slow("drives a browser")

STEP = 0.8  # per cent: weights are kept to 1/255, and shares are read to a per cent or a tenth of one


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> ImageInspection:
    model = load_image_model(photos.model(tmp_path_factory.mktemp("deit"), DISTILLED, distilled=True), "cpu")
    return model.inspect([photos.pixels(16, 24), photos.pixels(24, 12, 1)], size="own")


def over(page: Shown, selector: str, patch: tuple[int, int], grid: tuple[int, int]) -> None:
    """Moves the pointer to the middle of a patch, counted from 0."""
    host = page.page.locator(f"{selector} .picture").first
    box = host.bounding_box()
    assert box is not None
    x, y = ((at + 0.5) * side / count for at, side, count in zip(patch[::-1], (box["width"], box["height"]), grid[::-1],
                                                                strict=True))  # fmt: skip
    host.hover(position={"x": x, "y": y})
    page.settle()


def test_the_page_reads_out_the_weights_of_the_patch_that_is_chosen(
    browser: Any, found: ImageInspection, tmp_path: Path
) -> None:
    page = Shown(browser, found.save(tmp_path / "inside.html"))
    one, two = found.images
    attention = one.attention
    assert page.text(".status") == "class token looks · head 3-1"
    over(page, "#attention", (1, 4), (4, 6))
    column = 2 + 1 * 6 + 4  # after two special tokens
    weight = 100 * float(attention.weights[2, 0, 0, column])
    assert page.share("#attention .reading", "patch 2, 5") == pytest.approx(weight, abs=STEP)

    page.page.locator("#image .picture").focus()
    page.press("ArrowLeft")  # from the middle, when no patch is chosen
    assert page.text(".status") == "patch 3, 3 looks · head 3-1"
    token = 2 + 2 * 6 + 2
    page.click("#overview .head", 3)  # the second head of the second layer
    page.click("#attention .segments button", 1)
    over(page, "#attention", (1, 4), (4, 6))
    weight = 100 * float(attention.weights[1, :, token, column].mean())
    assert page.share("#attention .reading", "patch 2, 5") == pytest.approx(weight, abs=STEP)
    page.click("#attention .segments button", 2)
    over(page, "#attention", (2, 2), (4, 6))
    assert page.share("#attention .reading", "patch 3, 3") == pytest.approx(
        100 * float(attention.rollout[1, token, token]), abs=STEP
    )

    assert page.texts("#special h3")[:2] == ["class token", "distillation token"]
    attribution, classes = one.attribution, one.classes
    assert attribution is not None
    assert classes is not None
    assert page.text("#classes tr:last-child td").startswith(classes.label)
    assert f"{attribution.steps} steps" in page.text("#attributions .scores")
    decisive = int(np.argmax(np.abs(attribution.scores)))
    over(page, "#attributions", divmod(decisive, 6), (4, 6))
    assert page.text("#attributions .reading").startswith(f"patch {decisive // 6 + 1}, {decisive % 6 + 1} ")
    assert page.inked("#attributions .picture canvas") > 1000

    page.choose("#bar select", "image 2")
    assert "image 2" in page.text("#image h2")
    assert page.page.locator("#image .picture").first.evaluate("(one) => one.style.aspectRatio") == "12 / 24"
    assert two.attention.grid == (6, 3)
    page.close()


@pytest.mark.exhaustive
def test_no_picture_runs_over_the_edge_of_a_small_window(browser: Any, found: ImageInspection, tmp_path: Path) -> None:
    path = found.save(tmp_path / "inside.html")
    for width, scheme in ((360, "dark"), (760, "light")):
        page = Shown(browser, path, width, scheme)
        assert page.page.evaluate("document.documentElement.scrollWidth") <= width
        page.choose("#attention select", "light over the image")
        page.close()
