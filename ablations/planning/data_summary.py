"""Descriptions of a plan's data and training settings, as records and as text."""

import os
from typing import TYPE_CHECKING

from results.margins import margin_text
from results.store.schemas import Plan, PlannedData
from results.store.schemas.metrics import metric_by_name
from vitcore.data.lookup import FOLDER, describe

if TYPE_CHECKING:
    from ablations.study.design import Design


def data(design: "Design") -> PlannedData:
    about = describe(design.data)
    return PlannedData(
        name=data_name(design.data),
        train=about.train_size,
        test=about.test_size,
        folds=about.folds,
        classes=about.classes,
        image_size=about.image_size,
        channels=about.channels,
        of_recipe=design.uses_recipe_data,
    )


def data_name(name: str) -> str:
    """Return the display name of a data set. For `imagefolder:PATH`, it is the name of the folder."""
    return os.path.basename(os.path.abspath(name.removeprefix(FOLDER))) if name.startswith(FOLDER) else name


def images_text(data: PlannedData, plan: Plan) -> str:
    config, tokens = plan.baseline_arm.config, sorted({arm.tokens for arm in plan.arms if arm.tokens})
    validation = round(config["val_fraction"] * data.train)
    train = round(config["data_fraction"] * (data.train - validation))
    folds = f" (one of {data.folds} folds)" if data.folds else ""
    counted = f", {' to '.join(map(str, dict.fromkeys([tokens[0], tokens[-1]])))} tokens" if tokens else ""
    return (
        f"{data.name}: about {train:,} images to train, {validation:,} to validate, {data.test:,} to test{folds}, "
        f"{data.classes:,} classes, {data.image_size} pixels wide, trained at {config['image_size']}{counted}"
    )


def description(design: "Design") -> str:
    """Return a description of the data and the baseline's training. The recipe's text is used if it fits the data."""
    config, own = design.reference, design.applicable_recipe.description
    size = f"trained at {config.image_size} x {config.image_size} pixels"
    length = "" if design.study.stages else f", {config.steps:,} steps of {config.batch} images"
    model = (
        config.model or f"A ViT of width {config.width} and depth {config.depth} with patches of {config.patch} pixels"
    )
    if own:
        return f"{own.strip().rstrip('.')}. {model}, {size}{length}."
    about = data(design)
    images = f"{about.train:,} images to train on and {about.test:,} to test on"
    if about.folds:
        images = f"{about.train + about.test:,} images in {about.folds} folds"
    what = f"{about.name}: {images}, {about.classes:,} classes"
    return f"{what}. {model}, {size}{length}; all else as in the recipe {design.recipe.name}."


def notes(design: "Design") -> list[str]:
    """Return a note, in a list, if other data invalidate the recipe's margin and the study sets none; otherwise []."""
    own = design.recipe.margin
    if own is None or own == design.applicable_recipe.margin or design.study.margin is not None:
        return []
    return [
        f"no arm is called equivalent: the margin of {margin_text(own, metric_by_name(design.metric))} in the recipe "
        f"{design.recipe.name} is for its own data, not for {data_name(design.data)}; set a margin in the study"
    ]
