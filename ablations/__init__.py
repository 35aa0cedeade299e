"""Ablation studies of vision transformers: design, planning, training and reporting.

The package imports vitcore, slurm, results and commonfloor. Its public names are imported on first use.
"""

from typing import TYPE_CHECKING

from commonfloor.lazy import lazy_names

if TYPE_CHECKING:
    from ablations.study.design import Design as Design
    from ablations.study.reading import read_recipe as read_recipe
    from ablations.study.reading import read_study as read_study
    from ablations.study.recipe import Recipe as Recipe
    from ablations.study.study import Study as Study

HOME = {
    "Design": "ablations.study.design",
    "Recipe": "ablations.study.recipe",
    "Study": "ablations.study.study",
    "read_recipe": "ablations.study.reading",
    "read_study": "ablations.study.reading",
}
__getattr__, __dir__ = lazy_names("ablations", HOME)
