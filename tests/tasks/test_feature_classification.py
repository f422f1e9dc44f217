"""Classes from a network that stays as it is."""

import copy

import numpy as np
import pytest
import torch

from bertsmith.data.labelled.examples import Example
from bertsmith.data.rows import pack_rows
from bertsmith.errors import RecipeError, TextError
from bertsmith.models.elmo import Elmo, ElmoConfig
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.tasks import TASKS
from bertsmith.tasks.base import Bucket, predict, with_special_tokens
from bertsmith.tasks.feature_classification import FeatureClassification
from bertsmith.text.characters import boundary_characters, encode_characters
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train

LABELS = ("bad", "good")
GOOD, BAD, REST = ["fine", "lovely"], ["dull", "awful"], ["a", "film", "that", "is", "not", "long"]
ELMO = ElmoConfig(
    vocabulary=20,
    max_characters=9,
    character_width=4,
    filters=(6, 6),
    highway_layers=1,
    hidden=12,
    width=16,
    max_length=24,
    dropout=0.5,
)
BERT = TransformerConfig(vocabulary=20, width=16, layers=2, heads=2, feed_forward=16, max_length=24, dropout=0.5)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train([" ".join(GOOD + BAD + REST)] * 2, TokenizerConfig(kind="words", vocabulary=20, min_frequency=1))


def elmo(**settings: object) -> FeatureClassification:
    torch.manual_seed(0)
    return FeatureClassification(Elmo(ELMO), FeatureClassification.Config(**{"hidden": 8, **settings}), LABELS)  # type: ignore[arg-type]


def bert(**settings: object) -> FeatureClassification:
    torch.manual_seed(0)
    config = FeatureClassification.Config(**{"hidden": 8, "layers": "last", **settings})  # type: ignore[arg-type]
    return FeatureClassification(Transformer(BERT), config, LABELS)


def examples(count: int, pairs: bool = False) -> list[Example]:
    found, dice = [], np.random.default_rng(0)
    for number in range(count):
        words = dice.choice(REST, 3 + number % 5).tolist()
        good = bool(dice.integers(2))
        words[number % len(words)] = str(dice.choice(GOOD if good else BAD))
        texts = (" ".join(words), "a long film") if pairs else (" ".join(words),)
        found.append(Example(location=f"made:{number}", texts=texts, label=LABELS[good]))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("make", "pooling"), [(elmo, "max"), (bert, "mean")])
def test_classes_are_learnt_while_the_trunk_stays_as_it_is(make: type, pooling: str, tokenizer: Tokenizer) -> None:
    task = make(pooling=pooling, dropout=0.0).train()
    assert not task.trunk.training
    before = copy.deepcopy(task.trunk.state_dict())
    given = examples(32)
    items = task.preprocess(given, tokenizer, 24)
    batch = task.collate(items, Bucket(batch_size=32, max_length=24))
    optimizer = torch.optim.AdamW([weight for weight in task.parameters() if weight.requires_grad], lr=0.1)
    for _ in range(25):
        optimizer.zero_grad()
        (task(batch)["class"].total / batch.counts["class"]).backward()
        optimizer.step()
    scores = task.score(given, predict(task.eval(), given, items, device="cpu"))
    assert scores["accuracy"] > 0.95
    assert all(torch.equal(weight, before[name]) for name, weight in task.trunk.state_dict().items())
    assert {name.partition(".")[0] for name, one in task.named_parameters() if one.requires_grad} <= {
        "layer_selection",
        "recurrent",
        "classifier",
    }


@pytest.mark.parametrize("make", [elmo, bert])
@pytest.mark.parametrize("pooling", ["max", "mean"])
def test_other_texts_and_padding_do_not_change_a_class(make: type, pooling: str, tokenizer: Tokenizer) -> None:
    task = make(pooling=pooling).eval()
    items = task.preprocess(examples(5), tokenizer, 24)
    alone = torch.cat([task.logits(pack_rows(item.rows)) for item in items])
    torch.testing.assert_close(task.logits(pack_rows([item.rows[0] for item in items])), alone, rtol=0, atol=1e-5)
    batch = task.collate(
        items, Bucket(batch_size=6, max_length=24, pad_to_multiple_of=64, padding=tokenizer.padding_id)
    )
    assert len(batch.tokens.ids) == 64
    assert batch.labels is not None
    assert batch.labels[5] == -100
    assert (batch.tokens.character_ids is None) == (make is bert)
    torch.testing.assert_close(task.logits(batch.tokens)[:5], alone, rtol=0, atol=1e-5)


def test_a_text_has_characters_and_boundaries_and_is_truncated(tokenizer: Tokenizer) -> None:
    text = Example(location="here", texts=("a lovely filmlet that is not long",), label="good")
    [item] = elmo().preprocess([text], tokenizer, 24)
    row = item.rows[0]
    begin, end = boundary_characters(9).tolist()
    words = encode_characters(["a", "lovely", "filmlet", "that", "is", "not", "long"], 9).tolist()
    assert row.character_ids is not None
    assert row.character_ids.tolist() == [begin, *words, end]
    assert row.ids.tolist() == [tokenizer.start_id, *tokenizer.encode(text.texts)[0], tokenizer.stop_id]
    [short] = elmo().preprocess([text], tokenizer, 6)
    assert short.rows[0].character_ids is not None
    assert short.rows[0].character_ids.tolist() == [begin, *words[:4], end]
    assert (item.truncated, short.truncated) == (0, 3)
    assert item.target == 1


def test_the_second_text_follows_the_end_of_the_first(tokenizer: Tokenizer) -> None:
    [pair] = examples(1, pairs=True)
    [item] = elmo().preprocess([pair], tokenizer, 24)
    first, second = tokenizer.encode(pair.texts)
    assert item.rows[0].ids.tolist() == [tokenizer.start_id, *first, tokenizer.stop_id, *second, tokenizer.stop_id]
    assert item.rows[0].character_ids is not None
    assert item.rows[0].character_ids[len(first) + 1].tolist() == boundary_characters(9)[1].tolist()
    [cut] = elmo().preprocess([pair], tokenizer, 8)
    assert len(cut.rows[0].ids) == 8
    assert cut.truncated == len(first) + len(second) - 5
    [plain] = bert().preprocess([pair], tokenizer, 24)
    assert plain.rows[0].ids.tolist() == with_special_tokens(tokenizer, first, second).ids.tolist()


def test_it_stands_in_the_table_and_reads_what_a_classifier_reads() -> None:
    assert TASKS["classify_features"] is FeatureClassification
    assert FeatureClassification.file_kind(FeatureClassification.Config()) == "classify"
    assert FeatureClassification.collect_labels(examples(9)) == LABELS


def test_one_class_and_a_class_that_was_not_learnt_are_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(RecipeError, match="there is only one class"):
        FeatureClassification(Elmo(ELMO), FeatureClassification.Config(), ("good",))
    odd = Example(location="file.tsv:3", texts=("a film",), label="god")
    with pytest.raises(TextError) as caught:
        elmo().preprocess([odd], tokenizer, 24)
    assert str(caught.value) == "file.tsv:3: the label 'god' is not among those learnt. Did you mean 'good'?"
    [unknown] = elmo().preprocess([Example(location="here", texts=("a film",))], tokenizer, 24)
    assert unknown.target == -100
