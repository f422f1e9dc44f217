"""Masked words: of the network only what is read is computed, and the losses are the same."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from prose import MASK, PADDING, START, STOP, VOCABULARY, prose

from bertsmith.data.packing.pack import Packer
from bertsmith.data.packing.pairs import Pairs
from bertsmith.models.family import SMITH
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.init import initialise
from bertsmith.nn.pooling import first
from bertsmith.objectives.masked import Collator, MaskedBatch, MaskedLM
from bertsmith.objectives.masking import MaskingVocabulary
from bertsmith.tasks.classification import SequenceClassification
from bertsmith.train.evaluate import evaluate

SHAPE = TransformerConfig(vocabulary=VOCABULARY, width=32, layers=2, heads=2, feed_forward=48, max_length=64)
SPECIAL = np.arange(VOCABULARY) < 5


def objective(pairs: Pairs) -> MaskedLM:
    made = MaskedLM(Transformer(SHAPE), MaskedLM.Config(pairs=pairs))
    initialise(made, 0, std=0.1)
    return made.eval()


def batch(pairs: Pairs, packed: Pairs | None = None) -> MaskedBatch:
    how = {"start_id": START, "stop_id": STOP, "padding_id": PADDING, "seed": 1}
    pack = Packer(prose(300), max_length=64, batch_tokens=1024, pairs=packed or pairs, **how)
    return Collator(MaskedLM.Config(pairs=pairs), MaskingVocabulary.of(~SPECIAL, SPECIAL, MASK))(pack(0))


@pytest.mark.parametrize("pairs", ["none", "nsp", "sop"])
def test_losses_are_those_of_the_whole_last_layer(pairs: Pairs) -> None:
    made, given = objective(pairs), batch(pairs)
    terms = made(given)
    hidden = made.trunk(given.tokens, "eager")
    masked = F.cross_entropy(made.logits(hidden[given.target_positions]), given.targets, reduction="sum")
    torch.testing.assert_close(terms["masked"].total, masked)
    assert terms.keys() == ({"masked"} if pairs == "none" else {"masked", pairs})
    if pairs != "none":
        scores = made.sentence_pair(made.pooler(first(hidden, given.tokens.bounds)))
        torch.testing.assert_close(terms[pairs].total, F.cross_entropy(scores, given.labels, reduction="sum"))
        assert terms[pairs].correct == (scores.argmax(-1) == given.labels).sum()


def test_pre_norm_networks_pool_by_the_mlm_transform() -> None:
    shape = replace(SMITH, vocabulary=VOCABULARY, width=32, layers=2, heads=2, feed_forward=48, max_length=64)
    made, given = MaskedLM(Transformer(shape), MaskedLM.Config()), batch("nsp")
    initialise(made, 0, std=0.1)
    assert {name.partition(".")[0] for name in made.state_dict()} == {"trunk", "mlm_head", "sentence_pair"}
    hidden = first(made.eval().trunk(given.tokens), given.tokens.bounds)
    task = SequenceClassification(made.trunk, SequenceClassification.Config(), ("no", "yes"))
    task.pooler.load_state_dict({name: made.mlm_head.state_dict()[name] for name in task.pooler.state_dict()})
    scores = made.sentence_pair(task.pooler(hidden))  # fine-tuning begins with the head: tune._weights
    torch.testing.assert_close(made(given)["nsp"].total, F.cross_entropy(scores, given.labels, reduction="sum"))


def test_pair_weight_is_the_weight_of_the_pair_loss() -> None:
    light = MaskedLM(Transformer(SHAPE), MaskedLM.Config(pair_weight=0.25))
    initialise(light, 0, std=0.1)
    terms, usual = light.eval()(batch("nsp")), objective("nsp")(batch("nsp"))
    assert {name: term.weight for name, term in terms.items()} == {"masked": 1.0, "nsp": 0.25}
    assert terms["nsp"].total == usual["nsp"].total  # reported losses are never weighted
    for weight in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match=f"pair_weight is {weight}. Give more than 0, usually 1"):
            MaskedLM.Config(pair_weight=weight)


def test_only_pairs_have_order_targets() -> None:
    given = batch("sop")
    assert given.labels is not None
    assert given.counts.keys() == {"masked", "sop", "tokens", "squares"}
    real = int((given.tokens.ids == START).sum())
    assert 0 < given.counts["sop"] == int((given.labels >= 0).sum()) < real
    with torch.no_grad():
        assert {"sop_loss", "sop_accuracy"} <= evaluate(objective("sop"), [given], 4.0).keys()


def test_a_batch_of_single_texts_has_no_sentence_order_targets() -> None:
    made, alone, given = objective("sop"), batch("sop", packed="none"), batch("sop")
    assert alone.counts["sop"] == 0
    term = made(alone)["sop"]
    assert (term.total, term.correct) == (0, 0)
    term.total.backward()
    assert not any(weight.grad.any() for weight in made.parameters() if weight.grad is not None)
    with torch.no_grad():
        both, one, none = (evaluate(made, batches, 4.0) for batches in ([alone, given], [given], [alone]))
    assert (both["sop_loss"], both["sop_accuracy"]) == (one["sop_loss"], one["sop_accuracy"])
    assert "sop_loss" not in none
