"""Write small studies and recipes, and make designs of them."""

from pathlib import Path
from textwrap import dedent

from ablations.planning import plan as planning
from ablations.study.design import Design
from ablations.study.reading import read_recipe, read_study
from results.store.schemas.plans import Plan

RECIPE = """
    description: A test.
    config: {data: digits, width: 16, depth: 1, heads: 2, patch: 4, pool: gap, steps: 4, lr: 2e-3}
    seeds: 2
    axes: {patch: [2, 4, 8], lr: [1e-3, 2e-3], data_fraction: [0.1, 1.0]}
"""
STUDY = """
    question: Which?
    baseline: {position: 1d}
    factors: {position: [none, 1d]}
"""
# Pre-training with settings in all places; one of its stages; distillation.
STAGED_RECIPE = """
description: Small. To start from.
config: {data: digits, width: 16, depth: 1, heads: 2, patch: 4, pool: gap, steps: 4, batch: 16, lr: 2e-3}
seeds: 2
axes: {data_fraction: [0.1, 1.0], finetune.image_size: [8, 16], image_size: [8, 16, 32]}
stages:
  finetune: {optimizer: sgd, lr: 0.01, weight_decay: 0.0, data_fraction: 0.1}
  pretrain: {label_smoothing: 0.1}
"""
STAGED_STUDY = """
question: What does pre-training bring?
stages: {pretrain: {}}
baseline: {init_from: {stage: pretrain}}
factors: {image_size: axis}
curves: {pretrain.data_fraction: axis}
"""
ONE_STAGE = STAGED_STUDY.replace("curves: {pretrain.data_fraction: axis}", "")
STUDY_HERE = ("s.yaml", "--recipe", "r.yaml")
TAUGHT = """
question: Does a larger teacher help?
stages: {large: {width: 24, steps: 6}}
baseline: {teacher: none}
arms:
  hard: {teacher: {stage: large}}
  token: {teacher: {stage: large}, pool: cls, objective.token: true}
"""


def write(folder: Path, name: str, text: str) -> str:
    path = folder / f"{name}.yaml"
    path.write_text(dedent(text))
    return str(path)


def design(folder: Path, study: str = STUDY, recipe: str = RECIPE, **overrides: object) -> Design:
    on = read_recipe(write(folder, "r", recipe))
    return Design(read_study(write(folder, "s", study), on), on, overrides)


def names(made: Design) -> list[str]:
    return [arm.name for arm in made.arms]


def staged_design(folder: Path, study: str = STAGED_STUDY, **overrides: object) -> Design:
    return design(folder, study, STAGED_RECIPE, **overrides)


def staged_plan(folder: Path, study: str = STAGED_STUDY, **overrides: object) -> Plan:
    return planning.build(staged_design(folder, study, **overrides), [0, 1])
