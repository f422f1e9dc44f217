"""Masked words: of the network only what is read is computed, and the losses are the same."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from prose import MASK, PADDING, START, STOP, VOCABULARY, prose

from bertsmith.data.batch import Batch
from bertsmith.data.pack import Pack
from bertsmith.data.plan import Pairs
from bertsmith.models.transformer import Transformer, TransformerConfig
from bertsmith.nn.init import initialise
from bertsmith.nn.pooling import first
from bertsmith.objectives.hide import Pieces
from bertsmith.objectives.masked import Collator, MaskedLM

SHAPE = TransformerConfig(vocabulary=VOCABULARY, width=32, layers=2, heads=2, feed_forward=48, length=64)
SPECIAL = np.arange(VOCABULARY) < 5


def objective(pairs: Pairs) -> MaskedLM:
    made = MaskedLM(Transformer(SHAPE), MaskedLM.Config(pairs=pairs))
    initialise(made, 0, deviation=0.1)
    return made.eval()


def batch(pairs: Pairs) -> Batch:
    pack = Pack(prose(300), length=64, tokens=1024, pairs=pairs, seed=1, start=START, stop=STOP, padding=PADDING)
    return Collator(MaskedLM.Config(pairs=pairs), Pieces.of(~SPECIAL, SPECIAL, MASK))(pack(0))


@pytest.mark.parametrize("pairs", ["none", "next"])
def test_losses_are_those_of_the_whole_last_layer(pairs: Pairs) -> None:
    made, given = objective(pairs), batch(pairs)
    terms = made(given)
    hidden = made.trunk(given.tokens, "recorded")
    masked = F.cross_entropy(made.logits(hidden[given.chosen]), given.targets, reduction="sum")
    torch.testing.assert_close(terms["masked"].total, masked)
    if pairs == "next":
        scores = made.next(made.pooler(first(hidden, given.tokens.bounds)))
        torch.testing.assert_close(terms["next"].total, F.cross_entropy(scores, given.labels, reduction="sum"))
    else:
        assert terms.keys() == {"masked"}
