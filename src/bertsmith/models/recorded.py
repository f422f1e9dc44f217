"""A recorded pass of a transformer: hidden vectors and attention weights of every layer, for looking into it."""

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from bertsmith.data.batch import Tokens
from bertsmith.models.transformer import Memory, Transformer


class Recorded(NamedTuple):
    """What every layer computed in one pass."""

    hidden: list[Float[Tensor, "T D"]]  # after the embeddings and after every layer; the last with the final norm
    attention: list[list[Float[Tensor, "H _ _"]]]  # by layer and sequence: from each token (row) to each (column)
    cross_attention: list[list[Float[Tensor, "H _ _"]]]  # the same to the encoder's output; empty without one


def record(trunk: Transformer, tokens: Tokens, memory: Memory | None = None) -> Recorded:
    """One pass by the plain formula of attention; of a decoder with the encoder's output as `memory`."""
    states = [trunk._embed(tokens)]
    layouts = trunk._layouts(tokens, states[0], "eager", memory)
    for layer, layout in zip(trunk._layer_sequence(), layouts, strict=True):
        states.append(layer(states[-1], layout))
    cross = layouts[0].cross
    hidden = [*states[:-1], trunk.final_norm(states[-1])]
    # Every layer appends to one list, which the layouts of all layers share.
    return Recorded(hidden, layouts[0].attention_weights, [] if cross is None else cross.attention_weights)
