"""The settings and variants that `ablate list` shows, with their meanings."""

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vitcore.config import Config
from vitcore.settings import Settings


def documented_settings() -> dict[str, str]:
    """Return setting -> its default and meaning, from the `#:` comments of the class Settings."""
    fields = re.findall(r"((?:^ +#: .*\n)*)^    (\w+): (.*)$", inspect.getsource(Settings), re.MULTILINE)
    meanings = {name: re.sub(r"\s*#: ", " ", above + " #: " + line.partition("#: ")[2]) for above, name, line in fields}
    described = {}
    for name, field in Config.model_fields.items():
        default = "" if field.is_required() or field.default in ("", {}) else f"[{field.default}] "
        described[name] = default + " ".join(meanings[name].split())
    return described


@dataclass(frozen=True)
class CatalogEntry:
    name: str
    about: str  # the first line of the variant's docstring
    options: Mapping[str, Any]  # option -> default, or None if the option is required


@dataclass(frozen=True)
class CatalogSlot:
    slot: str
    entries: list[CatalogEntry]


def catalog() -> list[CatalogSlot]:
    from vitcore.variants import VARIANTS  # imported here because torch is optional

    slots = []
    for slot, variants in VARIANTS.items():
        entries = []
        for name, variant in variants.items():
            fields = variant.Options.model_fields
            options = {option: None if field.is_required() else field.default for option, field in fields.items()}
            entries.append(CatalogEntry(name, (variant.__doc__ or "").strip().partition("\n")[0].strip(), options))
        slots.append(CatalogSlot(slot, entries))
    return slots
