"""What of a loss is felt in the states before it: the same as in torch's own, and vanishing where it must."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bertsmith.errors import RunError
from bertsmith.insight import gradient_flow, png
from bertsmith.models.recurrent import Recurrent, RecurrentConfig
from bertsmith.nn.init import initialise
from bertsmith.nn.rnn.cells import Cell

SMALL = RecurrentConfig(vocabulary=30, width=16, layers=1, tie_embeddings=True)


def small(**changes: Any) -> Recurrent:
    trunk = Recurrent(replace(SMALL, **changes))
    initialise(trunk, 0, 0.5)
    return trunk


def texts(length: int = 24) -> Tensor:
    return torch.randint(0, 30, (6, length), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("layers", [1, 2])
def test_what_is_felt_is_the_gradient_at_a_state(cell: Cell, layers: int) -> None:
    """As found by torch's own layers, which are given the state and read on from it."""
    trunk, read = small(cell=cell, layers=layers).double(), texts(8)
    found, lengths = gradient_flow.gradient_norms(trunk, read), []
    for back in (0, 1, 5):
        _, state = trunk.stack(trunk.embedding(read[:, : 7 - back]))
        state = state.detach().requires_grad_()
        if back:
            vectors = trunk.stack(trunk.embedding(read[:, 7 - back : 7]), state)[0][:, -1]
        else:
            parts = state.split(trunk.stack.sizes, 1)
            vectors = parts[-2] if cell == "lstm" else parts[-1]
        loss = F.cross_entropy(trunk.logits(vectors), read[:, 7], reduction="sum")
        (gradient,) = torch.autograd.grad(loss, [state])
        lengths.append(float(gradient.norm(dim=1).mean()))
    assert [found[0], found[1], found[5]] == pytest.approx([length / lengths[0] for length in lengths])


def test_it_vanishes_in_a_plain_network_and_not_in_an_lstm_that_forgets_nothing() -> None:
    plain, gated = small(cell="rnn"), small(cell="lstm")
    with torch.no_grad():
        gated.stack.layers[0].bias_ih_l0[16:32] = 20.0  # the forget gate stays open
    vanished, kept = (gradient_flow.gradient_norms(trunk, texts(42))[40] for trunk in (plain, gated))
    assert vanished < 1e-4
    assert kept > 0.1


def test_the_network_itself_is_left_as_it_was() -> None:
    trunk = small().train()
    gradient_flow.gradient_norms(trunk, texts())
    assert trunk.training
    assert trunk.embedding.weight.dtype == torch.float32
    assert trunk.embedding.weight.grad is None


def test_curves_stand_in_one_chart_by_orders_of_magnitude() -> None:
    told = gradient_flow.section({"rnn": [1.0, 1e-3, 0.0], "a <b>": [1.0, 0.5, 0.4]})
    assert "<svg" in told
    assert "tokens back" in told
    assert "a &lt;b&gt;" in told
    assert told.count("<path") == 2


def test_a_png_without_matplotlib_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(png, "import_module", missing)
    with pytest.raises(RunError) as caught:
        gradient_flow.draw(Path("time.png"), {"rnn": [1.0, 0.5]})
    remedy = "Install it with: pip install matplotlib; or leave --png out: the page needs nothing."
    assert str(caught.value) == f"time.png: needs matplotlib. {remedy}"


def test_a_png_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    gradient_flow.draw(tmp_path / "time.png", {"rnn": [1.0, 0.0], "lstm": [1.0, 0.5]})
    assert (tmp_path / "time.png").read_bytes().startswith(b"\x89PNG")
