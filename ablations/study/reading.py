"""The YAML files of studies and recipes: how they are found, read and checked."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from ablations.study import stages, strict_yaml
from ablations.study.recipe import Recipe
from ablations.study.stages import Values
from ablations.study.study import RECIPE_ARM, Axis, Study
from vitcore.config import Config
from vitcore.options import OTHER_NAMES, ConfigError, listed, nearest

HERE = Path(__file__).parents[1]
Record = TypeVar("Record", Study, Recipe)


def packaged(kind: str) -> list[str]:
    """Return the names of the packaged studies or recipes. kind: "studies" or "recipes"."""
    return sorted(path.stem for path in (HERE / kind).glob("*.yaml"))


def find(kind: str, name: str) -> Path:
    """Return the path of a study or recipe that is given by name or file.

    kind: "studies" or "recipes". Raises ValueError, with the nearest name, if the name or file does not exist.
    """
    path = Path(name)
    known = packaged(kind)
    if path.suffix in (".yaml", ".yml"):
        if not path.exists():
            beside = [str(one) for one in sorted(path.parent.glob("*.y*ml"))]
            raise ValueError(f"{path}: no such file{nearest(path, [*beside, *known])}")
        return path
    if name not in known:
        if path.is_dir() and kind == "recipes":
            raise ValueError(f"--recipe {name}: is a folder: `ablate init {name}` writes a recipe for its images")
        if path.with_name(f"{path.name}.yaml").is_file():
            raise ValueError(f"unknown name '{name}'; did you mean the file '{name}.yaml'?")
        single = {"studies": "study", "recipes": "recipe"}[kind]
        raise ValueError(f"unknown {single} '{name}'{nearest(name, known)} (known: {listed([*known, 'a .yaml file'])})")
    return HERE / kind / f"{name}.yaml"


def read_study(name: str) -> Study:
    """Return the study that is given by name or file.

    Raises ValueError, with the file and the key, if the study is not valid.
    """
    path = find("studies", name)
    study = typed(Study, path)
    check_varied(study, path)
    keys = [key for layer in (*layers(study), *axes_of(study)) for key in layer]
    stages.check(study.stages, keys, starts(study), path)
    check_text_names(study, path)
    return study


def read_recipe(name: str) -> Recipe:
    """Return the recipe that is given by name or file.

    Raises ValueError, with the file and the key, if the recipe is not valid.
    """
    path = find("recipes", name)
    recipe = typed(Recipe, path)
    known = [*Config.model_fields, *Config.shorthands]
    for where, layer in {"config": recipe.config, **recipe.arms, **recipe.stages}.items():
        for key in layer:
            if "." not in key and key not in (*known, RECIPE_ARM):
                meant = nearest(OTHER_NAMES.get(key, key), known) or ": `ablate list --settings` names all"
                raise ValueError(f"{path}: {where}: unknown key '{key}'{meant}")
    for axis, values in recipe.axes.items():
        refuse_duplicates(path, axis, values)
    return recipe


def typed(record: type[Record], path: Path) -> Record:
    """Return the content of a YAML file as a study or a recipe. record: Study or Recipe.

    Raises ValueError, with the file and the key, if the content is not valid.
    """
    content = stages.plain_starts(strict_yaml.read(path))
    for key in content.keys() - record.model_fields.keys():
        if record is Recipe and (setting := OTHER_NAMES.get(key, key)) in Config.model_fields:
            raise ValueError(f"{path}: unknown key '{key}'; did you mean '{setting}' below 'config:'?")
    try:
        return record(**{"name": path.stem, **content})
    except ConfigError as error:
        raise ValueError(f"{path}: {error}") from None


def check_varied(study: Study, path: Path) -> None:
    """Raise ValueError if nothing varies, a setting varies twice, or a list is empty or repeats a value."""
    axes = list(itertools.chain.from_iterable(group.items() for group in axes_of(study)))
    if not axes and not study.arms:
        raise ValueError(f"{path}: nothing varies: give factors, crosses, curves or arms")
    for arm in study.arms:
        if not arm.strip():
            raise ValueError(f"{path}: arms: {arm!r}: an arm needs a name")
    for axis, values in axes:
        refuse_unvariable(path, axis)
        if isinstance(values, list):
            refuse_duplicates(path, axis, values)
            if not values:
                raise ValueError(f"{path}: {axis} lists no value")
    crossed = {key for cross in study.crosses for key in cross}
    groups = {"factors": {*study.factors}, "crosses": crossed, "curves": {*study.curves}, "tune": {*study.tune}}
    for one, other in itertools.combinations(groups, 2):
        clash = groups[one] & groups[other]
        if clash and (one, other) != ("factors", "crosses"):  # a factor may be crossed
            raise ValueError(f"{path}: {listed(clash)} stands in {one} and in {other}")
    for cross in study.crosses:
        if len(cross) < 2:
            raise ValueError(f"{path}: crosses: {listed(cross) or 'nothing'} alone is no product: name two factors")


def check_text_names(study: Study, path: Path) -> None:
    """Raise ValueError if a name in `published`, `with` or `claims` cannot be the name of an arm."""
    varied = list(dict.fromkeys(key for group in axes_of(study) for key in group))
    for where, settings in study.co_changes.items():
        if clash := settings.keys() & set(varied):
            raise ValueError(f"{path}: with: {where}: {listed(clash)} is what the study varies")
    claimed = [arm for claim in study.claims for arm in claim_arms(claim, path)]
    for name in [*study.published, *study.co_changes, *claimed]:
        key = name.partition("=")[0]
        named = any(name == arm or name.startswith(f"{arm},") for arm in (*study.arms, "baseline"))
        if key not in varied and not named:
            raise ValueError(f"{path}: '{name}' names no arm: arms begin with one of {listed([*varied, *study.arms])}")


def starts(study: Study) -> list[tuple[str, Any]]:
    """Return (key, value) for each value that the study gives to init_from or teacher, which may name a stage."""
    lists = [(key, axis[key]) for axis in axes_of(study) for key in stages.LINKS if isinstance(axis.get(key), list)]
    found = [(key, value) for key, values in lists for value in values]
    return [*found, *((key, layer[key]) for layer in layers(study) for key in stages.LINKS if key in layer)]


def layers(study: Study) -> list[Values]:
    """Return the written settings of the baseline, of each stage, of each co-change and of each named arm."""
    named = [without_recipe_arm(settings) for settings in study.arms.values() if isinstance(settings, dict)]
    return [study.baseline, *study.stages.values(), *study.co_changes.values(), *named]


def without_recipe_arm(settings: Values) -> Values:
    """Return the settings of a named arm without the key that names the recipe's arm to extend."""
    return {key: value for key, value in settings.items() if key != RECIPE_ARM}


