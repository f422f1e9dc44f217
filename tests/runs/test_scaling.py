"""The model of training on many GPUs: what it must give in cases that can be computed by hand."""

import re
from itertools import pairwise

import pytest
from typer.testing import CliRunner

from bertsmith.cli import app
from bertsmith.runs import scaling


def test_one_gpu_is_as_fast_as_it_was_measured() -> None:
    done = CliRunner().invoke(app, ["check", "bert-base", "--gpus", "1"], catch_exceptions=False)
    speed = re.search(r"about ([\d,]+) tokens/s; GPUs compute 100% of the time", done.output)
    assert speed is not None, done.output
    assert int(speed[1].replace(",", "")) == pytest.approx(871_000, rel=0.03)
    assert "network" not in done.output


def test_a_single_gpu_sends_nothing() -> None:
    assert scaling.sum_seconds(1e9, 1) == 0


def test_a_ring_sends_nearly_twice_the_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "LATENCY", 0.0)
    assert scaling.sum_seconds(3.6e11, 8) == pytest.approx(2 * 7 / 8)
    # Between two machines each of eight cards sends an eighth, twice the half of it.
    assert scaling.sum_seconds(3.6e11, 16) - scaling.sum_seconds(3.6e11, 8) == pytest.approx(3.6e11 / 8 / 4.0e10)


def test_more_gpus_are_faster_and_less_efficient() -> None:
    def plan(gpus: int) -> scaling.Plan:
        return scaling.plan(gpus, scaling.GPUS["h200"], tokens=2**20, flops_per_token=1e9, parameters=10**8)

    plans = [plan(2**level) for level in range(8)]
    assert all(later.tokens_per_second > earlier.tokens_per_second for earlier, later in pairwise(plans))
    assert all(later.efficiency < earlier.efficiency for earlier, later in pairwise(plans))


def test_the_network_that_is_needed_takes_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "LATENCY", 0.0)
    ask = {"tokens": 2**20, "flops_per_token": 1e9, "parameters": 10**8}
    needed = scaling.plan(8, scaling.GPUS["h200"], **ask).network_needed(10**8)
    monkeypatch.setattr(scaling, "WITHIN_NODE", needed)
    assert scaling.plan(8, scaling.GPUS["h200"], **ask).efficiency == pytest.approx(1 - scaling.MAX_NETWORK_SHARE)


def test_a_backward_pass_hides_all_but_the_last_bucket_or_as_much_as_it_is_long() -> None:
    def plan(tokens: float, *, overlapped: bool, micro_batches: int = 1, sharded: bool = False) -> scaling.Plan:
        ask = {"tokens": tokens, "flops_per_token": 1e9, "parameters": 10**9, "micro_batches": micro_batches}
        return scaling.plan(8, scaling.GPUS["h200"], overlapped=overlapped, sharded=sharded, **ask)

    long, short = 2**24, 2**12
    network, last = scaling.sum_seconds(4e9, 8), scaling.sum_seconds(scaling.BUCKET_BYTES, 8)
    assert plan(long, overlapped=False).hidden_seconds == 0
    assert plan(long, overlapped=True).hidden_seconds == pytest.approx(network - last)
    half = plan(long, overlapped=True, sharded=True)  # new weights are the other half, and are sent after the step
    assert half.hidden_seconds == pytest.approx((network - last) / 2)
    hidden = plan(short, overlapped=True)
    assert hidden.hidden_seconds == pytest.approx(hidden.compute_seconds * 2 / 3)
    assert hidden.seconds == pytest.approx(hidden.compute_seconds / 3 + network + hidden.optimizer_seconds)
    assert plan(short, overlapped=True, micro_batches=4).hidden_seconds == pytest.approx(hidden.hidden_seconds / 4)


def test_a_divided_optimizer_takes_its_share_of_the_time() -> None:
    ask = {"tokens": 2**17, "flops_per_token": 5e8, "parameters": 10**8}
    whole, part = (scaling.plan(8, scaling.GPUS["h200"], sharded=sharded, **ask) for sharded in (False, True))
    assert whole.optimizer_seconds == 8 * part.optimizer_seconds == pytest.approx(1e8 * scaling.ADAMW)
    assert whole.network_seconds == part.network_seconds
    muon = scaling.plan(8, scaling.GPUS["h200"], sharded=False, muon_parameters=10**8, **ask)
    assert muon.optimizer_seconds == pytest.approx(1e8 * scaling.MUON)


def test_a_step_that_is_not_compiled_sends_during_its_backward_pass() -> None:
    speeds = list[int]()
    for change in ("train.compile=auto", "train.compile=never", "train.precision=float32", "train.deterministic=true"):
        done = CliRunner().invoke(app, ["check", "bert-base", "--gpus", "8", change], catch_exceptions=False)
        found = re.search(r"about ([\d,]+) tokens/s", done.output)
        assert found is not None, done.output
        speeds.append(int(found[1].replace(",", "")))
    assert speeds[0] == speeds[3] < speeds[1] == speeds[2]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--gpus", "4096"], "gpus: 4096 have too little to do: an update of 131,072 tokens is enough for 128."),
        (["--gpus", "8", "--gpu", "h300"], "gpu: unknown kind 'h300'. Did you mean 'h100'?"),
    ],
)
def test_what_cannot_be_planned_is_refused(options: list[str], line: str) -> None:
    done = CliRunner().invoke(app, ["check", "bert-base", *options])
    assert done.exit_code == 1
    assert line in str(done.exception)
