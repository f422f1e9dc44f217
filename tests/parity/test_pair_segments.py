"""The segments of a pair against transformers: a network with two, and a tokenizer that marks no second text."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from parity.parity import MOST
from tasks.small import WORDS
from tokenizers.processors import RobertaProcessing

import bertsmith
from bertsmith.inference.load import load
from bertsmith.insight.inspection.inputs import read_text
from bertsmith.tasks.base import with_special_tokens
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train

PAIR = ("the cat", "sees the dog")


def roberta(folder: Path, **trained_on: object) -> Path:
    """A classifier that transformers has saved, with a tokenizer as RoBERTa's, which gives both texts segment 0."""
    tokenizer = train([" ".join(WORDS)] * 3, TokenizerConfig(kind="bpe", vocabulary=300, min_frequency=1))
    tokenizer._inner.post_processor = RobertaProcessing(("</s>", tokenizer.stop_id), ("<s>", tokenizer.start_id))
    torch.manual_seed(0)
    config = transformers.RobertaConfig(
        vocab_size=tokenizer.vocabulary,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=66,
        type_vocab_size=2,
        initializer_range=0.5,
    )
    transformers.RobertaForSequenceClassification(config).eval().save_pretrained(folder)
    tokenizer.save(folder, segments=False)
    if trained_on:
        contents = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(contents | {"bertsmith": {"trained_on": trained_on}}))
    return folder


def test_a_pair_is_classified_as_in_transformers_where_the_tokenizer_marks_no_text(tmp_path: Path) -> None:
    model, folder = load(roberta(tmp_path)), tmp_path
    pipe = transformers.pipeline("text-classification", str(folder), device="cpu", top_k=None)
    theirs = {one["label"]: one["score"] for one in pipe({"text": PAIR[0], "text_pair": PAIR[1]})}
    assert model.classify([PAIR])[0]["probabilities"] == pytest.approx(theirs, abs=MOST)
    assert set(read_text(model.objective, model.tokenizer, *PAIR).segments) == {0}
    model.save(tmp_path / "again")
    again = load(tmp_path / "again")
    assert again.classify([PAIR])[0]["probabilities"] == pytest.approx(theirs, abs=MOST)


def test_settings_without_segments_win_over_a_template_that_marks_the_second_text(tmp_path: Path) -> None:
    marking = train([" ".join(WORDS)] * 3, TokenizerConfig(vocabulary=120, min_frequency=1))
    marking.save(tmp_path / "with")
    marking.save(tmp_path / "without", segments=False)
    for name, segment in (("with", 1), ("without", 0)):
        found = Tokenizer.load(tmp_path / name)
        ids, segments = found.encode_pair(*PAIR)
        row = with_special_tokens(found, *found.encode(PAIR))
        assert (row.ids.tolist(), row.segments.tolist()) == (ids, segments)
        assert segments[-1] == segment
        assert found.marks_pairs == bool(segment)


def test_a_folder_that_was_fine_tuned_here_before_keeps_the_segments_of_its_training(tmp_path: Path) -> None:
    before = load(roberta(tmp_path / "before", kind="classify"))
    assert read_text(before.objective, before.tokenizer, *PAIR).segments[-1] == 1
    before.save(tmp_path / "saved")
    assert load(tmp_path / "saved").classify([PAIR]) == before.classify([PAIR])
    now = load(roberta(tmp_path / "now", kind="classify", second_segment=0))
    assert set(read_text(now.objective, now.tokenizer, *PAIR).segments) == {0}
    assert now.classify([PAIR]) != before.classify([PAIR])


@pytest.mark.slow("fine-tunes a model")
def test_a_network_that_is_fine_tuned_without_marks_is_used_without_them(tmp_path: Path) -> None:
    rows = [f"the {'cat' if number % 2 else 'dog'},sees it,{number % 2}" for number in range(16)]
    (tmp_path / "pairs.csv").write_text("\n".join(["sentence1,sentence2,label", *rows]) + "\n")
    run = bertsmith.finetune(roberta(tmp_path / "base"), tmp_path / "pairs.csv", out=tmp_path / "run", steps=2, seeds=1)
    folder = tmp_path / "run" / "model"
    assert json.loads((folder / "config.json").read_text())["bertsmith"]["trained_on"]["second_segment"] == 0
    pipe = transformers.pipeline("text-classification", str(folder), device="cpu", top_k=None)
    theirs = {one["label"]: one["score"] for one in pipe({"text": PAIR[0], "text_pair": PAIR[1]})}
    assert run.model.predict([PAIR])[0].probabilities == pytest.approx(theirs, abs=MOST)


def test_a_byte_level_vocabulary_gets_robertas_template_for_tasks() -> None:
    own = train([" ".join(WORDS)] * 3, TokenizerConfig(kind="bpe", vocabulary=300, min_frequency=1))
    assert own.marks_pairs  # of networks with two segments that are trained here
    bare = Tokenizer(own._inner.from_str(own._inner.to_str()), own.role_names)
    bare._inner.post_processor = None
    assert not bare.for_tasks().marks_pairs
    assert bare.for_tasks().encode_pair("cat", "dog")[1][-1] == 0
