"""Write small studies and recipes, and make designs of them."""

from pathlib import Path
from textwrap import dedent

from ablations.study.design import Design
from ablations.study.reading import read_recipe, read_study

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


def write(folder: Path, name: str, text: str) -> str:
    path = folder / f"{name}.yaml"
    path.write_text(dedent(text))
    return str(path)


def design(folder: Path, study: str = STUDY, recipe: str = RECIPE, **overrides: object) -> Design:
    return Design(read_study(write(folder, "s", study)), read_recipe(write(folder, "r", recipe)), overrides)


def names(made: Design) -> list[str]:
    return [arm.name for arm in made.arms]
