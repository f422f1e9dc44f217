"""All networks: the one that a configuration describes is built here."""

from typing import Any

from bertsmith.models.elmo import Elmo, ElmoConfig
from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.recurrent import Recurrent, RecurrentConfig
from bertsmith.models.seq2seq import Seq2Seq, Seq2SeqConfig
from bertsmith.models.static import Static, StaticConfig
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig

NetworkConfig = TransformerConfig | RecurrentConfig | Seq2SeqConfig | ElmoConfig | StaticConfig
Network = Transformer | EncoderDecoder | Recurrent | Seq2Seq | Elmo | Static
EncoderDecoderNetwork = EncoderDecoder | Seq2Seq

# Networks that transformers has no class for, by their name in our folders: configuration and module.
NATIVE: dict[str, tuple[type[Any], type[Any]]] = {
    "recurrent": (RecurrentConfig, Recurrent),
    "seq2seq": (Seq2SeqConfig, Seq2Seq),
    "elmo": (ElmoConfig, Elmo),
    "static": (StaticConfig, Static),
}


def build_network(config: NetworkConfig) -> Network:
    """The network that a configuration describes."""
    if isinstance(config, TransformerConfig):
        return EncoderDecoder(config) if config.decoder_layers else Transformer(config)
    built: Network = NATIVE[native_name(config)][1](config)
    return built


def native_name(config: NetworkConfig) -> str:
    """The name in our folders of a network that transformers has no class for."""
    return next(name for name, (kind, _) in NATIVE.items() if isinstance(config, kind))
