"""The command `ablate list`, which lists studies, recipes, variants and settings."""

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import typer

from ablations.cli.answer import show_json
from ablations.cli.inputs import parameters
from ablations.cli.inputs.directories import load_plugins
from ablations.study.naming import packaged_names
from ablations.study.reading import read_recipe, read_study
from ablations.study.recipe import Recipe
from ablations.study.study import Study
from vitcore.config import Config
from vitcore.settings import Settings
from vitcore.variant import Variant


def list_(
    what: Annotated[
        Literal["studies", "recipes", "variants", "settings"] | None,
        typer.Argument(
            metavar="studies|recipes|variants|settings", help="What to list.", show_default="studies and recipes"
        ),
    ] = None,
    variants: Annotated[
        bool, typer.Option("--variants", help="List every position, pooling, stem and so on, with its options.")
    ] = False,
    settings: Annotated[
        bool, typer.Option("--settings", help="List every setting, with its default and meaning.")
    ] = False,
    plugin: parameters.Plugins = None,
    as_json: parameters.AsJson = False,
) -> None:
    """List studies, recipes, variants and settings.

    A study says what varies. A recipe says on what data, with which model and for how long.

    Examples:

        ablate list
        ablate list variants --plugin fourier.py
        ablate list settings
    """
    if settings or what == "settings":
        described = documented_settings()
        content: object = {"settings": described}
        width = max(map(len, described))
        text = "\n".join(f"{name:{width}}  {meaning}" for name, meaning in described.items())
    elif variants or what == "variants":
        load_plugins(plugin)
        content, text = {"variants": catalog()}, catalog_text(catalog())
    else:
        records: dict[str, Sequence[Study | Recipe]] = {
            "studies": [read_study(name) for name in packaged_names("studies")],
            "recipes": [read_recipe(name) for name in packaged_names("recipes")],
        }
        shown = {kind: found for kind, found in records.items() if what in (kind, None)}
        content = {kind: [one.model_dump() for one in found] for kind, found in shown.items()}
        width = max(len(one.name) for found in records.values() for one in found)
        lines = []
        for kind, found in shown.items():
            lines.append(kind.capitalize())
            lines += [f"  {one.name:{width}}  {summary(one)}" for one in found]
        text = "\n".join(lines)
    if as_json:
        show_json([content])
    else:
        print(text)


def summary(record: Study | Recipe) -> str:
    """Return a study's question, or the first sentence of a recipe's description."""
    return record.question if isinstance(record, Study) else record.description.split(". ")[0].rstrip(".")


def documented_settings() -> dict[str, str]:
    """Return setting -> its default and meaning, from the `#:` comments of the class Settings."""
    found = re.findall(r"((?:^ +#: .*\n)*)^    (\w+): (.*)$", inspect.getsource(Settings), re.MULTILINE)
    meanings = {name: re.sub(r"\s*#: ", " ", above + " #: " + line.partition("#: ")[2]) for above, name, line in found}
    described = {}
    for name, field in Config.model_fields.items():
        default = "" if field.is_required() or field.default in ("", {}) else f"[{field.default}] "
        described[name] = default + " ".join(meanings[name].split())
    return described


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
    from vitcore.variants import VARIANTS  # imported here because torch is optional

    return [Slot(slot, [entry(*one) for one in variants.items()]) for slot, variants in VARIANTS.items()]


def entry(name: str, variant: type[Variant]) -> Entry:
    fields = variant.Options.model_fields
    defaults = {option: None if field.is_required() else field.default for option, field in fields.items()}
    return Entry(name, (variant.__doc__ or "").strip().partition("\n")[0].strip(), defaults)


def catalog_text(slots: list[Slot]) -> str:
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
