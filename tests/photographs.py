"""Photographs that are none, for whatever reads folders of images."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image


def photographs(root: Path, counts: Mapping[str, int], size: tuple[int, int] = (24, 16)) -> Path:
    """So many a class folder, all of `size`: smooth colours, no two alike; returns the root."""
    rng = np.random.default_rng(0)
    for where, count in counts.items():
        (root / where).mkdir(parents=True)
        for number in range(count):
            colours = Image.fromarray(rng.integers(0, 256, (2, 3, 3), np.uint8))
            colours.resize(size, Image.Resampling.BICUBIC).save(root / where / f"{number:04}.png")
    return root
