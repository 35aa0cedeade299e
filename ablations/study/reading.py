"""Find, read and check the YAML files of studies and recipes, and what the command line sets in a study."""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ablations.study import strict_yaml
from ablations.study.arms import Values
from ablations.study.naming import HERE, RECIPE, packaged_names
from ablations.study.recipe import Recipe
from ablations.study.stages import FINETUNE, flatten_starts
from ablations.study.study import Study
from ablations.trainables.function import is_function
from ablations.trainables.trainable import VIT, Trainable, find
from commonfloor.messages import joined_names, spelling_hint, unknown_key, usual_name
from commonfloor.options import ConfigError

Record = TypeVar("Record", Study, Recipe)
STAGE = re.compile("[a-z][a-z0-9-]*")
RESERVED = {"none", FINETUNE, "arm"}  # names that a stage cannot have, besides those of settings
LENGTHS = ("steps", "epochs")  # two settings of one thing
FIXED = {"seed": "seeds are given with --seeds"}  # settings that cannot vary -> why


def find_file(kind: str, name: str) -> Path:
    """Return the path of the YAML file of a study or recipe, given its name or path. kind: "studies" or "recipes"."""
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
        validate_study(study, path, trainable)
    except UnknownSetting as error:
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
    validate_recipe(recipe, path, trainable)
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
    content = flatten_starts(strict_yaml.read(path))
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


# -- checks of keys and names ------------------------------------------------------------------------------------------


class UnknownSetting(ValueError):
    """Raised if a key is not a setting of what the recipe trains."""


def validate_study(study: Study, path: Path, trainable: Trainable) -> None:
    for name in study.stages:
        if name in {*RESERVED, *trainable.keys} or not STAGE.fullmatch(name):
            raise ValueError(f"{path}: stages: {name}: a name of small letters, digits and '-' that nothing else has")
    for where, layer in study.layers():
        for key in layer:
            check_setting(key, f"{path}: {where}: ", trainable, study.stages)
    check_varied(study, path, trainable)
    for key, start in study.starts():
        if start not in study.stages:
            try:
                trainable.check_link(key, str(start))
            except ValueError as error:
                stages = f"; stages are {joined_names(study.stages)}" if study.stages else ""
                raise ValueError(f"{path}: {error}{stages}{spelling_hint(start, study.stages)}") from None
    for where, settings in study.co_changes.items():
        clash = settings.keys() & {*study.varied_settings}
        if clash:
            raise ValueError(f"{path}: with: {where}: {joined_names(clash)} is what the study varies")


def validate_recipe(recipe: Recipe, path: Path, trainable: Trainable) -> None:
    for where, layer in {"config": recipe.config, **recipe.arms, **recipe.stages}.items():
        for key in layer:
            check_setting(key, f"{path}: {where}: ", trainable)
    for axis, values in recipe.axes.items():
        refuse_duplicates(path, axis, values)
    keys = {"probe": recipe.probe, "inert": recipe.inert}
    for where, settings in keys.items():
        if settings and not trainable.is_probed:
            raise ValueError(f"{path}: {where}: is for a command or function: what this recipe trains needs no probe")
        for key in settings:
            check_setting(key, f"{path}: {where}: ", trainable)
    if recipe.probe:
        try:
            trainable.resolve({**recipe.config, **recipe.probe})
        except ValueError as error:
            raise ValueError(f"{path}: probe: {error}") from None


def check_setting(key: str, where: str, trainable: Trainable, stages: Collection[str] = ()) -> None:
    """Raise UnknownSetting if a key is not a setting such as lr or pretrain.lr, and ValueError if it is a seed.

    where: the beginning of the message. stages: the names that may come before a dot.
    """
    stage, dot, _ = key.partition(".")
    prefix = f"{stage}." if stage in stages else ""
    setting = key.removeprefix(prefix)
    if prefix and setting in ("seed", "data_seed"):
        raise ValueError(f"{where}{key}: a stage has the seeds of what starts from it")
    if setting == "seed":
        raise ValueError(f"{where}{key}: the seeds of a study are set with --seeds N")
    if setting.partition(".")[0] not in trainable.keys and (prefix or not dot):  # resolving checks options
        names = [prefix + name for name in trainable.keys]
        listed = ": `ablate list --settings` names all"
        if trainable.is_probed:  # code of the user's
            listed = f": the recipe's settings are {joined_names(names)}"
        raise UnknownSetting(where + unknown_key(key, names, listed))


def check_varied(study: Study, path: Path, trainable: Trainable) -> None:
    """Raise ValueError if nothing varies, or if an axis, its values, the name of an arm or a cross cannot be used."""
    if not study.varied_settings and not study.arms:
        raise ValueError(f"{path}: nothing varies: give factors, crosses, curves or arms")
    for arm in study.arms:
        if not arm.strip():
            raise ValueError(f"{path}: arms: {arm!r}: an arm needs a name")
    fixed = {**FIXED, **trainable.fixed}
    varied_in: dict[str, str] = {}
    for where, group in study.axes():
        for axis, values in group.items():
            if axis in fixed:
                raise ValueError(f"{path}: {axis} cannot be a factor or curve: {fixed[axis]}")
            check_setting(axis, f"{path}: {where}: ", trainable, study.stages)
            if isinstance(values, list):
                refuse_duplicates(path, axis, values)
            if not values:
                raise ValueError(f"{path}: {axis} lists no value")
            first = varied_in.setdefault(axis, where)
            if (first, where) not in ((where, where), ("factors", "crosses")):  # a factor may be crossed
                raise ValueError(f"{path}: {axis} stands in {first} and in {where}")
    for cross in study.crosses:
        if len(cross) < 2:
            names = joined_names(cross) or "nothing"
            raise ValueError(f"{path}: crosses: {names}: a cross needs at least two factors")


def refuse_duplicates(path: Path, axis: str, values: Sequence[Any]) -> None:
    for position, value in enumerate(values):
        if value in values[:position]:
            raise ValueError(f"{path}: {axis} lists {value} twice")


def check_overrides(study: Study, overrides: Values, trainable: Trainable) -> None:
    """Raise ValueError if a stage or setting is unknown, or a key sets for all stages what the study sets for one."""
    stages = [*study.stages, FINETUNE]
    for key, value in overrides.items():
        name, dot, _ = key.partition(".")
        if name in stages:
            check_setting(key, "", trainable, stages)
            continue
        if dot and name not in trainable.keys:
            raise ValueError(
                f"{key}={value}: the stages of the study '{study.name}' are {joined_names(stages)}"
                f"{spelling_hint(name, stages)}"
            )
        taken = [stage for stage in study.stages if is_set(study, stage, key)]
        if taken:
            others = " or ".join(f"{stage}.{key}={value}" for stage in stages if stage not in taken)
            raise ValueError(
                f"{key}={value} applies to all stages, but the study '{study.name}' sets it for "
                f"{joined_names(taken)}: for one stage, use {others}"
            )


def is_set(study: Study, stage: str, key: str) -> bool:
    """Return whether the study sets or varies a setting of a stage. `steps` and `epochs` count as one setting."""
    names = LENGTHS if key in LENGTHS else (key,)
    varied = study.varied_settings
    return any(name in study.stages[stage] or f"{stage}.{name}" in varied for name in names)
