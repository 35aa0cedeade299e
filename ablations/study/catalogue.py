"""`ablate list --variants`: every slot, its entries, and the options of each entry."""

from typing import Any

from vitcore.variant import Variant
from vitcore.variants import VARIANTS

Json = dict[str, Any]


def catalogue() -> list[Json]:
    """One object per slot: its name and its entries in the order of their dictionary, plug-ins last."""
    return [{"slot": slot, "entries": [entry(*one) for one in variants.items()]} for slot, variants in VARIANTS.items()]


def entry(name: str, variant: type[Variant]) -> Json:
    """An entry's name, the first line of its docstring, its options with defaults (null: required)."""
    about = (variant.__doc__ or "").strip().partition("\n")[0]
    fields = variant.Options.model_fields
    defaults = {option: None if field.is_required() else field.default for option, field in fields.items()}
    return {"name": name, "about": about.strip(), "options": defaults}


def render(slots: list[Json]) -> str:
    """One line per entry, its options below as they are spelled on a command line."""
    width = max(len(one["name"]) for slot in slots for one in slot["entries"])
    lines = []
    for slot in slots:
        lines.append(slot["slot"])
        for one in slot["entries"]:
            lines.append(f"  {one['name']:{width}}  {one['about']}")
            spelt = [f"{slot['slot']}.{option}={default}" for option, default in one["options"].items()]
            if spelt:
                lines.append(f"  {'':{width}}  {'  '.join(spelt)}")
    return "\n".join(lines)
