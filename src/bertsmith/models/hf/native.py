"""Our own words: the settings of networks that transformers has no class for, as config.json holds them."""

from dataclasses import asdict, fields
from typing import Any

from bertsmith.config import build
from bertsmith.errors import FolderError, RecipeError, suggest
from bertsmith.models.networks import NATIVE, NetworkConfig, native_name

MODEL_TYPE, VERSION = "bertsmith", 2
MAX_SIZE = 1 << 24  # no size in a configuration is larger; a file cannot make us count further


def from_config_json(config_json: dict[str, Any], path: object) -> NetworkConfig:
    """The settings that a folder names."""
    version = config_json.get("version", 1)  # the first had no such key
    if version != VERSION:
        fact = f"is of version {str(version)[:100]} of our own format; this bertsmith reads version {VERSION}"
        raise FolderError(path, fact, "Export the model anew")
    name = config_json.get("network")
    if not isinstance(name, str) or name not in NATIVE:
        raise FolderError(path, f"network is {str(name)[:100]!r}", suggest(str(name)[:100], NATIVE))
    kind = NATIVE[name][0]
    said = {field.name: config_json[field.name] for field in fields(kind) if field.name in config_json}
    for key, value in said.items():
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, int | float) and not -MAX_SIZE <= number <= MAX_SIZE:  # which nan is not, either
                raise FolderError(path, f"{key} is {str(value)[:100]}", f"Give at most {MAX_SIZE}")
    try:
        config: NetworkConfig = build(said, kind, str(path))
    except RecipeError as error:
        where, fact, remedy = error.parts
        raise FolderError(where, fact[:200], remedy) from None
    return config


def to_config_json(config: NetworkConfig) -> dict[str, Any]:
    """The same as config.json says it."""
    return {"model_type": MODEL_TYPE, "version": VERSION, "network": native_name(config), **asdict(config)}
