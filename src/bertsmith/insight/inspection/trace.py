"""A trace: one text through one network, with the hidden vectors of every layer and all attention weights."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from bertsmith.data.batch import Tokens
from bertsmith.errors import TextError
from bertsmith.insight.inspection.attention_maps import AttentionMaps, Name, Side
from bertsmith.insight.inspection.inputs import Inputs, Token, read_target, read_text
from bertsmith.models.elmo import Elmo
from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.generation.engine import GenerationEngine, generate
from bertsmith.models.generation.search import GenerationConfig
from bertsmith.models.networks import EncoderDecoderNetwork
from bertsmith.models.recorded import record
from bertsmith.models.recurrent import Recurrent
from bertsmith.models.seq2seq import Seq2Seq
from bertsmith.models.static import Static
from bertsmith.models.transformer import Memory, Transformer
from bertsmith.objectives.base import Objective
from bertsmith.tasks.text_to_text import TextToText
from bertsmith.text.forbidden_ids import forbidden_ids
from bertsmith.text.tokenizer import Tokenizer

MAX_NEW_TOKENS = 64  # of an encoder-decoder's own output, where the task does not set it
EMBEDDINGS = "embeddings"  # the name of what the first layer reads


@dataclass(frozen=True)
class Trace:
    """What a network computed on a text: hidden vectors of every layer, the embeddings first, and attention weights.

    Of an encoder-decoder `hidden` is the encoder's, and `decoder_hidden` the decoder's on its targets. A layer of a
    recurrent network may have another width than the next. Pre-norm networks have the final norm in the last vectors
    only.
    """

    inputs: Inputs
    targets: Inputs | None  # what a decoder reads
    next_targets: tuple[int, ...]  # the ids that the decoder should predict, one for each token of the targets
    hidden: tuple[Float32[np.ndarray, "T _"], ...]
    layers: tuple[str, ...]  # names of the hidden vectors
    decoder_hidden: tuple[Float32[np.ndarray, "M _"], ...]
    decoder_layers: tuple[str, ...]
    attentions: tuple[AttentionMaps, ...]
    notes: tuple[str, ...]

    @property
    def tokens(self) -> tuple[Token, ...]:
        return self.inputs.tokens


@torch.inference_mode()
def trace(
    objective: Objective,
    tokenizer: Tokenizer,
    text: str,
    *,
    pair: str | None = None,
    target: str | None = None,
    max_length: int | None = None,
) -> Trace:
    """One text, or a pair of texts, through a network.

    An encoder-decoder also decodes: the given `target`, or its own output by greedy decoding.
    """
    trunk, notes = objective.trunk, list[str]()
    if target is not None and not isinstance(trunk, EncoderDecoderNetwork):
        raise TextError("target", "is for networks with an encoder and a decoder", "Leave it out")
    inputs = read_text(objective, tokenizer, text, pair, max_length)
    device = trunk.embedding.weight.device
    with evaluating(objective):
        if isinstance(trunk, EncoderDecoderNetwork):
            return _trace_pair(objective, tokenizer, inputs, target, max_length)
        tokens = inputs.batch(device)
        attentions: tuple[AttentionMaps, ...] = ()
        match trunk:
            case Transformer():
                recorded = record(trunk, tokens)
                states, read = recorded.hidden, inputs.tokens
                attentions = (_maps("self-attention", recorded.attention, read, read, causal=trunk.config.causal),)
            case Recurrent() | Elmo() | Static():
                states = trunk.hidden_states(tokens)
                notes.append("This network has no attention.")
    hidden = _arrays(states)
    return Trace(inputs, None, (), hidden, layer_names(hidden), (), (), attentions, (*inputs.notes, *notes))


def layer_names(hidden: Sequence[object]) -> tuple[str, ...]:
    """The names of hidden vectors: embeddings, 1, 2, and so on."""
    return (EMBEDDINGS, *map(str, range(1, len(hidden))))


@contextmanager
def evaluating(objective: Objective) -> Iterator[None]:
    """The objective without dropout, and as it was afterwards."""
    training = objective.training
    objective.eval()
    try:
        yield
    finally:
        objective.train(training)


def _trace_pair(
    objective: Objective, tokenizer: Tokenizer, inputs: Inputs, target: str | None, max_length: int | None
) -> Trace:
    """A source through the encoder, and a target through the decoder with attention to it."""
    trunk, notes = objective.trunk, list(inputs.notes)
    assert isinstance(trunk, EncoderDecoderNetwork)
    limit = min(max_length or trunk.config.max_length, trunk.config.max_length)
    if target is not None and not target.strip():
        raise TextError("target", "is empty", "Write at least one word, or leave it out")
    if target is None:
        targets = read_target(tokenizer, greedy_output(objective, tokenizer, inputs.ids, limit), limit)
        notes.append("The target is the model's own output, by greedy decoding.")
    else:
        targets = read_target(tokenizer, target, limit)
    notes += targets.notes
    ids = targets.ids
    device = trunk.embedding.weight.device
    tokens, target_tokens = (replace(part.batch(device), segments=None) for part in (inputs, targets))
    if isinstance(trunk, EncoderDecoder):
        encoder = record(trunk.encoder, tokens)
        decoder = record(trunk.decoder, target_tokens, Memory(encoder.hidden[-1], tokens))
        states, decoder_states = encoder.hidden, decoder.hidden
        attentions = [
            _maps("encoder", encoder.attention, inputs.tokens, inputs.tokens),
            _maps("decoder", decoder.attention, targets.tokens, targets.tokens, "targets", "targets", causal=True),
            _maps("cross-attention", decoder.cross_attention, targets.tokens, inputs.tokens, "targets", "tokens"),
        ]
    else:
        states, decoder_states, attentions = _seq2seq_states(trunk, inputs, targets, tokens, target_tokens)
        if not attentions:
            notes.append("This network has no attention: the decoder sees one vector of the text.")
    hidden, decoder_hidden = _arrays(states), _arrays(decoder_states)
    names, decoder_names = layer_names(hidden), layer_names(decoder_hidden)
    if isinstance(trunk, Seq2Seq):  # the last of several layers, since those between are not kept
        names = (EMBEDDINGS, str(trunk.config.layers))
        decoder_names = (EMBEDDINGS, str(trunk.config.decoder_layers))
    stop = (*ids[1:], tokenizer.stop_id)
    return Trace(inputs, targets, stop, hidden, names, decoder_hidden, decoder_names, tuple(attentions), tuple(notes))


def _seq2seq_states(
    trunk: Seq2Seq, inputs: Inputs, targets: Inputs, tokens: Tokens, target_tokens: Tokens
) -> tuple[list[Tensor], list[Tensor], list[AttentionMaps]]:
    """The embeddings and last layers of a recurrent encoder and decoder, and their alignment."""
    words, target_words = trunk.embedding(tokens.ids), trunk.embedding(target_tokens.ids)
    encoded = trunk.encoder(words, tokens.bounds, tokens.max_length)
    decoded = trunk(tokens, target_tokens)
    weights = trunk.alignment(tokens, target_tokens)
    maps = (
        [_maps("attention", [[weights[0][None]]], targets.tokens, inputs.tokens, "targets", "tokens")]
        if weights
        else []
    )
    return [words, encoded], [target_words, decoded], maps


def greedy_output(objective: Objective, tokenizer: Tokenizer, ids: Sequence[int], limit: int) -> list[int]:
    """The ids that an encoder-decoder generates for an input, without the stop token."""
    longest = objective.max_new_tokens if isinstance(objective, TextToText) else MAX_NEW_TOKENS
    kept = {tokenizer.stop_id, *tokenizer.sentinels}
    forbidden = forbidden_ids(tokenizer, objective.trunk.config.vocabulary, kept)
    engine = GenerationEngine(
        objective.trunk, prepack_weights=False, forbidden_ids=forbidden, decoder_start_id=tokenizer.padding_id
    )
    config = GenerationConfig(max_new_tokens=max(1, min(longest, limit - 1)), temperature=0)
    generated = generate(engine, [ids], config, [tokenizer.stop_id])[0][0]
    return [number for number in generated if number != tokenizer.stop_id]


def _maps(
    name: Name,
    weights: Sequence[Sequence[Tensor]],
    rows: Sequence[Token],
    columns: Sequence[Token],
    row_side: Side = "tokens",
    column_side: Side = "tokens",
    causal: bool = False,
) -> AttentionMaps:
    """The weights of the only sequence of a batch, by layer."""
    stacked = torch.stack([layer[0] for layer in weights]).float().cpu().numpy()
    return AttentionMaps(name, row_side, column_side, stacked, rows, columns, causal)


def _arrays(states: Sequence[Tensor]) -> tuple[Float32[np.ndarray, "T _"], ...]:
    return tuple(state.float().cpu().numpy() for state in states)
