"""The encoder-decoder: the decoder sees the whole source and the earlier target tokens."""

from dataclasses import replace

import pytest
import torch
from tasks.small import stirred

from bertsmith.data.batch import Tokens
from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.family import BERT_TINY, T5
from bertsmith.models.networks import build_network
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig

SIZES = {
    "vocabulary": 50,
    "width": 16,
    "layers": 2,
    "decoder_layers": 2,
    "heads": 2,
    "feed_forward": 24,
    "max_length": 40,
}
# The Transformer of 2017 has the same structure with post-norm, biases and sinusoidal positions.
OLD = TransformerConfig(**SIZES, positions="sinusoidal", segments=0, activation="relu", embedding_norm=False)
BOTH = pytest.mark.parametrize("config", [replace(T5, **SIZES), OLD], ids=["t5", "2017"])
READ, WRITTEN = [[3, 4, 5, 6], [7, 8]], [[0, 9, 10], [0, 11, 12, 13, 14]]


def made(config: TransformerConfig) -> EncoderDecoder:
    network: EncoderDecoder = stirred(EncoderDecoder(config))
    return network.eval()


def vectors(model: EncoderDecoder, read: list[list[int]], written: list[list[int]]) -> list[torch.Tensor]:
    with torch.no_grad():
        found = model(Tokens.from_rows(read), Tokens.from_rows(written))
    return list(found.split([len(row) for row in written]))


@BOTH
def test_other_texts_of_a_batch_change_nothing(config: TransformerConfig) -> None:
    model = made(config)
    together = vectors(model, READ, WRITTEN)
    for number in range(2):
        (alone,) = vectors(model, READ[number : number + 1], WRITTEN[number : number + 1])
        torch.testing.assert_close(together[number], alone, rtol=0, atol=1e-6)


@BOTH
def test_the_decoder_sees_no_later_tokens_and_the_whole_source(config: TransformerConfig) -> None:
    model = made(config)
    before = vectors(model, READ, WRITTEN)[1]
    later = vectors(model, READ, [WRITTEN[0], [0, 11, 12, 13, 49]])[1]
    torch.testing.assert_close(before[:4], later[:4], rtol=0, atol=1e-6)
    assert not torch.allclose(before[4], later[4])
    other = vectors(model, [READ[0], [7, 9]], WRITTEN)[1]
    assert all(not torch.allclose(one, changed) for one, changed in zip(before, other, strict=True))


@BOTH
def test_selected_positions_have_the_vectors_of_the_whole(config: TransformerConfig) -> None:
    model, which = made(config), torch.tensor([0, 2, 7])
    with torch.no_grad():
        some = model(Tokens.from_rows(READ), Tokens.from_rows(WRITTEN), selected=which)
    torch.testing.assert_close(some, torch.cat(vectors(model, READ, WRITTEN))[which], rtol=0, atol=1e-6)


def test_a_configuration_with_decoder_layers_builds_an_encoder_decoder() -> None:
    assert isinstance(build_network(BERT_TINY), Transformer)
    assert isinstance(build_network(OLD), EncoderDecoder)


def test_encoder_and_decoder_share_one_embedding_table() -> None:
    model = made(OLD)
    assert model.encoder.embedding is model.decoder.embedding
    names = model.matrices()
    assert names["decoder.layers.1.cross_attention.kv.weight"] == 2
    assert names.keys() <= dict(model.named_parameters()).keys()
