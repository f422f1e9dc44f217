"""A graph compared with its network: predictions by what tells texts apart, vectors by their directions."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from inference.test_onnx import finetuned
from tasks.small import shape, stirred, tokenizer
from torch import Tensor

from bertsmith.data.batch import Tokens
from bertsmith.inference.load import load_text_model
from bertsmith.inference.onnx_comparison import Sums, compare
from bertsmith.models.hf import folder as folders
from bertsmith.models.transformer import Transformer


def noisy(seed: int, rows: int, columns: int, deviation: float) -> Tensor:
    dice = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, generator=dice, dtype=torch.float64) * deviation


def test_an_offset_that_all_predictions_share_does_not_make_them_alike() -> None:
    ours = 4 + noisy(0, 24, 1, 0.013)
    theirs = ours + noisy(1, 24, 1, 0.034)
    wanted = torch.corrcoef(torch.cat([ours, theirs], 1).T)[0, 1]
    parts = [Sums.of(ours[some], theirs[some]) for some in (slice(0, 5), slice(5, 24))]
    assert (parts[0] + parts[1]).correlation() == pytest.approx(float(wanted), abs=1e-9)
    assert abs(wanted) < 0.9
    assert Sums.of(ours, theirs).cosine() > 0.9999


def test_predictions_that_do_not_differ_have_a_plain_cosine() -> None:
    same = torch.full((24, 2), 3.0, dtype=torch.float64)
    assert Sums.of(same, same + noisy(0, 24, 2, 1e-3)).correlation() == pytest.approx(1, abs=1e-6)
    assert Sums.of(same[:1], -same[:1]).correlation() == pytest.approx(-1)
    assert Sums.of(same * 0, same * 0).correlation() == 1
    assert Sums.of(same * 0, same).correlation() == 0
    assert Sums.of(noisy(0, 24, 2, 1), same).correlation() == 0


@pytest.mark.parametrize("name", ["number", "class"])
def test_a_model_whose_outputs_are_an_offset_and_noise_is_not_its_graph(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = finetuned(tmp_path / "model", name)
    ours, theirs = load_text_model(folder, device="cpu"), load_text_model(folder, device="cpu")
    outputs, offset = ours.task_outputs, torch.arange(3.0) if name == "class" else 4.0

    def drawn(tokens: Tokens) -> list[Tensor]:
        return [offset * 100 + part for part in outputs(tokens)]

    def noise(tokens: Tokens) -> list[Tensor]:
        return [part + torch.randn(len(part)) for part in drawn(tokens)]

    def shifted(tokens: Tokens) -> list[Tensor]:
        return [part + torch.randn(1) for part in drawn(tokens)]

    torch.manual_seed(0)
    monkeypatch.setattr(ours, "task_outputs", drawn)
    monkeypatch.setattr(theirs, "task_outputs", noise)
    assert compare(ours, theirs).cosine < 0.9
    monkeypatch.setattr(theirs, "task_outputs", drawn)
    assert compare(ours, theirs).cosine == pytest.approx(1)
    monkeypatch.setattr(theirs, "task_outputs", shifted)  # a softmax does not see what all classes share
    assert (compare(ours, theirs).cosine > 0.999) == (name == "class")


def test_vectors_are_compared_one_by_one_by_their_directions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = stirred(Transformer(shape())).state_dict()
    folders.write(tmp_path, shape(), {f"trunk.{name}": weight for name, weight in state.items()})
    tokenizer().save(tmp_path)
    ours, theirs = load_text_model(tmp_path, device="cpu"), load_text_model(tmp_path, device="cpu")
    trunk, vectors = theirs.trunk.forward, list[Tensor]()

    def noise(tokens: Tokens) -> Tensor:
        vectors.append(trunk(tokens))
        noisy = vectors[-1] + 0.5 * torch.randn_like(vectors[-1])
        return noisy * torch.linspace(1, 100, len(noisy))[:, None]  # a length is no direction

    torch.manual_seed(0)
    monkeypatch.setattr(theirs.trunk, "forward", noise)
    found = compare(ours, theirs).cosine
    assert 0.5 < found < 0.95
    plain = torch.cat(vectors)
    direct = F.cosine_similarity(plain, plain + 0.5 * torch.randn_like(plain)).mean()
    assert found == pytest.approx(float(direct), abs=0.02)
