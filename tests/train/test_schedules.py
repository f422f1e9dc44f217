"""Properties of schedules: between zero and one, continuous, zero at the end, one on the plateau."""

import math
from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith import config
from bertsmith.errors import RecipeError
from bertsmith.train.schedules import ScheduleConfig, learning_rate_factor

SHARES = st.floats(0, 1)


@st.composite
def schedules(draw: st.DrawFn) -> ScheduleConfig:
    warmup = draw(st.one_of(st.just(0.0), st.floats(1e-3, 0.99)))
    cooldown = draw(st.floats(1e-3, 1 - warmup))
    kind = draw(st.sampled_from(["linear", "trapezoid", "cosine"]))
    return ScheduleConfig(warmup=warmup, kind=kind, cooldown=cooldown)


@settings(deadline=None)
@given(schedule=schedules(), share=SHARES)
def test_a_factor_is_between_zero_and_one(schedule: ScheduleConfig, share: float) -> None:
    assert 0 <= learning_rate_factor(share, schedule) <= 1


@settings(deadline=None)
@given(schedule=schedules())
def test_every_schedule_ends_at_zero_and_starts_there_if_it_has_a_warmup(schedule: ScheduleConfig) -> None:
    assert learning_rate_factor(1.0, schedule) == 0
    assert learning_rate_factor(0.0, schedule) == pytest.approx(0 if schedule.warmup else 1, abs=1e-7)
    assert learning_rate_factor(schedule.warmup, schedule) == pytest.approx(1, abs=1e-7)


@settings(deadline=None)
@given(warmup=st.integers(1, 4_000), step=st.integers(1, 20_000))
def test_an_inverse_root_is_that_of_the_transformer(warmup: int, step: int) -> None:
    """Vaswani et al. 2017, equation 3, but for the factor that makes the highest rate one."""
    schedule = ScheduleConfig(kind="inverse_root", warmup=warmup / 20_000)
    paper = min(step**-0.5, step * warmup**-1.5) * warmup**0.5
    assert learning_rate_factor(step / 20_000, schedule) == pytest.approx(paper)


@settings(deadline=None)
@given(schedule=schedules(), first=SHARES, second=SHARES)
def test_a_schedule_has_no_jump(schedule: ScheduleConfig, first: float, second: float) -> None:
    """How far two factors lie apart is bounded by how far the shares do: by a slope, or a root where a root falls."""
    apart = abs(first - second)
    rise = apart / schedule.warmup if schedule.warmup else 0.0
    fall = {
        "linear": apart / (1 - schedule.warmup),
        "cosine": math.pi / 2 * apart / (1 - schedule.warmup),
        "trapezoid": math.sqrt(apart / schedule.cooldown),
    }[schedule.kind]
    assert abs(learning_rate_factor(first, schedule) - learning_rate_factor(second, schedule)) <= rise + fall + 1e-7


@settings(deadline=None)
@given(schedule=schedules(), first=SHARES, second=SHARES)
def test_a_schedule_rises_and_then_only_falls(schedule: ScheduleConfig, first: float, second: float) -> None:
    early, late = sorted((first, second))
    if late <= schedule.warmup:
        assert learning_rate_factor(early, schedule) <= learning_rate_factor(late, schedule) + 1e-7
    elif early >= schedule.warmup:
        assert learning_rate_factor(early, schedule) >= learning_rate_factor(late, schedule) - 1e-7


@settings(deadline=None)
@given(warmup=st.floats(0, 0.5), cooldown=st.floats(1e-3, 0.5), between=st.floats(0, 1))
def test_a_trapezoid_is_flat_between_its_slopes(warmup: float, cooldown: float, between: float) -> None:
    schedule = ScheduleConfig(kind="trapezoid", warmup=warmup, cooldown=cooldown)
    share = warmup + between * (1 - cooldown - warmup)
    if (1 - share) / cooldown >= 1:  # rounding may put the last of them after the edge
        assert learning_rate_factor(share, schedule) == 1
    else:
        assert learning_rate_factor(share, schedule) == pytest.approx(1, abs=1e-6)


@settings(deadline=None)
@given(warmup=st.floats(0, 0.99), share=SHARES)
def test_linear_decay_is_bit_for_bit_that_of_berts_recipes(warmup: float, share: float) -> None:
    expected = share / warmup if share < warmup else (1 - share) / (1 - warmup)
    assert learning_rate_factor(share, ScheduleConfig(warmup=warmup)) == expected


def test_the_schedules_at_a_few_points() -> None:
    places = (0.0, 0.05, 0.1, 0.55, 0.8, 0.85, 0.95, 1.0)
    trapezoid = ScheduleConfig(kind="trapezoid", warmup=0.1, cooldown=0.2)
    cosine = ScheduleConfig(kind="cosine", warmup=0.1)
    falling = [1 - math.sqrt(0.25), 1 - math.sqrt(0.75)]
    assert [learning_rate_factor(place, trapezoid) for place in places] == pytest.approx(
        [0, 0.5, 1, 1, 1, *falling, 0], abs=1e-7
    )
    assert [learning_rate_factor(place, cosine) for place in places[:4]] == pytest.approx([0, 0.5, 1, 0.5])
    assert learning_rate_factor(0.325, cosine) == pytest.approx(0.5 + math.sqrt(0.5) / 2)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"warmup": 1.5}, "warmup is a share of the run, from 0 to 1, and not 1.5"),
        ({"cooldown": 0.0}, "cooldown is a share of the run, more than 0 and at most 1, and not 0.0"),
        ({"cooldown": 1.1}, "cooldown is a share of the run, more than 0 and at most 1, and not 1.1"),
        (
            {"kind": "trapezoid", "warmup": 0.5, "cooldown": 0.6},
            "warmup 0.5 and cooldown 0.6 are more than the run. Lower one",
        ),
        ({"kind": "square"}, "square"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused_in_one_line(values: dict[str, object], message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        config.build(values, ScheduleConfig, "recipe.toml [schedule]")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_schedules_without_a_cooldown_may_have_a_long_warmup() -> None:
    assert learning_rate_factor(0.9, ScheduleConfig(warmup=0.9)) == pytest.approx(1)
    assert asdict(ScheduleConfig()) == {"warmup": 0.01, "kind": "linear", "cooldown": 0.2}
