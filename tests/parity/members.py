"""The assertions of parity for members with heads of one kind each: masked words and every task, both ways."""

from pathlib import Path
from typing import Any

import torch
import transformers
from parity.parity import MOST, difference
from tasks.small import CASES, LENGTH, stirred
from torch import Tensor, nn

from bertsmith.data.batch import Tokens
from bertsmith.data.rows import pack_rows
from bertsmith.inference.load import load
from bertsmith.models.hf import convert
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf.finetuned import FinetunedTask
from bertsmith.models.hf.layouts import layout_of
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.objectives.masked import MaskedLM
from bertsmith.tasks.base import Task
from bertsmith.text.tokenizer import Tokenizer

KINDS = {
    "class": "classify",
    "number": "classify",
    "labels": "classify",
    "tag": "tag",
    "answer": "answer",
    "choose": "choose",
}
PROBLEMS = {"class": "single_label", "number": "regression", "labels": "multi_label"}
ROWS = [[7, 8, 9], list(range(5, 65)), [5], [9, 8, 7, 6] * 5]


def padded(rows: list[list[int]], padding: int, segments: list[list[int]] | None = None) -> dict[str, Tensor]:
    def filled(lists: list[list[int]], value: int = 0) -> Tensor:
        return nn.utils.rnn.pad_sequence([torch.tensor(one) for one in lists], batch_first=True, padding_value=value)

    inputs = {"input_ids": filled(rows, padding), "attention_mask": filled([[1] * len(row) for row in rows])}
    return inputs if segments is None else {**inputs, "token_type_ids": filled(segments)}


@torch.no_grad()
def assert_masked_words(config: TransformerConfig, folder: Path) -> None:
    """Random weights of transformers, opened here and written back, guess the same all the way."""
    words = convert.to_config_json(config, ("mlm_head",))
    model = getattr(transformers, layout_of(config).architectures["masked_lm"])
    reference = stirred(model(transformers.CONFIG_MAPPING[words["model_type"]](**words)))
    reference.save_pretrained(folder / "theirs")
    opened = folders.read(folder / "theirs")
    assert opened.config == config
    assert opened.parts == {"mlm_head"}
    ours = MaskedLM(Transformer(config), MaskedLM.Config(pairs="none")).eval()
    ours.load_state_dict(opened.state_dict)
    assert sum(part.numel() for part in ours.parameters()) == sum(part.numel() for part in reference.parameters())
    inputs = padded(ROWS, words["pad_token_id"])
    said = reference(**inputs, output_hidden_states=True)
    states = ours.trunk.hidden_states(Tokens.from_rows(ROWS))
    for number, row in enumerate(ROWS):
        start = sum(map(len, ROWS[:number]))
        for own, theirs in zip(states[:-1], said.hidden_states[:-1], strict=True):
            assert difference([own[start : start + len(row)]], [theirs[number, : len(row)]]) <= MOST
        logits = ours.logits(states[-1][start : start + len(row)])
        assert difference([logits], [said.logits[number, : len(row)]]) <= MOST
        assert logits.abs().max() > 0.1
    folders.write(folder / "ours", config, ours.state_dict())
    again, report = transformers.AutoModelForMaskedLM.from_pretrained(folder / "ours", output_loading_info=True)
    assert not any(report.values()), report
    assert difference([again.eval()(**inputs).logits], [said.logits]) <= MOST


@torch.no_grad()
def assert_task(name: str, config: TransformerConfig, tokenizer: Tokenizer, folder: Path, **pooled: Any) -> None:
    """A task of ours, opened by transformers and saved by it, answers the same; `pooled` changes its settings."""
    case, dialect = CASES[name], layout_of(config)
    task: Task = stirred(case.make(Transformer(config)))
    if pooled:
        task.config = type(task.config)(**pooled)
    problem = PROBLEMS.get(name, "single_label")
    learnt = FinetunedTask(task=KINDS[name], labels=task.labels, problem=problem, **pooled)
    extra = tokenizer.special_ids(dialect.special_tokens)
    folders.write(folder / "ours", task.trunk.config, task.state_dict(), extra, finetuned=learnt)
    named = dialect.architectures[KINDS[name]]
    model, report = getattr(transformers, named).from_pretrained(folder / "ours", output_loading_info=True)
    assert not any(report.values()), report
    items = task.preprocess(case.examples, tokenizer, LENGTH)
    rows = [row for item in items for row in item.rows]
    segments = [row.segments.tolist() for row in rows] if config.segments > 1 else None
    inputs = padded([row.ids.tolist() for row in rows], tokenizer.padding_id, segments)
    if name == "choose":
        inputs = {word: part.unflatten(0, (len(items), -1)) for word, part in inputs.items()}
    said = model.eval()(**inputs)
    theirs = torch.stack([said.start_logits, said.end_logits], -1) if name == "answer" else said.logits
    theirs = theirs.flatten() if name == "choose" else theirs
    own = task.outputs(pack_rows(rows))
    wanted = [one[: len(row)] if one.ndim > 1 else one for one, row in zip(theirs, rows, strict=True)]
    assert difference(own, wanted) <= MOST
    model.save_pretrained(folder / "theirs")
    tokenizer.save(folder / "theirs")
    again = load(folder / "theirs").objective
    assert type(again) is type(task)
    assert again.labels == (() if name == "choose" else task.labels)
    assert difference(again.outputs(pack_rows(rows)), own) <= MOST
