"""The config.json of networks that transformers has no class for: model_type bertsmith, with our own keys."""

from dataclasses import asdict, fields
from typing import Any

from bertsmith.config import build
from bertsmith.errors import FolderError, RecipeError, suggest
from bertsmith.models.hf.values import MAX_SIZE
from bertsmith.models.networks import NATIVE, NetworkConfig

MODEL_TYPE, VERSION = "bertsmith", 2


def from_config_json(config_json: dict[str, Any], path: object) -> NetworkConfig:
    """The configuration of a folder."""
    version = config_json.get("version", 1)  # version 1 had no such key
    if version != VERSION:
        fact = f"is of version {str(version)[:100]} of our own format; this bertsmith reads version {VERSION}"
        raise FolderError(path, fact, "Export the model anew")
    name = config_json.get("network")
    if not isinstance(name, str) or name not in NATIVE:
        raise FolderError(path, f"network is {str(name)[:100]!r}", suggest(str(name)[:100], NATIVE))
    kind = NATIVE[name]
    settings = {field.name: config_json[field.name] for field in fields(kind) if field.name in config_json}
    for key, value in settings.items():
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, int | float) and not -MAX_SIZE <= number <= MAX_SIZE:  # true of nan, too
                raise FolderError(path, f"{key} is {str(value)[:100]}", f"Give at most {MAX_SIZE}")
    try:
        config: NetworkConfig = build(settings, kind, str(path))
    except RecipeError as error:
        location, fact, remedy = error.parts
        raise FolderError(location, fact[:200], remedy) from None
    return config


def to_config_json(config: NetworkConfig) -> dict[str, Any]:
    """The config.json of a configuration."""
    return {"model_type": MODEL_TYPE, "version": VERSION, "network": config.architecture, **asdict(config)}
