"""Networks with more rows than the tokenizer has tokens, as T5's: a row without a token is never predicted."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tasks.small import WORDS, shape, stirred, tokenizer

import bertsmith
from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.family import T5
from bertsmith.models.hf import folder as folders
from bertsmith.models.transformer import Transformer
from bertsmith.objectives.masked import MaskedLM
from bertsmith.objectives.spans import SpanCorruption
from bertsmith.text.tokenizer import TokenizerConfig, train

SPARE = 40  # rows of the table


def prefer_spare_rows(objective: Any, tokens: int) -> Any:
    """The same with spare rows that win wherever they are not forbidden."""
    with torch.no_grad():
        table = objective.trunk.embedding.weight
        table[tokens:] = 0
        table[tokens : tokens + SPARE] = table[:SPARE] * 50
    return objective


def test_masked_words_are_filled_with_tokens_only(tmp_path: Path) -> None:
    words = tokenizer()
    config = shape(vocabulary=words.vocabulary + SPARE)
    objective = stirred(MaskedLM(Transformer(config), MaskedLM.Config(pairs="none")))
    folders.write(tmp_path, config, prefer_spare_rows(objective, words.vocabulary).state_dict())
    words.save(tmp_path)
    (blank,) = bertsmith.load(tmp_path).fill("the [MASK] sees", top_k=1000).blanks
    assert {one.token for one in blank} == set(range(words.vocabulary))
    assert sum(one.probability for one in blank) > 0.999


def test_text_is_generated_and_inspected_of_tokens_only(tmp_path: Path) -> None:
    words = train([" ".join(WORDS)] * 3, TokenizerConfig(kind="t5", vocabulary=250, min_frequency=1))
    sizes: dict[str, Any] = {"width": 32, "layers": 1, "decoder_layers": 1, "heads": 4, "feed_forward": 48}
    config = replace(T5, **sizes, vocabulary=words.vocabulary + SPARE, buckets=8, max_distance=20, max_length=48)
    objective = stirred(SpanCorruption(EncoderDecoder(config), SpanCorruption.Config()))
    folders.write(tmp_path, config, prefer_spare_rows(objective, words.vocabulary).state_dict())
    words.save(tmp_path)
    model = bertsmith.load(tmp_path)
    assert model.generate("the cat", max_new_tokens=5, temperature=0).strip()
    model.inspect("the cat", attribute=False).save(tmp_path / "page.json")
    assert "the model's own output" in (tmp_path / "page.json").read_text()
