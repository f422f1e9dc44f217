"""The page of an inspection in real Chromium: clicked, typed at, and read."""

import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from insight.inspection import browser as browsers
from insight.inspection.browser import Open, Shown
from insight.inspection.made_figures import KINDS, figures, token_list, translated, weights
from pace import pace

pytestmark = pytest.mark.slow("drives a browser")

STEP = 100 / 255 + 0.5  # weights are kept as bytes, and percentages without decimals


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Opens a page of figures; at the end, nothing was loaded and nothing complained."""
    shown: list[Shown] = []

    def opened(held: Any = None, width: int = 1100, scheme: str = "light", **options: Any) -> Shown:
        held = figures(**options) if held is None else held
        shown.append(Shown(browser, browsers.written(tmp_path, held), width, scheme))
        return shown[-1]

    yield opened
    for one in shown:
        one.close()


def test_at_first_the_blank_is_chosen_and_a_head_that_looks_at_a_neighbour(show: Open) -> None:
    page = show(layers=3, heads=4)
    assert page.text(".status") == "token [MASK] · head 1-2 next"


def names(size: int = 12) -> list[str]:
    return [token["shown"] for token in token_list(size, mask=8)]


# ---- overview ----


def test_a_thumbnail_has_the_pattern_of_its_head_in_the_colour_of_its_kind(show: Open) -> None:
    page = show()
    canvas = "#overview .head[data-kind=previous] canvas"
    colour = page.page.evaluate(
        "getComputedStyle(document.documentElement).getPropertyValue('--kind-previous')"
    ).strip()
    rgb = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    read = "(canvas, [x, y]) => [...canvas.getContext('2d').getImageData(x, y, 1, 1).data]"
    for row in range(1, 12):  # one pixel is one token
        pixel = page.page.locator(canvas).evaluate(read, [row - 1, row])
        assert pixel[3] > 200
        assert max(abs(a - b) for a, b in zip(pixel, rgb, strict=False)) <= 2
    assert page.page.locator(canvas).evaluate(read, [0, 3])[3] == 0


def test_the_legend_counts_kinds_and_filters_them(show: Open) -> None:
    page = show(layers=4, heads=4)
    assert page.texts("#overview .kind") == [f"{sign} 2 {kind}" for kind, sign in zip(KINDS, "←→=S1w○·", strict=True)]
    page.click("#overview .kind", 1)
    faint = page.page.locator("#overview .head.faint")
    assert faint.count() == 14
    page.click("#overview .kind", 1)
    assert faint.count() == 0


def test_heads_can_be_sorted_by_entropy(show: Open) -> None:
    held = figures(layers=3, heads=4)
    page = show(held)
    page.choose("#overview select", "by entropy")
    found = page.texts("#overview .head-measure")
    entropies = sorted(head["entropy"] for line in held["readings"][0]["attentions"][0]["heads_by"] for head in line)
    assert found == [f"{entropy:.2f}" for entropy in entropies]


def test_arrow_keys_move_between_heads_and_layers(show: Open) -> None:
    page = show(layers=3, heads=4)
    page.click("#overview .head[data-layer='0'][data-head='0']")
    page.press("ArrowRight", "ArrowDown")
    assert "head 2-2" in page.text(".status")
    focused = page.page.evaluate("[document.activeElement.dataset.layer, document.activeElement.dataset.head]")
    assert focused == ["1", "1"]
    assert page.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert [page.page.locator("#attention input[type=number]").nth(at).input_value() for at in (0, 1)] == ["2", "2"]


# ---- token to token ----


def test_a_word_reads_its_weights(show: Open) -> None:
    page = show()
    page.click(
        "#overview .head[data-layer='0'][data-head='0']"
    )  # 0.4 on the token before, the rest on eight from here on
    page.page.locator("#attention .lines-list.rows li").nth(3).hover()
    assert page.text("#attention .reading").startswith("sat looks at man 40 %, ")
    page.page.locator("#attention .lines-list.columns li").nth(2).hover()
    assert page.text("#attention .reading").startswith("man is looked at by sat 40 %")


@pytest.mark.exhaustive
def test_a_cell_of_the_matrix_has_the_colour_of_its_weight(show: Open) -> None:
    page = show()
    page.click("#overview .head[data-layer='0'][data-head='0']")
    strong = page.pixel("#attention .heat-cells", *page.point("#attention", "sat → man"))
    weak = page.pixel("#attention .heat-cells", *page.point("#attention", "sat → sat"))
    none = page.pixel("#attention .heat-cells", *page.point("#attention", "sat → [CLS]"))
    assert page.page.locator("#attention .heat .reading").inner_text().endswith("0.0 %")
    assert sum(strong[:3]) < sum(weak[:3]) < sum(none[:3]) == 765


def test_pieces_are_merged_by_the_sum_of_columns_and_the_mean_of_rows(show: Open) -> None:
    page = show(size=20)
    page.click("#overview .head[data-layer='0'][data-head='1']")
    tokens = [token["shown"] for token in token_list(20, mask=8)]
    first = tokens.index("mon")
    held = weights("next", 20, 20, 0.4 + 0.5 / 2)
    page.page.get_by_label("pieces as words").check()
    page.settle()
    assert page.texts("#attention .lines-list.rows li")[first] == "money"
    page.page.locator("#attention .lines-list.rows li").nth(first).hover()
    into = held[[first, first + 1]].mean(0)
    own, comma = into[first] + into[first + 1], into[first + 2]
    assert page.share("#attention .reading", "money") == pytest.approx(100 * own, abs=2 * STEP)  # of two columns
    assert page.share("#attention .reading", ",") == pytest.approx(100 * comma, abs=STEP)


def test_special_tokens_can_be_left_out_with_and_without_scaling(show: Open) -> None:
    page = show()
    page.click("#overview .head[data-kind=separator]")
    row = page.page.locator("#attention .lines-list.rows li").filter(has_text="bank")
    row.hover()
    assert "[SEP]" in page.text("#attention .reading")
    page.choose("#attention select", "left out")
    assert "add up to less than 100 %" in page.text("#attention .hint")
    assert "[SEP]" not in page.texts("#attention .lines-list.columns li")
    row.hover()
    raw = page.share("#attention .reading", "bank")
    page.choose("#attention select", "left out, renormalised")
    row.hover()
    scaled = page.share("#attention .reading", "bank")
    held = weights("separator", 12, 12, 0.4 + 0.5 / 2)[6]
    kept = [at for at, token in enumerate(token_list(12, mask=8)) if not token["special"]]
    assert raw == pytest.approx(100 * held[6], abs=STEP)
    assert scaled == pytest.approx(100 * held[6] / held[kept].sum(), abs=1)


def test_the_mean_of_a_layer_and_the_rollout_are_read(show: Open) -> None:
    page = show()
    page.click("#overview .head[data-layer='1'][data-head='0']")
    page.click("#attention .segments button", 1)
    page.page.locator("#attention .lines-list.rows li").nth(3).hover()
    mean = (weights("itself", 12, 12, 0.4) + weights("separator", 12, 12, 0.65)) / 2
    assert page.share("#attention .reading", "[SEP]") == pytest.approx(100 * mean[3, 11], abs=STEP)
    page.click("#attention .segments button", 2)
    assert "Abnar & Zuidema 2020" in page.text("#attention .hint")
    first = (weights("previous", 12, 12, 0.4) + weights("next", 12, 12, 0.65)) / 2
    flow = (mean + np.eye(12)) / 2 @ (first + np.eye(12)) / 2
    page.page.locator("#attention .lines-list.rows li").nth(3).hover()
    assert page.share("#attention .reading", "sat") == pytest.approx(100 * flow[3, 3], abs=1)


def test_the_threshold_takes_lines_away(show: Open) -> None:
    page = show()
    page.click("#overview .head[data-layer='0'][data-head='0']")
    page.page.mouse.move(0, 0)
    before = page.inked("#attention .lines-base")
    page.page.get_by_label("lines from").fill("0.5")
    page.settle()
    assert page.inked("#attention .lines-base") == 0 < before


# ---- predictions, masks, comparisons ----


def test_predictions_by_layer_follow_the_chosen_token(show: Open) -> None:
    page = show(layers=4)
    assert page.text("#predictions .wide-head") == "At [MASK]: what stands there is not known"
    page.click("#text .token", 3)
    assert page.text("#predictions .wide-head") == "At sat, the true word is sat"
    assert page.texts("#predictions .tops tr")[-1].startswith("4 sat 70 % edge 35 %")
    label = page.page.locator("#predictions svg").get_attribute("aria-label")
    assert label == "Rank of the true word by layer: embeddings 20003, 1 1685, 2 144, 3 15, 4 1"
    column = page.point("#predictions", "4, bank:")
    dark = page.pixel("#predictions .heat-cells", *column)
    pale = page.pixel("#predictions .heat-cells", *page.point("#predictions", "embeddings, bank:"))
    assert sum(dark[:3]) < 250 < 700 < sum(pale[:3])
    page.page.locator("#predictions .heat-scroll").click(position={"x": column[0], "y": column[1]})
    page.settle()
    assert "token bank" in page.text(".status")


def test_a_word_is_hidden_by_a_click(show: Open) -> None:
    page = show(layers=4)
    page.click("#masked .token", 6)
    assert page.text("#masked .wide-head") == "With bank hidden"
    assert "Rank of the hidden word by layer: embeddings 256, 1 64" in str(
        page.page.locator("#masked svg").get_attribute("aria-label")
    )
    own = page.pixel("#masked .heat-cells", *page.point("#masked", "2, bank moved by 0.90"))
    far = page.pixel("#masked .heat-cells", *page.point("#masked", "2, [CLS] moved by 0.0"))
    assert sum(own[:3]) < 330 < 700 < sum(far[:3])


def test_two_texts_stand_side_by_side(show: Open) -> None:
    page = show(layers=3, heads=3, texts=2)
    assert page.text("#comparison .scores").startswith("The model prefers text A by 3.2 nats")
    assert page.texts("#comparison .differs") == ["bank", "table"]
    assert page.texts("#comparison .differ tbody td") == [
        "river (8)",
        "river 50 %, sea 20 %, lake 10 %",
        "shore 40 %, river 30 %, sea 10 %",
    ]
    page.click("#comparison .link")
    assert "head 2-2" in page.text(".status")
    page.point("#comparison", "3, the: 0.50 apart")


# ---- words and map ----


def test_attributions_are_told_apart_without_colour(show: Open) -> None:
    page = show()
    styles = "(one) => getComputedStyle(one).borderBottomStyle"
    held = figures()["readings"][0]["attributions"]
    for index in (3, 4, 5, 6):
        style = page.page.locator("#attributions .token").nth(index).evaluate(styles)
        assert style == ("dashed" if held[0]["scores"][index] < 0 else "solid")
    assert "gap of 1.2 % (completeness), in 64 steps" in page.text("#attributions .hint:last-child")
    first = page.texts("#attributions .bar-line")[0]
    page.choose("#attributions select", "label: negative (0.03)")
    assert page.texts("#attributions .bar-line")[0] != first


def test_neighbours_of_the_chosen_token(show: Open) -> None:
    page = show()
    page.click("#text .token", 2)
    assert page.texts("#neighbours .guess")[:2] == ["river 0.71", "shore 0.66"]
    assert page.texts("#neighbours .guess")[8] == "the (6) 0.91"
    page.click("#neighbours .link")
    assert "token the" in page.text(".status")


@pytest.mark.exhaustive
def test_points_of_the_map_are_read_found_and_filtered(show: Open) -> None:
    page = show()
    assert page.texts("#map .kind") == ["river", "money", "seat"]
    page.page.locator("#map .scatter").focus()
    page.press("ArrowRight")
    assert page.text("#map .reading").split(" · ")[0].startswith("the ")
    assert page.text("#map .reading mark") == "bank"
    drawn = page.inked("#map .scatter canvas")
    page.page.get_by_label("find points").fill("number 17")
    assert "1 of 60 points contain" in page.text("#map .reading")
    assert page.inked("#map .scatter canvas") < drawn
    page.page.get_by_label("find points").fill("")
    page.click("#map .kind", 1)
    assert page.inked("#map .scatter canvas") < drawn
    page.click("#map .segments button", 1)
    assert "far groups" in page.text("#map .hint")


# ---- the page as a whole ----


@pytest.mark.exhaustive
def test_a_slider_over_models_keeps_head_and_token(show: Open) -> None:
    page = show(layers=3, heads=4, models=3, texts=2)
    page.click("#overview .head[data-layer='1'][data-head='2']")
    page.click("#text .token", 4)
    kind = page.page.locator("#overview .head[aria-selected]").get_attribute("data-kind")
    page.page.get_by_label("model", exact=True).fill("2")
    page.settle()
    assert page.text("#models .chosen b") == "step 1000"
    chosen = page.page.locator("#overview .head[aria-selected]")
    assert [chosen.get_attribute(f"data-{key}") for key in ("layer", "head")] == ["1", "2"]
    assert chosen.get_attribute("data-kind") == KINDS[(KINDS.index(str(kind)) + 2) % 8]
    assert page.text("#text .token[aria-selected]") == "on"
    page.click("#bar .segments button", 1)
    assert "table" in page.texts("#text .token")


def test_an_encoder_decoder_has_two_sides(show: Open) -> None:
    held = figures(texts=1)
    held["readings"] = [translated(held["readings"][0]["tokens"], 2, 2)]
    page = show(held)
    assert page.page.locator("#text .running").count() == 2
    page.click("#overview .segments button", 2)
    assert page.texts("#attention .lines-list.rows li") == [token["shown"] for token in token_list(8)[1:]]
    assert page.texts("#attention .lines-list.columns li") == names()
    assert page.page.locator("#attention .segments button").count() == 2, "no rollout of cross-attention"
    page.page.locator("#text .running").nth(1).locator(".token").nth(2).click()
    page.settle()
    assert page.text("#predictions .wide-head").startswith("After sat, the true next token is on")
    assert page.page.locator("#masked").is_hidden()


def test_what_a_model_does_not_have_is_not_there(show: Open) -> None:
    held = figures()
    held["readings"][0] |= {
        "attentions": [],
        "predictions": None,
        "masked": None,
        "attributions": [],
        "neighbours": None,
    }
    held["map"] = None
    held["readings"][0]["notes"] = ["An LSTM has no attention."]
    page = show(held)
    assert page.texts("section:not([hidden]) h2") == ["The text"]
    assert page.text("#notes") == "An LSTM has no attention."


def test_hostile_text_is_shown_and_does_not_run(show: Open) -> None:
    page = show(size=20, hostile=True, texts=2)
    shown = page.texts("#text .token")
    for text in (
        "<script>alert(1)</script>",
        "</script>",
        "🙂",
        "مرحبا",
        "שלום",
        "<img src=x onerror=alert(1)>",
        "&amp;",
    ):
        assert text in shown
    assert page.page.locator("img").count() == 0
    assert page.page.locator("script").count() == 2
    page.click("#text .token", 1)
    assert page.text("#masked .wide-head") == "With <script>alert(1)</script> hidden"


def test_tab_stops_are_few(show: Open) -> None:
    page = show(size=64, layers=12, heads=12)
    stops = page.page.evaluate(
        "[...document.querySelectorAll('button, input, select, [tabindex]')]"
        ".filter((one) => one.tabIndex >= 0 && one.checkVisibility()).length"
    )
    assert stops < 60
    page.page.locator("#text .token[tabindex='0']").focus()
    page.press("ArrowRight", "ArrowRight")
    assert "token 11 of 64" in page.text("#text .reading")


def test_dark_and_light_are_drawn_anew(show: Open) -> None:
    page = show()
    spot = page.point("#attention", "sat → [CLS]")
    light = page.pixel("#attention .heat-cells", *spot)
    page.click(".theme")
    assert page.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 24, 27)"
    assert sum(page.pixel("#attention .heat-cells", *spot)[:3]) < 200 < sum(light[:3])
    page.click(".theme")
    assert page.pixel("#attention .heat-cells", *spot) == light


@pytest.mark.exhaustive(suite=1)
@pytest.mark.parametrize("width", [380, 900, 1440])
def test_the_page_is_as_wide_as_its_window(show: Open, width: int) -> None:
    page = show(width=width, size=64, layers=12, heads=12, texts=2, hostile=True)
    assert page.page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.exhaustive
def test_512_tokens_paint_within_a_second_and_hover_within_a_frame(show: Open) -> None:
    slowness = max(1.0, pace() / 0.1)  # a slow machine may take as much longer
    page = show(size=512, layers=12, heads=12)
    first = page.page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    assert first < 1000 * slowness
    page.page.locator("#attention").scroll_into_view_if_needed()
    page.settle()
    hover = """([selector, type, across]) => {
      const found = [...document.querySelectorAll(selector)];
      return Array.from({ length: 21 }, (_, step) => {
        const target = found[(step * 37) % found.length];
        const box = target.getBoundingClientRect(); // before: the layout of the last step is not this one's
        const place = across ? { clientX: box.left + 40 + step * 17, clientY: box.top + 40 + step * 19 } : {};
        const began = performance.now();
        target.dispatchEvent(new PointerEvent(type, { bubbles: true, ...place }));
        return performance.now() - began;
      });
    }"""
    for selector, kind, across in (
        ("#text .token", "pointerover", False),
        ("#attention .lines-list li", "pointerover", False),
        ("#attention .heat-scroll", "pointermove", True),
        ("#overview .head", "pointerover", False),
    ):
        taken = statistics.median(page.page.evaluate(hover, [selector, kind, across]))
        assert taken < 16 * slowness, (selector, taken)
