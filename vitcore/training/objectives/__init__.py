"""Training objectives: predicting the label, or predicting masked patches.

To add an objective, write its class in a new file and add it to OBJECTIVE.
"""

from vitcore.training.objectives.classification import Classification
from vitcore.training.objectives.masked_autoencoder import MAE
from vitcore.training.objectives.masked_patches import MaskedPatch
from vitcore.training.objectives.objective import Objective

__all__ = ["OBJECTIVE", "Classification", "Objective"]

OBJECTIVE: dict[str, type[Objective]] = {"classification": Classification, "masked-patch": MaskedPatch, "mae": MAE}
