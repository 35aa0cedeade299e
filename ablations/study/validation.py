"""Validation of studies and recipes: unknown settings, what cannot vary, names that no arm has."""

import itertools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ablations.study.recipe import Recipe
from ablations.study.stages import FINETUNE, Values
from ablations.study.study import RECIPE_ARM, Study, claim_arms
from vitcore.config import Config
from vitcore.options import OTHER_NAMES, listed, nearest
from vitcore.training import parents

STAGE = re.compile("[a-z][a-z0-9-]*")
RESERVED = {*Config.model_fields, "none", FINETUNE, "arm"}  # no names of stages


def validate_study(study: Study, path: Path) -> None:
    """Raise ValueError, with the file and the key, if a setting, value or name of a study cannot be used."""
    check_varied(study, path)
    refuse_unknown(study.baseline, f"{path}: baseline")
    for name, layer in study.arms.items():
        refuse_unknown(layer if isinstance(layer, dict) else {}, f"{path}: {name}")
    check_stages(study, path)
    check_text_names(study, path)


def validate_recipe(recipe: Recipe, path: Path) -> None:
    """Raise ValueError if a setting of a recipe is unknown or an axis repeats a value.

    The message has the file and the key.
    """
    for where, layer in {"config": recipe.config, **recipe.arms, **recipe.stages}.items():
        refuse_unknown(layer, f"{path}: {where}")
    for axis, values in recipe.axes.items():
        refuse_duplicates(path, axis, values)


def refuse_unknown(layer: Values, where: str) -> None:
    """Raise ValueError if a key is no setting, or not spelled as an option. where: the beginning of the message."""
    known = [*Config.model_fields, *Config.shorthands]
    for key in layer:
        if "." not in key and key not in (*known, RECIPE_ARM):
            meant = nearest(OTHER_NAMES.get(key, key), known) or ": `ablate list --settings` names all"
            raise ValueError(f"{where}: unknown key '{key}'{meant}")


def check_varied(study: Study, path: Path) -> None:
    """Raise ValueError if nothing varies, a setting cannot vary or varies twice, or an arm has no name.

    Raises ValueError too if a list of values is empty or repeats a value. A cross of fewer than two factors is an error
    as well.
    """
    axes = list(itertools.chain.from_iterable(group.items() for group in study.axes()))
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
    """Raise ValueError if a name in `published`, `with` or `claims` cannot be the name of an arm.

    Raises ValueError too if a claim has no sign, or if `with` sets a setting that the study varies.
    """
    varied = list(dict.fromkeys(key for group in study.axes() for key in group))
    for where, settings in study.co_changes.items():
        if clash := settings.keys() & set(varied):
            raise ValueError(f"{path}: with: {where}: {listed(clash)} is what the study varies")
    claimed = [arm for claim in study.claims for arm in claim_arms(claim, path)]
    for name in [*study.published, *study.co_changes, *claimed]:
        key = name.partition("=")[0]
        named = any(name == arm or name.startswith(f"{arm},") for arm in (*study.arms, "baseline"))
        if key not in varied and not named:
            raise ValueError(f"{path}: '{name}' names no arm: arms begin with one of {listed([*varied, *study.arms])}")


def refuse_unvariable(path: Path, key: str) -> None:
    """Raise ValueError if a key is no setting of a trial, or one that cannot vary, such as a seed."""
    reasons = {
        "seed": "seeds are given with --seeds",
        "data_seed": "it is what pairs the arms",
        "model": "name width, depth, heads or patch, or give models as arms",
        "epochs": "give steps",
    }
    if key in reasons:
        raise ValueError(f"{path}: {key} cannot be a factor or curve: {reasons[key]}")
    if key not in Config.model_fields and "." not in key:
        raise ValueError(f"{path}: unknown key '{key}'{nearest(key, Config.model_fields)}")


def refuse_duplicates(path: Path, axis: str, values: Sequence[Any]) -> None:
    """Raise ValueError if an axis lists a value twice."""
    for position, value in enumerate(values):
        if value in values[:position]:
            raise ValueError(f"{path}: {axis} lists {value} twice")


def check_stages(study: Study, path: Path) -> None:
    """Raise ValueError if a stage's name or setting is invalid, or a trial starts or learns from an unknown stage."""
    for name in study.stages:
        if name in RESERVED or not STAGE.fullmatch(name):
            raise ValueError(f"{path}: stages: {name}: a name of small letters, digits and '-' that nothing else has")
    for layer in (*study.layers(), *study.axes()):
        for key in layer:
            if key.partition(".")[0] in study.stages:
                check_setting(key, f"{path}: ")
    for key, start in study.starts():
        if start not in study.stages:
            try:
                parents.normalized(key, str(start))
            except ValueError as error:
                known = f"; stages are {listed(study.stages)}" if study.stages else ""
                raise ValueError(f"{path}: {error}{known}{nearest(start, study.stages)}") from None


def check_setting(key: str, where: str = "") -> None:
    """Raise ValueError if a key such as pretrain.lr names no setting that a stage may have of its own.

    where: the beginning of the message.
    """
    field = key.partition(".")[2].partition(".")[0]
    if field in ("seed", "data_seed"):
        raise ValueError(f"{where}{key}: a stage has the seeds of what starts from it")
    if "." in key and field not in {*Config.model_fields, "epochs"}:
        raise ValueError(f"{where}{key}: unknown key '{field}'{nearest(field, Config.model_fields)}")


def check_overrides(study: Study, varied: Iterable[str], overrides: Values) -> None:
    """Raise ValueError if a command-line setting has an unknown key, or sets for all stages what the study sets.

    A setting of one stage, such as pretrain.lr, may replace what the study sets. varied: keys that the study varies.
    """
    alone = [*study.stages, FINETUNE]
    for key, one in overrides.items():
        name, dot, _ = key.partition(".")
        if name in alone:
            check_setting(key)
        elif dot and name not in Config.model_fields:
            raise ValueError(
                f"{key}={one}: the stages of the study '{study.name}' are {listed(alone)}{nearest(name, alone)}"
            )
        elif taken := [stage for stage, own in study.stages.items() if is_set(stage, key, own, varied)]:
            others = " or ".join(f"{stage}.{key}={one}" for stage in alone if stage not in taken)
            raise ValueError(
                f"{key}={one} is for all stages, and the study '{study.name}' says itself what it is in "
                f"{listed(taken)}: {others} is for one alone"
            )


def is_set(stage: str, key: str, own: Values, varied: Iterable[str]) -> bool:
    """Return whether the study sets or varies a setting of a stage. `steps` and `epochs` count as one setting.

    own: settings that the study writes for the stage. varied: keys that the study varies.
    """
    same = {"steps", "epochs"} if key in ("steps", "epochs") else {key}
    return bool(same & own.keys() or {f"{stage}.{one}" for one in same} & set(varied))
