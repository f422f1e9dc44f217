"""A tiny network for every entry of the package's table of members, and for every choice of their configurations.

Nothing is listed here by name: a member that joins the family, and an option that joins a configuration, is covered at
once. Only a new class of configurations needs a line in SIZES, and has no tests before (a KeyError, when tests are
collected).
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch
from tasks.small import stirred
from torch import Tensor, nn

from bertsmith.data.batch import Tokens
from bertsmith.models.elmo import ElmoConfig
from bertsmith.models.family import FAMILY
from bertsmith.models.networks import EncoderDecoderNetwork, Network, NetworkConfig, build_network
from bertsmith.models.recurrent import RecurrentConfig
from bertsmith.models.seq2seq import Seq2SeqConfig
from bertsmith.models.static import StaticConfig
from bertsmith.models.transformer_config import TransformerConfig

# What makes a network of each class tiny. Two layers at least, so that what one layer mixes reaches the next.
SIZES: dict[type, dict[str, Any]] = {
    TransformerConfig: {"vocabulary": 50, "width": 16, "layers": 2, "heads": 2, "feed_forward": 64, "max_length": 32},
    RecurrentConfig: {"vocabulary": 50, "width": 8, "hidden": 10, "layers": 2, "max_length": 32},
    Seq2SeqConfig: {"vocabulary": 50, "width": 12, "hidden": 16, "max_length": 32},
    ElmoConfig: {
        "vocabulary": 50,
        "max_characters": 8,
        "character_width": 4,
        "filters": (4, 4),
        "hidden": 10,
        "width": 12,
        "max_length": 32,
    },
    StaticConfig: {"vocabulary": 50, "width": 8},
}
# An encoder-decoder sets the first for its decoder, and nobody else does; the others are of heads and folders.
ELSEWHERE = ("cross_attention", "pooler", "alias")
# Sizes that only some members have, and that are zero in all others.
PARTS = {"embedding_width": 8, "decoder_layers": 2, "head_width": 4, "window": 2}


def shrunk(config: NetworkConfig) -> dict[str, Any]:
    """The changes that make a member tiny, and free of dropout."""
    parts = {name: size for name, size in PARTS.items() if getattr(config, name, 0)}
    layers = {"layers": 3} if "window" in parts else {}  # one that sees all, and two with a window
    return SIZES[type(config)] | parts | layers | dict.fromkeys(dropouts(config), 0.0)


def dropouts(config: NetworkConfig) -> list[str]:
    """The options of a configuration that are shares of dropout."""
    return [field.name for field in fields(config) if field.name.endswith("dropout")]


def choices(config: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every other choice of each option that has a few: `positions=rotary`, `biases=False`."""
    hints = get_type_hints(type(config))
    for field in fields(config):
        kind = hints[field.name]
        options = (True, False) if kind is bool else get_args(kind) if get_origin(kind) is Literal else ()
        for option in options:
            if option != getattr(config, field.name) and field.name not in ELSEWHERE:
                yield f"{field.name}={option}", {field.name: option}


def _members() -> dict[str, NetworkConfig]:
    """The family, tiny: of members that differ in their sizes only the first."""
    found: dict[NetworkConfig, str] = {}
    for name, config in FAMILY.items():
        found.setdefault(replace(config, **shrunk(config)), name)
    for kind in get_args(NetworkConfig):  # a class of which there is no member
        if not any(isinstance(config, kind) for config in FAMILY.values()):
            found[kind(**SIZES[kind])] = kind.__name__
    return {name: config for config, name in found.items()}


def _variants() -> dict[str, NetworkConfig]:
    """The first network of each class with every choice that it allows."""
    found = {}
    for kind, base in FIRST.items():
        for name, change in choices(base):
            try:
                found[f"{kind.__name__}-{name}"] = replace(base, **change)
            except ValueError:  # the two do not go together, and the configuration says so
                continue
    return found


MEMBERS = _members()
CLASSES = {name: type(build_network(config)) for name, config in MEMBERS.items()}
FIRST = {kind: next(MEMBERS[name] for name in MEMBERS if CLASSES[name] is kind) for kind in get_args(Network)}
NETWORKS = MEMBERS | _variants()


def built(config: NetworkConfig) -> Network:
    """The network in double precision, so that a law is kept to twelve digits; no weight of it is trivial."""
    network = stirred(build_network(config)).double()
    with torch.no_grad():
        for name, buffer in network.named_buffers():
            if name == "character_ids":  # of each word, as a tokenizer would set them
                letters = torch.Generator().manual_seed(1)
                buffer.copy_(torch.randint(1, 257, buffer.shape, generator=letters))
    return network  # type: ignore[no-any-return]


def has_decoder(network: nn.Module) -> bool:
    return isinstance(network, get_args(EncoderDecoderNetwork))


def read(network: Network, rows: Sequence[list[int]], sources: Sequence[list[int]], **how: Any) -> Tensor:
    """The vectors of all rows, end to end; an encoder-decoder reads the sources, and its decoder the rows."""
    tokens = Tokens.from_rows(rows)
    given = (Tokens.from_rows(sources), tokens) if has_decoder(network) else (tokens,)
    found: Tensor = network(*given, **how)
    return found


def vectors(network: Network, rows: Sequence[list[int]], sources: Sequence[list[int]]) -> list[Tensor]:
    """The same by row."""
    return list(read(network, rows, sources).split([len(row) for row in rows]))
