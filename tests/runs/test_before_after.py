"""The verdict on a continued model: by its own text, by general text, and by the noise of both."""

from pathlib import Path

import pytest

from bertsmith.insight import before_after as section
from bertsmith.runs import before_after
from bertsmith.runs.before_after import BeforeAfter, Change, Measurement, Probe, spread

Pair = tuple[float, float]  # before and after
SIZES = [10, 20, 30, 40] * 5


def measurement(domain: float, general: float | None, noise: float = 0.0) -> Measurement:
    def passages(value: float) -> list[tuple[float, int]]:
        return [(value * size + noise * (-1) ** number * size, size) for number, size in enumerate(SIZES)]

    return Measurement(domain=passages(domain), general=[] if general is None else passages(general))


def both(domain: Pair, general: Pair | None, noise: float = 0.0, gain: float = 1.0) -> BeforeAfter:
    first = measurement(domain[0], general[0] if general else None)
    last = measurement(domain[1], general[1] if general else None, noise)
    return BeforeAfter("minilm", first, last, gain)


def verdict(domain: Pair, general: Pair | None, noise: float = 0.0, gain: float = 1.0) -> str:
    return both(domain, general, noise, gain).verdict


@pytest.mark.parametrize(
    ("domain", "general", "line"),
    [
        ((2.0, 1.5), (2.0, 2.0), "The model has learnt your text: 2.000 bits per byte before and 1.500 after"),
        ((2.0, 1.5), (2.0, 2.0), "On general text it has lost nothing: 2.000 before and 2.000 after."),
        ((2.0, 1.5), (2.0, 1.9), "On general text it has lost nothing: 2.000 before and 1.900 after."),
        ((2.0, 1.5), (2.0, 2.1), "On general text it has lost a little: 2.000 before and 2.100 after."),
        ((2.0, 1.5), (2.0, 2.6), "On general text it has lost more than that: 2.000 before and 2.600 after."),
        ((2.0, 1.5), (2.0, 2.6), "Use it for texts like yours only, and minilm for others."),
        ((2.0, 1.5), None, "How much general text it has forgotten was not measured: name one"),
        ((2.0, 2.5), (2.0, 2.0), "Do not use this model: on text like yours it is worse than minilm (2.000 bits"),
        ((2.0, 2.0), (2.0, 1.0), "Do not use this model: on text like yours it is no better than minilm"),
        ((2.0, 1.997), None, "Do not use this model: on text like yours it is no better than minilm"),
    ],
)
def test_a_verdict_says_whether_to_use_the_model(domain: Pair, general: Pair | None, line: str) -> None:
    assert line in verdict(domain, general)


def test_a_gain_within_the_noise_is_none() -> None:
    assert verdict((2.0, 1.9), None).startswith("The model has learnt")
    assert verdict((2.0, 1.9), None, noise=1.0).startswith("Do not use this model: on text like yours it is no better")


def test_a_model_no_better_than_word_frequency_is_not_to_be_used_yet() -> None:
    assert verdict((4.0, 3.0), None, gain=0.1).startswith("Do not use this model yet: it is better on your text than")


def test_the_standard_error_is_that_of_paired_passages() -> None:
    assert Change.of([(20.0, 10)] * 8, [(15.0, 10)] * 8) == Change(2.0, 1.5, 0.0)
    before, after = [(20.0, 10)] * 8, [(15.0, 10), (17.0, 10)] * 4
    change = Change.of(before, after)
    assert (change.before, change.after) == (2.0, 1.6)
    assert change.error == pytest.approx((8 * 1.0) ** 0.5 / 80)  # the deviation of the differences is 1 bit


def test_a_measurement_survives_in_the_folder_and_a_damaged_one_is_made_again(tmp_path: Path) -> None:
    probe = Probe(domain=["a b"], general=[], sentences=["c"], words=["d"])
    first = Measurement(domain=[(1.5, 3)], general=[], neighbours={"d": ["c"]}, generations=["text"])
    assert before_after.load(tmp_path) is None
    before_after.save(tmp_path, probe, first, 2.5)
    assert before_after.load(tmp_path) == (probe, first, 2.5)
    for damage in ("{", '{"probe": {}, "before": {}, "seconds": 1}', '{"probe": {"x": 1}}', "[]"):
        (tmp_path / before_after.BEFORE).write_text(damage)
        assert before_after.load(tmp_path) is None, damage


def test_items_are_spread_in_runs() -> None:
    found = spread(range(1_000), 100)
    assert len(found) == 100
    assert found[:20] == list(range(20))
    assert found[-1] == 999
    assert spread([1, 2], 100) == [1, 2]


def test_the_section_escapes_what_comes_from_outside() -> None:
    page = section.html([("<b>", "1", "2")], [("<i>", ["<u>"], ["x", "y"])], ["<s>"])
    assert not {"<b>", "<i>", "<u>", "<s>"} & set(page.replace(">", "> ").split())
    assert "<td>x, y</td>" in page


def test_what_a_continued_model_is_for_agrees_with_its_verdict() -> None:
    for domain, general, use in (
        ((4.0, 3.0), (2.0, 2.1), "All that minilm is used for, on texts like yours."),
        ((4.0, 3.0), (2.0, 3.5), "All that minilm is used for, on texts like yours. For other texts minilm is better."),
        ((4.0, 4.5), (2.0, 2.0), "Nothing yet: keep minilm."),
    ):
        found = both(domain, general)
        assert found.good_for == use
        assert found.usable != found.verdict.startswith("Do not use")
    assert not both((4.0, 3.0), None, gain=0.1).usable
