"""ModernBERT's network, with full attention in every layer, against transformers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from parity.parity import MOST, difference
from tasks.small import CASES, LENGTH, shape, stirred, tokenizer
from torch import Tensor, nn

from bertsmith.data.batch import Tokens
from bertsmith.data.rows import lay
from bertsmith.models import folder as folders
from bertsmith.models import foreign
from bertsmith.models.dialect import MODERN
from bertsmith.models.foreign import Learnt
from bertsmith.models.transformer import Transformer, TransformerConfig
from bertsmith.nn.pooling import Pooling
from bertsmith.objectives.masked import MaskedLM
from bertsmith.tasks.base import Task
from bertsmith.use.load import load

NAMES = ("norm", "gated", "biases", "positions", "segments", "rotary_base", "norm_eps", "dropout", "attention_dropout")
NEW: dict[str, Any] = {name: getattr(MODERN.standard, name) for name in NAMES}
KINDS = {
    "class": "classify",
    "number": "classify",
    "labels": "classify",
    "tag": "tag",
    "answer": "answer",
    "choose": "choose",
}
ROWS = [[7, 8, 9], list(range(1, 61)), [5], [9, 8, 7, 6] * 5]


def modern(**changes: Any) -> TransformerConfig:
    return shape(**{**NEW, **changes})


def padded(rows: list[list[int]]) -> dict[str, Tensor]:
    ids = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
    mask = nn.utils.rnn.pad_sequence([torch.ones(len(row), dtype=torch.long) for row in rows], batch_first=True)
    return {"input_ids": ids, "attention_mask": mask}


@torch.no_grad()
@pytest.mark.parametrize("biases", [False, True])
def test_masked_words_both_ways(biases: bool, tmp_path: Path) -> None:
    config = modern(biases=biases, rotary_base=500.0)
    words = foreign.words_of(config, ("head",))
    reference = stirred(transformers.ModernBertForMaskedLM(transformers.ModernBertConfig(**words)))
    reference.save_pretrained(tmp_path / "theirs")
    opened = folders.read(tmp_path / "theirs")
    assert opened.config == config
    assert opened.parts == {"head"}
    ours = MaskedLM(Transformer(config), MaskedLM.Config(pairs="none")).eval()
    ours.load_state_dict(opened.state)
    assert sum(part.numel() for part in ours.parameters()) == sum(part.numel() for part in reference.parameters())
    said = reference(**padded(ROWS), output_hidden_states=True)
    states = ours.trunk.states(Tokens.of(ROWS))
    for number, row in enumerate(ROWS):
        start = sum(map(len, ROWS[:number]))
        for own, theirs in zip(states[:-1], said.hidden_states[:-1], strict=True):
            assert difference([own[start : start + len(row)]], [theirs[number, : len(row)]]) <= MOST
        logits = ours.logits(states[-1][start : start + len(row)])
        assert difference([logits], [said.logits[number, : len(row)]]) <= MOST
        assert logits.abs().max() > 0.1
    folders.write(tmp_path / "ours", config, ours.state_dict())
    again, report = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    assert difference([again.eval()(**padded(ROWS)).logits], [said.logits]) <= MOST


@torch.no_grad()
@pytest.mark.parametrize("name", KINDS)
def test_tasks_both_ways(name: str, tmp_path: Path) -> None:
    case = CASES["class" if name == "mean" else name]
    task: Task = stirred(case.make(Transformer(modern())))
    pooling: Pooling = "mean" if name == "mean" else "first"
    if pooling == "mean":
        task.config = replace(task.config, pooling=pooling)
    answer = name if name in ("number", "labels") else "class"
    learnt = Learnt(task=KINDS[name], labels=task.labels, answer=answer, pooling=pooling)
    folders.write(tmp_path / "ours", task.trunk.config, task.state_dict(), learnt=learnt)
    named = MODERN.classes[KINDS[name]]
    model, report = getattr(transformers, named).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    items = task.items(case.examples, tokenizer(), LENGTH)
    rows = [row for item in items for row in item.rows]
    inputs = padded([row.ids.tolist() for row in rows])
    if name == "choose":
        inputs = {word: part.unflatten(0, (len(items), -1)) for word, part in inputs.items()}
    said = model.eval()(**inputs)
    theirs = torch.stack([said.start_logits, said.end_logits], -1) if name == "answer" else said.logits
    theirs = theirs.flatten() if name == "choose" else theirs
    own = task.outputs(lay(rows))
    wanted = [one[: len(row)] if one.ndim > 1 else one for one, row in zip(theirs, rows, strict=True)]
    assert difference(own, wanted) <= MOST
    model.save_pretrained(tmp_path / "theirs")
    tokenizer().save(tmp_path / "theirs")
    again = load(tmp_path / "theirs").objective
    assert type(again) is type(task)
    assert again.labels == (() if name == "choose" else task.labels)
    assert difference(again.outputs(lay(rows)), own) <= MOST


def test_the_published_size_counts_as_many_parameters_as_in_transformers() -> None:
    with torch.device("meta"):
        reference = transformers.ModernBertModel(transformers.ModernBertConfig())
    assert MODERN.standard.count == sum(part.numel() for part in reference.parameters())


@pytest.mark.parametrize("changes", [{}, {"biases": True}, {"layers": 1}])
def test_a_network_counts_its_own_parameters(changes: dict[str, Any]) -> None:
    config = modern(**changes)
    assert config.count == sum(part.numel() for part in Transformer(config).parameters())


def test_only_distances_tell() -> None:
    trunk = stirred(Transformer(modern()))
    rows = Tokens.of([[5, 6, 7, 8]])
    moved = replace(rows, positions=rows.positions + 20)
    torch.testing.assert_close(trunk(moved), trunk(rows), rtol=0, atol=1e-4)
    assert not torch.allclose(trunk(replace(rows, positions=rows.positions * 3)), trunk(rows), atol=1e-2)
