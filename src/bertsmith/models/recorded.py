"""A recorded pass of a transformer: hidden vectors and attention weights of every layer, for looking into it."""

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from bertsmith.data.batch import Tokens
from bertsmith.models.layer_stack import LayerStack
from bertsmith.models.layers import AttentionInputs, EncodedMemory, Layer
from bertsmith.models.transformer import Memory, Transformer
from bertsmith.nn.attention import Eager

Weights = list[Float[Tensor, "H _ _"]]  # of each sequence: from each token (row) to each (column)


class Recorded(NamedTuple):
    """What every layer computed in one pass."""

    hidden: list[Float[Tensor, "T D"]]  # after the embeddings and after every layer; the last with the final norm
    attention: list[Weights]  # by layer
    cross_attention: list[Weights]  # the same to the encoder's output; empty without one


def record(trunk: Transformer, tokens: Tokens, memory: Memory | None = None) -> Recorded:
    """One pass by the plain formula of attention; of a decoder with the encoder's output as `memory`."""
    hidden = trunk.embed(tokens)
    return record_layers(trunk, hidden, trunk.attention_inputs(tokens, hidden, "eager", memory))


def record_layers(trunk: LayerStack, hidden: Float[Tensor, "T D"], all_inputs: list[AttentionInputs]) -> Recorded:
    """The same from the first layer on, of networks of text and of images; the kernels are `eager`."""
    states = [hidden]
    attention, cross_attention = list[Weights](), list[Weights]()
    for layer, inputs in zip(trunk.layer_sequence(), all_inputs, strict=True):
        attention.append(self_weights(layer, states[-1], inputs))
        if inputs.memory is not None:
            cross_attention.append(cross_weights(layer, states[-1], inputs))
        states.append(layer(states[-1], inputs))
    return Recorded([*states[:-1], trunk.final_norm(states[-1])], attention, cross_attention)


def self_weights(layer: Layer, hidden: Float[Tensor, "T D"], inputs: AttentionInputs) -> Weights:
    """The weights of self-attention, by what the layer reads."""
    assert isinstance(inputs.kernel, Eager)
    attention, hidden = layer.attention, layer.attention_norm(hidden) if layer.pre_norm else hidden
    query, key, _ = attention.project(hidden, inputs.rotation).unbind(1)
    return inputs.kernel.weights(query * attention.query_scale, key)


def cross_weights(layer: Layer, hidden: Float[Tensor, "T D"], inputs: AttentionInputs) -> Weights:
    """The weights of cross-attention, which reads what self-attention has computed."""
    memory, attention = inputs.memory, layer.cross_attention
    assert isinstance(memory, EncodedMemory)
    assert isinstance(memory.kernel, Eager)
    hidden = layer.add(hidden, layer.attention, layer.attention_norm, inputs)
    query = attention.project(layer.cross_attention_norm(hidden) if layer.pre_norm else hidden)
    return memory.kernel.weights(query, attention.key_value(memory.vectors)[0])
