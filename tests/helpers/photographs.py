"""Generated photographs, and packs, for tests that read images."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vitcore.data.pack import MANIFEST, Manifest, Shard, manifest, open_pack
from vitcore.data.pack_sources import find_source
from vitcore.data.pack_writer import PackOptions, pack

PACKS = {"imagenet": (1000, 1_281_167, 50_000), "imagenet100": (100, 126_689, 5_000)}  # classes, train, test


def photographs(root: Path, counts: Mapping[str, int], size: tuple[int, int] = (24, 16)) -> Path:
    """Write `counts[folder]` images of smooth random colors in each folder below `root`; return `root`."""
    rng = np.random.default_rng(0)
    for where, count in counts.items():
        (root / where).mkdir(parents=True)
        for number in range(count):
            colors = Image.fromarray(rng.integers(0, 256, (2, 3, 3), np.uint8))
            colors.resize(size, Image.Resampling.BICUBIC).save(root / where / f"{number:04}.png")
    return root


def packed(source: Path | str, home: Path, name: str = "photos", data_dir: Path | None = None, **options: Any) -> Path:
    """Pack a source in HOME/NAME, of squares of 12 pixels unless `options` say otherwise; return the pack."""
    return pack(name, find_source(str(source), data_dir), home, PackOptions(**({"size": 12} | options)), jobs=2)


def flip_byte(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 16
    path.write_bytes(content)


def cut_short(path: Path) -> None:
    """Cut off the last byte."""
    os.truncate(path, path.stat().st_size - 1)


def stored_images(folder: Path) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return all images of a pack: (M, S, S, C)."""
    pack = open_pack(folder, manifest(folder, folder.name))
    images = np.empty((pack.manifest.images, *pack.shape), np.uint8)
    pack.read(np.arange(len(images)), images)
    return images


def manifests(home: Path) -> Path:
    """Write the manifests, without shards, of the packs that recipes name; return `home`."""
    for name, (classes, train, test) in PACKS.items():
        shard = {"images": train + test, "bytes": (train + test) * 256**2 * 3, "sha256": "0" * 64}
        sizes = {"train": train, "test": test, "size": 256, "image_size": 224, "channels": 3, "format": "bytes"}
        sizes |= {"mean": [124.0, 116.0, 104.0], "std": [58.0, 57.0, 57.0]}
        shards = [Shard(file="shard-00000.bytes", **shard)]
        labels = [f"class {number}" for number in range(classes)]
        one = Manifest(name=name, classes=labels, index="0" * 64, shards=shards, **sizes)
        (home / name).mkdir(parents=True)
        (home / name / MANIFEST).write_text(json.dumps({**one.model_dump(), "fingerprint": one.fingerprint}))
    return home
