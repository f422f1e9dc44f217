"""Every setting of every member is kept by its model folder, or is refused before the network is trained."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
import torch

from bertsmith.errors import RecipeError
from bertsmith.models.family import FAMILY
from bertsmith.models.hf import convert
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf.layouts import layout_of
from bertsmith.models.networks import build_network
from bertsmith.models.transformer_config import TransformerConfig

MEMBERS = {name: config for name, config in FAMILY.items() if isinstance(config, TransformerConfig)}
TYPES = get_type_hints(TransformerConfig)


def small(config: TransformerConfig) -> TransformerConfig:
    """The same network in a small size."""
    return replace(
        config,
        vocabulary=40,
        width=32,
        embedding_width=min(config.embedding_width, 16),
        layers=2,
        decoder_layers=min(config.decoder_layers, 3),
        heads=4,
        head_width=min(config.head_width, 6),
        feed_forward=128,
        max_length=16,
        window=min(config.window, 4),
    )


SMALL = {small(config): name for name, config in reversed(MEMBERS.items())}  # members that differ in more than sizes


def other_values(name: str, value: Any) -> Iterator[Any]:
    """Other values of a setting: all of a choice; zero, one, one more and twice as many."""
    if get_origin(TYPES[name]) is Literal:
        yield from get_args(TYPES[name])
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (0, 1, value + 1, 2 * value)
    else:
        yield from (0.0, 0.25, 2 * value)


def changed(config: TransformerConfig) -> Iterator[tuple[str, TransformerConfig]]:
    """The network with one setting changed, for every setting and value that a transformer can have."""
    for name in TYPES:
        for value in other_values(name, getattr(config, name)):
            if value != getattr(config, name):
                try:
                    yield name, replace(config, **{name: value})
                except ValueError:
                    continue


def is_refused(config: TransformerConfig) -> bool:
    """Whether there is no layout for a network. One line says by which setting, or by which two."""
    try:
        layout_of(config)
    except RecipeError as error:
        said = str(error)
        assert said.startswith("model: no class of transformers is a network with "), said
        assert said.count(" = ") < 5, said
        return True
    return False


def test_every_setting_is_tried() -> None:
    tried = {name for config in MEMBERS.values() for name, _ in changed(config)}
    assert tried == TYPES.keys()


@pytest.mark.parametrize("member", MEMBERS)
def test_every_setting_is_read_as_it_was_written_or_refused(member: str) -> None:
    assert not is_refused(MEMBERS[member])
    for name, config in changed(MEMBERS[member]):
        if not is_refused(config):
            assert convert.from_config_json(convert.to_config_json(config, ()), "here") == config, name


@pytest.mark.exhaustive(suite=4)
@pytest.mark.slow("writes and reads about fifty folders of each network")
@pytest.mark.parametrize("config", SMALL, ids=SMALL.values())
def test_a_folder_keeps_all_of_a_network_that_is_not_refused(config: TransformerConfig, tmp_path: Path) -> None:
    kept = [(name, other) for name, other in changed(config) if not is_refused(other)]
    assert {"vocabulary", "layers"} <= {name for name, _ in kept}
    for name, other in [("", config), *kept]:
        torch.manual_seed(0)
        trunk = build_network(other)
        weights = {f"trunk.{key}": weight for key, weight in trunk.state_dict().items()}
        folders.write(tmp_path, other, weights)
        opened = folders.read(tmp_path)
        assert opened.config == other, name
        assert opened.state_dict.keys() == weights.keys(), name
        assert all(torch.equal(opened.state_dict[key], weight) for key, weight in weights.items()), name
