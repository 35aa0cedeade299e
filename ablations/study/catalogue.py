"""`ablate list --variants`: every slot, what it may be, and the options that each entry alone understands."""

from typing import Any

from vitcore.variant import Variant
from vitcore.variants import VARIANTS

Json = dict[str, Any]


def catalogue() -> list[Json]:
    """An object a slot: its name and its entries, in the order of their dict, those of plugins last."""
    return [{"slot": slot, "entries": [entry(*one) for one in variants.items()]} for slot, variants in VARIANTS.items()]


def entry(name: str, variant: type[Variant]) -> Json:
    """Its name, what its docstring begins with, its options with their defaults (null: it has to be given)."""
    about = (variant.__doc__ or "").strip().partition("\n")[0]
    fields = variant.Options.model_fields
    defaults = {option: None if field.is_required() else field.default for option, field in fields.items()}
    return {"name": name, "about": about.strip(), "options": defaults}


def render(slots: list[Json]) -> str:
    """For a person: a line an entry, its options below it as they are spelt."""
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
