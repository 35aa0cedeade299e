"""Configs of resolved settings, each validated once."""

import json
from functools import lru_cache

from results.store.schemas import Settings
from vitcore.config import Config


def config_of(settings: Settings) -> Config:
    """Return the config with resolved settings. Raises ConfigError if they are not valid."""
    return validated(json.dumps(settings, sort_keys=True))


@lru_cache(maxsize=4096)  # planning asks several times about each arm, and validation takes a millisecond
def validated(text: str) -> Config:
    return Config(**json.loads(text))
