"""Check the keys and names in studies and recipes, and command-line keys for studies with stages."""

import itertools
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from ablations.study.arms import Values
from ablations.study.recipe import Recipe
from ablations.study.stages import FINETUNE
from ablations.study.study import Study
from ablations.trainables.trainable import Trainable
from commonfloor.messages import joined_names, spelling_hint, unknown_key
from results.records import claimed_arms

STAGE = re.compile("[a-z][a-z0-9-]*")
RESERVED = {"none", FINETUNE, "arm"}  # names that a stage cannot have, besides those of settings
FIXED = {"seed": "seeds are given with --seeds"}  # settings that cannot vary -> why


def validate_study(study: Study, path: Path, trainable: Trainable) -> None:
    """Raise a ValueError that names file and key if a setting, value or name of a study cannot be used."""
    for name in study.stages:
        if name in {*RESERVED, *trainable.keys} or not STAGE.fullmatch(name):
            raise ValueError(f"{path}: stages: {name}: a name of small letters, digits and '-' that nothing else has")
    for where, layer in study.layers():
        for key in layer:
            check_setting(key, f"{path}: {where}: ", trainable.keys, study.stages)
    check_varied(study, path, trainable)
    for key, start in study.starts():
        if start not in study.stages:
            try:
                trainable.check_link(key, str(start))
            except ValueError as error:
                known = f"; stages are {joined_names(study.stages)}" if study.stages else ""
                raise ValueError(f"{path}: {error}{known}{spelling_hint(start, study.stages)}") from None
    check_text_names(study, path)


def validate_recipe(recipe: Recipe, path: Path, trainable: Trainable) -> None:
    """Raise a ValueError that names file and key if a setting is unknown or an axis repeats a value."""
    for where, layer in {"config": recipe.config, **recipe.arms, **recipe.stages}.items():
        for key in layer:
            check_setting(key, f"{path}: {where}: ", trainable.keys)
    for axis, values in recipe.axes.items():
        refuse_duplicates(path, axis, values)


def check_setting(key: str, where: str, settings: Collection[str], stages: Collection[str] = ()) -> None:
    """Raise ValueError if a key is not a setting such as lr or pretrain.lr, or is a seed that may not be set.

    where: the beginning of the message. settings: all known keys. stages: the names that may come before a dot.
    """
    stage, dot, rest = key.partition(".")
    prefix, own = (f"{stage}.", rest) if stage in stages else ("", key)
    if prefix and own in ("seed", "data_seed"):
        raise ValueError(f"{where}{key}: a stage has the seeds of what starts from it")
    if own == "seed":
        raise ValueError(f"{where}{key}: the seeds of a study are set with --seeds N")
    if own.partition(".")[0] not in settings and (prefix or not dot):  # resolving checks options
        known = [prefix + one for one in settings]
        raise ValueError(where + unknown_key(key, known, ": `ablate list --settings` names all"))


def check_varied(study: Study, path: Path, trainable: Trainable) -> None:
    """Raise ValueError if a study varies nothing, or varies a setting that is unknown, fixed or already varied.

    Also raises it if an arm has no name, values are missing or repeated, or a cross has fewer than two factors.
    """
    axes = [(where, *axis) for where, group in study.axes() for axis in group.items()]
    if not axes and not study.arms:
        raise ValueError(f"{path}: nothing varies: give factors, crosses, curves or arms")
    for arm in study.arms:
        if not arm.strip():
            raise ValueError(f"{path}: arms: {arm!r}: an arm needs a name")
    fixed = {**FIXED, **trainable.fixed}
    for where, axis, values in axes:
        if axis in fixed:
            raise ValueError(f"{path}: {axis} cannot be a factor or curve: {fixed[axis]}")
        check_setting(axis, f"{path}: {where}: ", trainable.keys, study.stages)
        if isinstance(values, list):
            refuse_duplicates(path, axis, values)
            if not values:
                raise ValueError(f"{path}: {axis} lists no value")
    groups: dict[str, set[str]] = {}
    for where, axis, _ in axes:
        groups.setdefault(where, set()).add(axis)
    for one, other in itertools.combinations(groups, 2):
        clash = groups[one] & groups[other]
        if clash and (one, other) != ("factors", "crosses"):  # a factor may be crossed
            raise ValueError(f"{path}: {joined_names(clash)} stands in {one} and in {other}")
    for cross in study.crosses:
        if len(cross) < 2:
            names = joined_names(cross) or "nothing"
            raise ValueError(f"{path}: crosses: {names}: a cross needs at least two factors")


def refuse_duplicates(path: Path, axis: str, values: Sequence[Any]) -> None:
    for position, value in enumerate(values):
        if value in values[:position]:
            raise ValueError(f"{path}: {axis} lists {value} twice")


def check_text_names(study: Study, path: Path) -> None:
    """Raise ValueError if `published`, `with` or `claims` names no possible arm, or `with` sets a varied setting."""
    varied = study.varied_settings
    for where, settings in study.co_changes.items():
        if clash := settings.keys() & set(varied):
            raise ValueError(f"{path}: with: {where}: {joined_names(clash)} is what the study varies")
    claimed = [arm for claim in study.claims for arm in claimed_arms(claim)]
    for name in [*study.published, *study.co_changes, *claimed]:
        key = name.partition("=")[0]
        named = any(name == arm or name.startswith(f"{arm},") for arm in (*study.arms, "baseline"))
        if key not in varied and not named:
            raise ValueError(
                f"{path}: '{name}' names no arm: arms begin with one of {joined_names([*varied, *study.arms])}"
            )


def check_overrides(study: Study, overrides: Values, settings: Collection[str]) -> None:
    """Raise ValueError if a stage or setting is unknown, or if a key sets for all stages what the study sets for one.

    A key for one stage, such as pretrain.lr, may replace the study's value. Resolving checks the other keys.
    settings: all known keys.
    """
    alone = [*study.stages, FINETUNE]
    for key, one in overrides.items():
        name, dot, _ = key.partition(".")
        if name in alone:
            check_setting(key, "", settings, alone)
        elif dot and name not in settings:
            raise ValueError(
                f"{key}={one}: the stages of the study '{study.name}' are {joined_names(alone)}"
                f"{spelling_hint(name, alone)}"
            )
        elif taken := [stage for stage, own in study.stages.items() if is_set(stage, key, own, study.varied_settings)]:
            others = " or ".join(f"{stage}.{key}={one}" for stage in alone if stage not in taken)
            raise ValueError(
                f"{key}={one} applies to all stages, but the study '{study.name}' sets it for "
                f"{joined_names(taken)}: for one stage, use {others}"
            )


def is_set(stage: str, key: str, own: Values, varied: Iterable[str]) -> bool:
    """Return whether the study sets or varies a setting of a stage. `steps` and `epochs` count as one setting.

    own: settings that the study writes for the stage. varied: keys that the study varies.
    """
    same = {"steps", "epochs"} if key in ("steps", "epochs") else {key}
    return bool(same & own.keys() or {f"{stage}.{one}" for one in same} & set(varied))