def axes_of(study: Study) -> list[dict[str, Axis]]:
    """Return the mappings from a setting to its values: factors, each cross, curves and tuned settings."""
    return [study.factors, *study.crosses, study.curves, study.tune]


def refuse_unvariable(path: Path, key: str) -> None:
    """Raise ValueError if a key is no setting, or is a setting that cannot vary, such as a seed."""
    reasons = {
        "seed": "seeds are given with --seeds",
        "data_seed": "it is what pairs the arms",
        "model": "name width, depth, heads or patch, or give models as arms",
        "epochs": "give steps",
    }
    if key in reasons:
        raise ValueError(f"{path}: {key} cannot be a factor or curve: {reasons[key]}")
    if key not in Config.model_fields and "." not in key:
        raise ValueError(f"{path}: {key} is no setting{nearest(key, Config.model_fields)}")


def claim_arms(claim: str, where: object) -> tuple[str, str]:
    """Return the names of the two arms in a claim. Raises ValueError if the claim has no sign."""
    left, _, right = claim_parts(claim, where)
    return left, right


def claim_parts(claim: str, where: object) -> tuple[str, str, str]:
    """Return the parts of a claim such as 'a < b' or 'a ~ b': arm, sign, arm.

    The sign has its surrounding blanks. where: the beginning of the message. Raises ValueError if the claim has neither
    sign.
    """
    for sign in (" < ", " ~ "):
        left, found, right = claim.partition(sign)
        if found:
            return left.strip(), sign, right.strip()
    raise ValueError(f"{where}: claim '{claim}' is neither 'arm < arm' nor 'arm ~ arm'")


def refuse_duplicates(path: Path, axis: str, values: Sequence[Any]) -> None:
    """Raise ValueError if an axis lists a value twice."""
    for position, value in enumerate(values):
        if value in values[:position]:
            raise ValueError(f"{path}: {axis} lists {value} twice")
