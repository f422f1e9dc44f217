"""Fine-tuning networks that look only back: from the last token, with or without guessing next tokens meanwhile."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tasks.small import CASES, LENGTH, WORDS, prose, shape, stirred

from bertsmith.data.batch import Tokens
from bertsmith.data.labelled.examples import Example
from bertsmith.data.rows import pack_rows
from bertsmith.errors import RecipeError
from bertsmith.models.family import GPT, GPT2, MODERN_BERT
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.tasks.base import Bucket, predict
from bertsmith.tasks.classification import SequenceClassification
from bertsmith.tasks.embedding import SentenceEmbedding
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train

AHEAD = "the network is not causal, and would see the tokens that it has to predict"
BOTH = pytest.mark.parametrize("member", [GPT, GPT2], ids=["gpt", "gpt2"])


@cache
def tokenizer() -> Tokenizer:
    return train([" ".join(WORDS)] * 3, TokenizerConfig(kind="bpe", vocabulary=300, min_frequency=1))


def small(member: TransformerConfig, **changes: Any) -> TransformerConfig:
    sizes = {name: getattr(shape(), name) for name in ("width", "layers", "heads", "max_length")}
    return replace(member, vocabulary=tokenizer().vocabulary, feed_forward=4 * sizes["width"], **sizes, **changes)


def task(member: TransformerConfig = GPT2, **config: Any) -> SequenceClassification:
    made: SequenceClassification = stirred(
        SequenceClassification(
            Transformer(small(member)), SequenceClassification.Config(**config), ("no", "so-so", "yes")
        )
    )
    return made


def examples() -> list[Example]:
    found: list[Example] = CASES["class"].examples
    return found


@BOTH
def test_a_text_is_read_from_its_last_token(member: TransformerConfig) -> None:
    made = task(member)
    items = made.preprocess(examples(), tokenizer(), LENGTH)
    rows = [item.rows[0] for item in items]
    assert {int(row.ids[-1]) for row in rows} == {tokenizer().stop_id}
    with torch.no_grad():
        logits = made.logits(pack_rows(rows))
        for row, found in zip(rows, logits, strict=True):
            hidden = made.trunk(Tokens.from_rows([row.ids.tolist()]), "eager")
            torch.testing.assert_close(found, F.linear(hidden[-1], made.classifier.dense.weight), rtol=0, atol=1e-4)
    assert made.classifier.dense.bias is None


@pytest.mark.parametrize("language", [0.0, 0.5])
def test_other_sequences_and_padding_change_nothing(language: float) -> None:
    made = task(lm_weight=language)
    items = made.preprocess(examples(), tokenizer(), LENGTH)
    whole = made.collate(items, Bucket(batch_size=8, max_length=LENGTH))
    filled = made.collate(
        items, Bucket(batch_size=12, max_length=LENGTH, pad_to_multiple_of=64, padding=tokenizer().padding_id)
    )
    assert len(filled.tokens.ids) % 64 == 0
    parts = [made.collate(items[a:b], Bucket(batch_size=8, max_length=LENGTH)) for a, b in ((0, 1), (1, 5), (5, 8))]
    with torch.no_grad():
        one, two, three = made(whole), made(filled), [made(part) for part in parts]
    assert one.keys() == ({"class", "language"} if language else {"class"})
    for name, term in one.items():
        assert float(two[name].total) == pytest.approx(float(term.total), rel=1e-5)
        assert sum(float(part[name].total) for part in three) == pytest.approx(float(term.total), rel=1e-5)
        assert whole.counts[name] == filled.counts[name] == sum(part.counts[name] for part in parts)
    if not language:
        assert whole.next_tokens is None


def test_the_language_term_is_the_loss_of_every_token_but_the_first() -> None:
    made = task(lm_weight=0.5)
    items = made.preprocess(examples(), tokenizer(), LENGTH)
    batch = made.collate(items, Bucket(batch_size=8, max_length=LENGTH))
    total = 0.0
    with torch.no_grad():
        term = made(batch)["language"]
        for item in items:
            ids = item.rows[0].ids.astype(np.int64)
            hidden = made.trunk(Tokens.from_rows([ids.tolist()]), "eager")
            logits = F.linear(hidden[:-1], made.trunk.embedding.weight)
            total += float(F.cross_entropy(logits, torch.from_numpy(ids[1:]), reduction="sum"))
    assert term.weight == 0.5
    assert float(term.total) == pytest.approx(total, rel=1e-5)
    assert batch.counts["language"] == sum(len(item.rows[0]) - 1 for item in items)


def test_the_lm_loss_changes_no_prediction() -> None:
    plain, both = task(), task(lm_weight=0.5)
    items = plain.preprocess(examples(), tokenizer(), LENGTH)
    one, other = (predict(made, examples(), items, device="cpu") for made in (plain, both))
    assert one == other


def test_vectors_may_be_pooled_from_the_last_token() -> None:
    made = stirred(SentenceEmbedding(Transformer(small(GPT2)), SentenceEmbedding.Config(pooling="last")))
    pairs = [Example(location="", texts=(text, text)) for text in prose(4, 1)]
    rows = [row for item in made.preprocess(pairs, tokenizer(), 32) for row in item.rows]
    with torch.no_grad():
        found = made.embeddings(pack_rows(rows))
        last = [F.normalize(made.trunk(Tokens.from_rows([row.ids.tolist()]))[-1], dim=0) for row in rows]
    torch.testing.assert_close(found, torch.stack(last), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("member", "config", "line"),
    [
        (GPT2, {"pooling": "first"}, "task.pooling: transformers' GPT classifies by the last token alone. Use 'last'."),
        (
            MODERN_BERT,
            {"pooling": "last"},
            "task.pooling: transformers has no 'last' pooling with this network. Use first or mean.",
        ),
        (
            MODERN_BERT,
            {"lm_weight": 0.5},
            f"task.lm_weight: {AHEAD}. Set it to 0, or use a network such as gpt2.",
        ),
    ],
)
def test_settings_that_do_not_fit_the_network_are_refused(
    member: TransformerConfig, config: dict[str, Any], line: str
) -> None:
    with pytest.raises(RecipeError) as caught:
        task(member, **config)
    assert str(caught.value) == line


def test_a_negative_weight_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^lm_weight is -1\. Give at least 0, usually 0\.5$"):
        SequenceClassification.Config(lm_weight=-1)
