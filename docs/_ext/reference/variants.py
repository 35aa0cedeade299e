"""A page for each slot of a config: every variant with its docstring and its options."""

import inspect

from reference import fields
from reference.markup import fence, prose, table, toctree
from vitcore.config import Config
from vitcore.variant import Variant
from vitcore.variants import VARIANTS


def pages() -> dict[str, str]:
    return {"index.md": overview(), **{f"{slot}.md": page(slot, entries) for slot, entries in VARIANTS.items()}}


def overview() -> str:
    rows = [
        [
            f"[`{slot}`]({slot}.md)",
            ", ".join(f"{{variant}}`{name} <{slot}={name}>`" for name in entries) or "of plug-ins",
        ]
        for slot, entries in VARIANTS.items()
    ]
    return "\n".join(
        [
            "# Variants\n",
            "A setting that chooses a part of the model or of its training takes one of these names. "
            "`ablate list variants` prints them, with the variants of your plug-ins.\n",
            table(["setting", "variants"], rows),
            toctree(VARIANTS),
        ]
    )


def page(slot: str, entries: dict[str, type[Variant]]) -> str:
    """Return the page of a slot. An option that several variants share is indexed once, at the first."""
    default, seen = Config.model_fields[slot].default, set[str]()
    default_text = f"The default is `{slot}={default}`." if default else "Plug-ins add them."
    lines = [f"# {slot}\n", f"Set with `{slot}=NAME`. {default_text}\n"]
    for name, variant in entries.items():
        options = list(fields.keys(variant.Options))
        inner = [fields.entry(option, slot=slot, index=option.name not in seen) for option in options]
        about = [prose(inspect.getdoc(variant) or "")]
        places = ", ".join(f"`{place}`" for place in getattr(variant, "places", ()))
        if places:  # where a position embedding is added
            about.append(f"{{setting}}`position_at`: {places}.")
        lines.append(fence("variant", f"{slot}={name}", "\n\n".join([*about, *inner])))
        seen |= {option.name for option in options}
    return "\n".join(lines)
