"""Ablation studies of vision transformers: design, planning, training and reporting.

The package imports vitcore, slurm, results and commonfloor. Its public names are imported on first use.
"""

from commonfloor.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__, __file__)
