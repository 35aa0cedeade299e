"""Check the keys and names in studies and recipes, and command-line keys for studies with stages."""

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from ablations.study.arms import Values
from ablations.study.recipe import Recipe
from ablations.study.stages import FINETUNE
from ablations.study.study import Study
from ablations.trainables.trainable import Trainable
from commonfloor.messages import joined_names, spelling_hint, unknown_key

STAGE = re.compile("[a-z][a-z0-9-]*")
RESERVED = {"none", FINETUNE, "arm"}  # names that a stage cannot have, besides those of settings
LENGTHS = ("steps", "epochs")  # two settings of one thing
FIXED = {"seed": "seeds are given with --seeds"}  # settings that cannot vary -> why


class UnknownSetting(ValueError):
    """Raised if a key is not a setting of what the recipe trains."""


def validate_study(study: Study, path: Path, trainable: Trainable) -> None:
    """Raise a ValueError that names file and key if a setting, value or name of a study cannot be used."""
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
    """Raise a ValueError that names file and key if a setting is unknown or an axis repeats a value."""
    for where, layer in {"config": recipe.config, **recipe.arms, **recipe.stages}.items():
        for key in layer:
            check_setting(key, f"{path}: {where}: ", trainable)
    for axis, values in recipe.axes.items():
        refuse_duplicates(path, axis, values)
    check_probe(recipe, path, trainable)


def check_probe(recipe: Recipe, path: Path, trainable: Trainable) -> None:
    """Raise a ValueError that names file and key if a recipe's `probe` or `inert` cannot be used."""
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
    """Raise UnknownSetting if a key is not a setting such as lr or pretrain.lr.

    Raises ValueError if it is a seed that may not be set. where: the beginning of the message. stages: the names that
    may come before a dot.
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
    """Raise ValueError if a study varies nothing, or varies a setting that is unknown, fixed or already varied.

    Also raises it if an arm has no name, values are missing or repeated, or a cross has fewer than two factors.
    """
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
    """Raise ValueError if a stage or setting is unknown, or if a key sets for all stages what the study sets for one.

    A key for one stage, such as pretrain.lr, may replace the study's value. Resolving checks the other keys.
    """
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
