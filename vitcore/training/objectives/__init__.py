"""Training objectives: predicting the label, masked patches, or what a teacher makes of the image.

To add an objective, write its class in a new file and add it to OBJECTIVE.
"""

from vitcore.training.objectives.classification import Classification, Objective
from vitcore.training.objectives.dino import DINO
from vitcore.training.objectives.ijepa import IJEPA
from vitcore.training.objectives.masked_patches import MAE, MaskedPatch

__all__ = ["OBJECTIVE", "Classification", "Objective"]

OBJECTIVE: dict[str, type[Objective]] = {
    "classification": Classification,
    "masked-patch": MaskedPatch,
    "mae": MAE,
    "dino": DINO,
    "ijepa": IJEPA,
}
