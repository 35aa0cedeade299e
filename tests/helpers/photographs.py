"""Photographs that are none, for whatever reads folders of images."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from vitcore.data.pack import MANIFEST, Manifest, Shard

PACKS = {"imagenet": (1000, 1_281_167, 50_000), "imagenet100": (100, 126_689, 5_000)}  # classes, train, test


def photographs(root: Path, counts: Mapping[str, int], size: tuple[int, int] = (24, 16)) -> Path:
    """So many a class folder, all of `size`: smooth colours, no two alike; returns the root."""
    rng = np.random.default_rng(0)
    for where, count in counts.items():
        (root / where).mkdir(parents=True)
        for number in range(count):
            colours = Image.fromarray(rng.integers(0, 256, (2, 3, 3), np.uint8))
            colours.resize(size, Image.Resampling.BICUBIC).save(root / where / f"{number:04}.png")
    return root


def manifests(home: Path) -> Path:
    """Of the packs that recipes name, without a shard: what planning reads of them; returns `home`."""
    for name, (classes, train, test) in PACKS.items():
        one = Manifest(
            name=name,
            classes=[f"class {number}" for number in range(classes)],
            train=train,
            test=test,
            size=256,
            image_size=224,
            channels=3,
            format="bytes",
            mean=[124.0, 116.0, 104.0],
            std=[58.0, 57.0, 57.0],
            index="0" * 64,
            shards=[
                Shard(file="shard-00000.bytes", images=train + test, bytes=(train + test) * 256**2 * 3, sha256="0" * 64)
            ],
        )
        (home / name).mkdir(parents=True)
        (home / name / MANIFEST).write_text(json.dumps({**one.model_dump(), "fingerprint": one.fingerprint}))
    return home
