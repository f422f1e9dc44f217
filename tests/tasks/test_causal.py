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
from bertsmith.data.examples import Example
from bertsmith.data.rows import lay
from bertsmith.errors import RecipeError
from bertsmith.models.family import GPT, GPT2, MODERN_BERT
from bertsmith.models.transformer import Transformer, TransformerConfig
from bertsmith.tasks.base import Mould, predict
from bertsmith.tasks.classify import Classify
from bertsmith.tasks.embed import Embed
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train

AHEAD = "the network looks ahead, and would see the tokens that it is to guess"
BOTH = pytest.mark.parametrize("member", [GPT, GPT2], ids=["gpt", "gpt2"])


@cache
def tokenizer() -> Tokenizer:
    return train([" ".join(WORDS)] * 3, TokenizerConfig(kind="bpe", vocabulary=300, least=1))


def small(member: TransformerConfig, **changes: Any) -> TransformerConfig:
    sizes = {name: getattr(shape(), name) for name in ("width", "layers", "heads", "length")}
    return replace(member, vocabulary=tokenizer().vocabulary, feed_forward=4 * sizes["width"], **sizes, **changes)


def task(member: TransformerConfig = GPT2, **config: Any) -> Classify:
    made: Classify = stirred(Classify(Transformer(small(member)), Classify.Config(**config), ("no", "so-so", "yes")))
    return made


def examples() -> list[Example]:
    found: list[Example] = CASES["class"].examples
    return found


@BOTH
def test_a_text_is_read_from_its_last_token(member: TransformerConfig) -> None:
    made = task(member)
    items = made.items(examples(), tokenizer(), LENGTH)
    rows = [item.rows[0] for item in items]
    assert {int(row.ids[-1]) for row in rows} == {tokenizer().stop}
    with torch.no_grad():
        logits = made.logits(lay(rows))
        for row, found in zip(rows, logits, strict=True):
            hidden = made.trunk(Tokens.of([row.ids.tolist()]), "recorded")
            torch.testing.assert_close(found, F.linear(hidden[-1], made.classifier.dense.weight), rtol=0, atol=1e-4)
    assert made.classifier.dense.bias is None


@pytest.mark.parametrize("language", [0.0, 0.5])
def test_neighbours_and_filler_change_nothing(language: float) -> None:
    made = task(language=language)
    items = made.items(examples(), tokenizer(), LENGTH)
    whole = made.collate(items, Mould(items=8, length=LENGTH))
    poured = made.collate(items, Mould(items=12, length=LENGTH, bucket=64, padding=tokenizer().padding))
    assert len(poured.tokens.ids) % 64 == 0
    parts = [made.collate(items[a:b], Mould(items=8, length=LENGTH)) for a, b in ((0, 1), (1, 5), (5, 8))]
    with torch.no_grad():
        one, two, three = made(whole), made(poured), [made(part) for part in parts]
    assert one.keys() == ({"class", "language"} if language else {"class"})
    for name, term in one.items():
        assert float(two[name].total) == pytest.approx(float(term.total), rel=1e-5)
        assert sum(float(part[name].total) for part in three) == pytest.approx(float(term.total), rel=1e-5)
        assert whole.counts[name] == poured.counts[name] == sum(part.counts[name] for part in parts)
    if not language:
        assert whole.targets is None


def test_the_language_term_is_the_loss_of_every_token_but_the_first() -> None:
    made = task(language=0.5)
    items = made.items(examples(), tokenizer(), LENGTH)
    batch = made.collate(items, Mould(items=8, length=LENGTH))
    total = 0.0
    with torch.no_grad():
        term = made(batch)["language"]
        for item in items:
            ids = item.rows[0].ids.astype(np.int64)
            hidden = made.trunk(Tokens.of([ids.tolist()]), "recorded")
            logits = F.linear(hidden[:-1], made.trunk.embedding.weight)
            total += float(F.cross_entropy(logits, torch.from_numpy(ids[1:]), reduction="sum"))
    assert term.weight == 0.5
    assert float(term.total) == pytest.approx(total, rel=1e-5)
    assert batch.counts["language"] == sum(len(item.rows[0]) - 1 for item in items)


def test_guessing_meanwhile_changes_no_prediction() -> None:
    plain, both = task(), task(language=0.5)
    items = plain.items(examples(), tokenizer(), LENGTH)
    one, other = (predict(made, examples(), items, device="cpu") for made in (plain, both))
    assert one == other


def test_vectors_may_be_read_from_the_last_token() -> None:
    made = stirred(Embed(Transformer(small(GPT2)), Embed.Config(pooling="last")))
    rows = [row for item in made.items([Example(place="", texts=(text, text)) for text in prose(4, 1)], tokenizer(), 32)
            for row in item.rows]  # fmt: skip
    with torch.no_grad():
        found = made.vectors(lay(rows))
        last = [F.normalize(made.trunk(Tokens.of([row.ids.tolist()]))[-1], dim=0) for row in rows]
    torch.testing.assert_close(found, torch.stack(last), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("member", "config", "line"),
    [
        (GPT2, {"pooling": "first"}, "task.pooling: transformers' GPT classifies by the last token alone. Use 'last'."),
        (
            MODERN_BERT,
            {"pooling": "last"},
            "task.pooling: transformers has no word for 'last' with this network. Use first or mean.",
        ),
        (
            MODERN_BERT,
            {"language": 0.5},
            f"task.language: {AHEAD}. Set it to 0, or take a network like gpt2.",
        ),
    ],
)
def test_what_does_not_fit_the_network_is_refused(member: TransformerConfig, config: dict[str, Any], line: str) -> None:
    with pytest.raises(RecipeError) as caught:
        task(member, **config)
    assert str(caught.value) == line


def test_a_weight_below_nought_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^language is -1\. Give at least 0, usually 0\.5$"):
        Classify.Config(language=-1)
