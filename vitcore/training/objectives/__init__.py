"""Training objectives: predicting the label, or predicting masked patches.

A new objective is a file with an entry in OBJECTIVE.
"""

from vitcore.training.objectives.classification import Classification
from vitcore.training.objectives.masked_autoencoder import MAE
from vitcore.training.objectives.masked_patches import MaskedPatch
from vitcore.training.objectives.objective import Objective

__all__ = ["OBJECTIVE", "Classification", "Objective"]

OBJECTIVE: dict[str, type[Objective]] = {"classification": Classification, "masked-patch": MaskedPatch, "mae": MAE}
