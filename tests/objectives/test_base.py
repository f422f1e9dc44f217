"""An objective refuses a network that it could not teach."""

import pytest
import torch

from bertsmith.errors import RecipeError
from bertsmith.models.networks import NetworkConfig, build_network
from bertsmith.models.recurrent import RecurrentConfig
from bertsmith.models.seq2seq import Seq2SeqConfig
from bertsmith.models.static import StaticConfig
from bertsmith.objectives import OBJECTIVES
from bertsmith.objectives.base import Pretraining

SHAPES: dict[str, NetworkConfig] = {
    "recurrent": RecurrentConfig(vocabulary=10, width=4),
    "seq2seq": Seq2SeqConfig(vocabulary=10, width=4, hidden=4),
    "static": StaticConfig(vocabulary=10, width=4),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize(
    "kind", [OBJECTIVES[name] for name in ("masked_lm", "replaced_tokens", "causal_lm", "mixed", "span_corruption")]
)
def test_objectives_of_transformers_refuse_other_networks(kind: type[Pretraining], shape: NetworkConfig) -> None:
    with torch.device("meta"), pytest.raises(RecipeError) as caught:
        kind(build_network(shape), kind.Config())
    assert str(caught.value) == (
        "objective.kind: the network is not a transformer. "
        "Use 'recurrent_lm' for a recurrent one; an LSTM encoder-decoder learns by bertsmith finetune."
    )
