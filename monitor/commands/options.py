"""What several commands' options mean. Each raises ConfigInvalid with the option's name."""

from __future__ import annotations

from pydantic import ValidationError

from monitor.config import Config
from monitor.config.errors import ConfigInvalid
from monitor.config.outputs import ListenConfig
from monitor.config.values import parse_duration, parse_size


def seconds(text: str, option: str) -> float:
    """A span of time above 0, in seconds."""
    try:
        span = parse_duration(text)
    except ValueError as error:
        raise ConfigInvalid([f"{option}: {error}"]) from None
    if span <= 0:
        raise ConfigInvalid([f"{option}: expected a time above 0, got {text}"])
    return span


def size_bytes(text: str, option: str) -> int:
    """A size in bytes."""
    try:
        return parse_size(text)
    except ValueError as error:
        raise ConfigInvalid([f"{option}: {error}"]) from None


def listening_on(config: Config, address: str) -> Config:
    """The configuration with another listen address."""
    try:
        listen = ListenConfig.model_validate({"address": address})
    except ValidationError as error:
        told = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ConfigInvalid([f"--listen: {told}"]) from None
    return config.model_copy(update={"listen": listen})
