"""Find, read and check the YAML files of studies and recipes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from ablations.study import key_checks, stages, strict_yaml
from ablations.study.naming import HERE, RECIPE, packaged_names
from ablations.study.recipe import Recipe
from ablations.study.study import Study
from ablations.trainables.function import is_function
from ablations.trainables.trainable import VIT, find
from commonfloor.messages import spelling_hint, usual_name
from commonfloor.options import ConfigError

Record = TypeVar("Record", Study, Recipe)


def find_file(kind: str, name: str) -> Path:
    """Return the path of the YAML file of a study or recipe, given its name or path.

    kind: "studies" or "recipes". Raises a ValueError that suggests a similar name if the name or file does not exist.
    """
    path = Path(name)
    packaged = packaged_names(kind)
    if path.suffix in (".yaml", ".yml"):
        if not path.exists():
            intended = path.stem if path.stem in packaged else path
            names = [*map(str, sorted(path.parent.glob("*.y*ml"))), *packaged]
            raise ValueError(f"{path}: no such file{spelling_hint(intended, names)}")
        return path
    if name not in packaged:
        raise ValueError(unknown_name(kind, name))
    return HERE / kind / f"{name}.yaml"


def unknown_name(kind: str, name: str) -> str:
    """Return the message that no study or recipe has a name, with what was probably meant. kind: as in `find_file`."""
    path = Path(name)
    packaged = packaged_names(kind)
    is_study = kind == "studies"
    if path.is_dir():
        option = "" if is_study else "--recipe "
        return f"{option}{name}: is a folder: `ablate init {name}` writes a recipe for its images"
    if path.with_name(f"{path.name}.yaml").is_file():
        return f"unknown name '{name}'; did you mean the file '{name}.yaml'?"
    if is_study and name in packaged_names("recipes"):
        return f"{name}: is one of the recipes, not a study: name a study, with --recipe {name}"
    if not is_study and name in packaged_names("studies"):
        return f"{name}: is one of the studies, not a recipe: see `ablate show {name}`"
    intended = name
    for part in (name.partition("@")[0], path.stem):  # of demo@digits, of studies/demo
        if part in packaged:
            intended = part
    hint = spelling_hint(intended, packaged)
    setting = usual_name(name)
    if is_study and setting in find(VIT).keys and not hint:
        return f"'{name}': is a setting, not a study: {setting}=VALUE"
    single = "study" if is_study else "recipe"
    return f"unknown {single} '{name}'{hint} (`ablate list` shows all; or give a .yaml file)"


def read_study(name: str, recipe: Recipe | None = None) -> Study:
    """Return a study, given its name or YAML file. Raises a ValueError that names file and key if it is not valid.

    recipe: what the study may vary is a setting of what it trains. None stands for ViTs.
    """
    path = find_file("studies", name)
    study = read_record(Study, path)
    trainable = find(recipe.trainable if recipe else VIT)
    try:
        key_checks.validate_study(study, path, trainable)
    except key_checks.UnknownSetting as error:
        if recipe is None or recipe.is_of_user or recipe.name != RECIPE:
            raise
        raise ValueError(
            f"{error} (on recipe {RECIPE}, the default: give that of your own code as --recipe FILE)"
        ) from None
    return study.along_data(trainable.data_key)


def read_recipe(name: str) -> Recipe:
    """Return a recipe, given its name or YAML file. Raises a ValueError that names file and key if it is not valid."""
    path = find_file("recipes", name)
    recipe = read_record(Recipe, path)
    if not recipe.config and not is_function(recipe.train):
        raise ValueError(f"{path}: 'config' is missing")
    if recipe.is_of_user:
        recipe = recipe.model_copy(update={"folder": str((path.parent / recipe.folder).resolve())})
    try:
        trainable = find(recipe.trainable)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    key_checks.validate_recipe(recipe, path, trainable)
    return recipe


def kind_of(content: Mapping[str, Any]) -> str:
    """Return "study" or "recipe", whichever has more of the keys that only one of them knows, or "" for a tie."""
    keys = {kind: {field.alias or name for name, field in kind.model_fields.items()} for kind in (Study, Recipe)}
    of_studies = content.keys() & (keys[Study] - keys[Recipe])
    of_recipes = content.keys() & (keys[Recipe] - keys[Study])
    if len(of_studies) == len(of_recipes):
        return ""
    return "study" if len(of_studies) > len(of_recipes) else "recipe"


def read_record(record: type[Record], path: Path) -> Record:
    """Return the study or recipe in a YAML file. Raises ValueError if the file, a key or a value is not valid."""
    content = stages.flatten_starts(strict_yaml.read(path))
    kind = kind_of(content)
    wanted = record.__name__.lower()
    if kind not in (wanted, ""):
        instead = f": give it as --recipe {path}" if kind == "recipe" else ""
        raise ValueError(f"{path}: is a {kind}, not a {wanted}{instead}")
    if record is Recipe:
        for key in content.keys() - Recipe.model_fields.keys():
            setting = usual_name(key)
            if setting in find(VIT).keys:
                raise ValueError(f"{path}: unknown key '{key}'; did you mean '{setting}' below 'config:'?")
    try:
        return record(**{"name": path.stem, **content})
    except ConfigError as error:
        raise ValueError(f"{path}: {error}") from None
