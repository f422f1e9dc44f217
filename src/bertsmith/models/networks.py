"""The networks: what a configuration describes, built."""

from typing import Any

from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.transformer import Transformer, TransformerConfig

NetworkConfig = TransformerConfig
Network = Transformer | EncoderDecoder

# Those that transformers has no class for, by the names that our folders call them: what describes one, and what it is.
OWN: dict[str, tuple[type[Any], type[Any]]] = {}


def network(config: NetworkConfig) -> Network:
    """The network that a configuration describes."""
    if isinstance(config, TransformerConfig):
        return EncoderDecoder(config) if config.decoder else Transformer(config)
    built: Network = OWN[name_of(config)][1](config)
    return built


def name_of(config: NetworkConfig) -> str:
    """What our folders call a network that transformers has no class for."""
    return next(name for name, (kind, _) in OWN.items() if isinstance(config, kind))
