"""Training objectives: predict the label, or masked patches. A new one is a file and a line of OBJECTIVE."""

from vitcore.training.objectives.classification import Classification
from vitcore.training.objectives.masked_autoencoder import MAE
from vitcore.training.objectives.masked_patches import MaskedPatch
from vitcore.training.objectives.objective import Objective

__all__ = ["OBJECTIVE", "Classification", "Objective"]

OBJECTIVE: dict[str, type[Objective]] = {"classification": Classification, "masked-patch": MaskedPatch, "mae": MAE}
