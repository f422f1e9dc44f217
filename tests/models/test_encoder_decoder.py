"""The encoder-decoder: the decoder sees the whole source and the earlier target tokens."""

from tasks.small import stirred

from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.family import BERT_TINY
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


def made(config: TransformerConfig) -> EncoderDecoder:
    network: EncoderDecoder = stirred(EncoderDecoder(config))
    return network.eval()


def test_a_configuration_with_decoder_layers_builds_an_encoder_decoder() -> None:
    assert isinstance(build_network(BERT_TINY), Transformer)
    assert isinstance(build_network(OLD), EncoderDecoder)


def test_encoder_and_decoder_share_one_embedding_table() -> None:
    model = made(OLD)
    assert model.encoder.embedding is model.decoder.embedding
    names = model.matrices()
    assert names["decoder.layers.1.cross_attention.kv.weight"] == 2
    assert names.keys() <= dict(model.named_parameters()).keys()
