"""The catalog of all variants and their options, for `ablate list --variants`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vitcore.variant import Variant
from vitcore.variants import VARIANTS


@dataclass(frozen=True)
class Entry:
    name: str
    about: str  # the first line of the variant's docstring
    options: Mapping[str, Any]  # option -> default, or None if the option is required


@dataclass(frozen=True)
class Slot:
    """A slot and its variants in the order of their dictionary. Variants of plug-ins come last."""

    slot: str
    entries: list[Entry]


def catalog() -> list[Slot]:
    """Return all slots with their variants, including the variants of loaded plug-ins."""
    return [Slot(slot, [entry(*one) for one in variants.items()]) for slot, variants in VARIANTS.items()]


def entry(name: str, variant: type[Variant]) -> Entry:
    fields = variant.Options.model_fields
    defaults = {option: None if field.is_required() else field.default for option, field in fields.items()}
    return Entry(name, (variant.__doc__ or "").strip().partition("\n")[0].strip(), defaults)


def render(slots: list[Slot]) -> str:
    """Return the catalog as text: a line per variant, followed by its options as the command line takes them."""
    width = max(len(one.name) for slot in slots for one in slot.entries)
    lines = []
    for slot in slots:
        lines.append(slot.slot)
        for one in slot.entries:
            lines.append(f"  {one.name:{width}}  {one.about}")
            spelt = [f"{slot.slot}.{option}={default}" for option, default in one.options.items()]
            if spelt:
                lines.append(f"  {'':{width}}  {'  '.join(spelt)}")
    return "\n".join(lines)
