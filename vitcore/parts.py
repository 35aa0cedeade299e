"""Every slot of the model that has variants, and the dict its variants stand in.

Identity, validation, the contract tests and `ablate list` follow this one table; a variant is added in its
own file, never here.
"""

from collections.abc import Mapping

from vitcore.part import Part
from vitcore.pooling import POOLING
from vitcore.position import POSITION
from vitcore.stem import STEM

PARTS: Mapping[str, dict[str, type[Part]]] = {"position": POSITION, "pool": POOLING, "stem": STEM}  # type: ignore[dict-item]
