"""`inspect`: gradient flow and cells of recurrent networks."""

from dataclasses import replace
from pathlib import Path

import pytest
from tiny import write_text

from bertsmith.commands import inspect
from bertsmith.errors import FolderError, TextError
from bertsmith.insight import cells, gradient_flow
from bertsmith.models.family import BERT_TINY
from bertsmith.models.hf import folder as folders
from bertsmith.models.networks import build_network
from bertsmith.models.recurrent import Recurrent, RecurrentConfig
from bertsmith.nn.init import initialise
from bertsmith.nn.rnn.cells import Cell
from bertsmith.text.tokenizer import TokenizerConfig, train


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text, an untrained LSTM and an untrained plain RNN."""
    folder = tmp_path_factory.mktemp("look")
    tokenizer = train(write_text(folder / "text.txt", 12).read_text().split("\n"), TokenizerConfig(kind="words"))
    kinds: list[Cell] = ["rnn", "lstm"]
    for cell in kinds:
        config = RecurrentConfig(cell=cell, vocabulary=tokenizer.vocabulary, width=16, layers=1, tie_embeddings=True)
        trunk = Recurrent(config)
        initialise(trunk, 0, 0.5)
        folders.write(folder / cell / "model", config, trunk.state_dict(prefix="trunk."))
        tokenizer.save(folder / cell / "model")
    return folder


def test_networks_are_compared_on_one_page(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = place / "deep" / "page.html"
    inspect.inspect([place / "rnn" / "model", place / "lstm" / "model"], place / "text.txt", out)
    page = out.read_text(encoding="utf-8")
    for heading in ("Gradient flow through time", "Cells of rnn", "Cells of lstm", "letters of the last word"):
        assert heading in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")
    printed = capsys.readouterr().out
    assert "of the gradient reaches 16 tokens back" in printed
    assert f"written {out}" in printed


def test_pngs_are_written_next_to_the_page(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Path] = []
    monkeypatch.setattr(gradient_flow, "draw", lambda path, *_: drawn.append(path))
    monkeypatch.setattr(cells, "draw", lambda path, *_: drawn.append(path))
    inspect.inspect([place / "lstm" / "model"], place / "text.txt", place / "page.html", pictures=True)
    assert drawn == [place / "page-time.png", place / "page-cells-lstm.png"]


def test_short_texts_and_other_networks_are_refused_in_one_line(place: Path, tmp_path: Path) -> None:
    (tmp_path / "few.txt").write_text("a few words\n")
    with pytest.raises(TextError, match=r"few.txt: has fewer than 16 words. Give it a page of text."):
        inspect.inspect([place / "lstm" / "model"], tmp_path / "few.txt", tmp_path / "page.html")
    shape = replace(BERT_TINY, vocabulary=60, width=8, heads=2, layers=1, feed_forward=8)
    folders.write(tmp_path / "bert", shape, build_network(shape).state_dict(prefix="trunk."))
    train(["some words here"], TokenizerConfig(vocabulary=100, min_frequency=1)).save(tmp_path / "bert")
    with pytest.raises(FolderError) as caught:
        inspect.inspect([tmp_path / "bert"], place / "text.txt", tmp_path / "page.html")
    fact = "is not a recurrent network. Use one such as lstm-small."
    assert str(caught.value) == f"{tmp_path / 'bert'}: {fact}"
