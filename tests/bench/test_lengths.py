"""BLEU by length: the groups of sentences, their scores, and the command with two folders."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from bench.script import script
from letters import letters

from bertsmith.metrics.bleu import bleu
from bertsmith.runs import finetuning, task_recipe

script("record")
lengths = script("lengths")
SOURCES = ["a", "a b", "a b c", "a b c d", "a b c d e f"]
GOLD = ["x", "x y z w", "x y z w v", "p q r s", "p q r s t u"]


def test_sentences_are_grouped_by_length_and_none_is_lost() -> None:
    found = lengths.numbers([1, 2, 3, 4, 6, 2], [4, 2])
    assert found == {"1 to 2": [0, 1, 5], "3 to 4": [2, 3], "5 to 6": [4]}
    assert lengths.numbers([3, 3], [2, 9]) == {"3 to 9": [0, 1]}
    assert lengths.numbers([1, 2], [1]) == {"1": [0], "2": [1]}


def test_each_group_is_scored_as_one_corpus() -> None:
    said = {"one": GOLD, "other": [*GOLD[:3], "p q", "p q r s"]}
    groups = lengths.grouped(SOURCES, GOLD, said, [3])
    assert [(group.name, group.sentences, group.words) for group in groups] == [("1 to 3", 3, 2.0), ("4 to 6", 2, 5.0)]
    assert groups[1].bleu == {"one": pytest.approx(100), "other": pytest.approx(bleu(said["other"][3:], GOLD[3:]))}
    assert groups[1].bleu["other"] < groups[0].bleu["other"] == pytest.approx(100)
    page = lengths.results(groups, {"one": 100.0, "other": 60.0}, {})
    assert page.rows[-1] == ["all", "5", "100.0", "60.0"]
    assert "<svg" in page.chart


def test_two_folders_give_a_table_and_a_chart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    data = letters(tmp_path / "data", 40, 12)
    quick = ["train.device=cpu", "train.precision=float32", "train.steps=1", "train.checkpoints=0", "data.batch_size=8"]
    small = [
        "network.width=8",
        "network.hidden=8",
        "network.max_length=16",
        "data.max_length=12",
        "task.max_new_tokens=6",
    ]
    sides = ['data.texts=["src"]', "data.label=tgt", "tokenizer.kind=t5", "tokenizer.vocabulary=200"]
    for name in ("lstm-attention", "seq2seq"):
        how: dict[str, Any] = {"dev": None, "task": None, "seeds": 1, "overrides": [*quick, *small, *sides]}
        finetuning.finetune(task_recipe.build_recipe(Path(name), data, tmp_path / name, **how))
    out = tmp_path / "lengths.json"
    folders = {"attention": "lstm-attention", "plain": "seq2seq"}
    models = [f"{name}={tmp_path / member / 'model'}" for name, member in folders.items()]
    files = ["--source", str(data / "dev.src"), "--reference", str(data / "dev.tgt")]
    asked = [*models, *files, "--edges", "3", "--beams", "2", "--device", "cpu", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["lengths.py", *asked])
    lengths.main()
    found = json.loads(out.read_text())
    assert sum(group["sentences"] for group in found["groups"]) == 12
    assert found["bleu"].keys() == found["groups"][0]["bleu"].keys() == {"attention", "plain"}
    assert "words of the source" in out.with_suffix(".html").read_text()
    assert "attention" in capsys.readouterr().out
