"""A pack's loader beside timm's on equal photographs, with crops and flips on one core: `make bench-loader`.

It prints images per second of a core, and the private memory of a training on 4 GiB of streamed images. `--part
parquet` reads Parquet shards of the photographs beside timm's reader of them, and needs the package `datasets`.
"""

import argparse
import io
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from threading import Barrier
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image, ImageOps

from vitcore import Config, train
from vitcore.data import splits
from vitcore.data.formats import list_stored
from vitcore.data.imagefolder import read_images
from vitcore.data.pack import manifest
from vitcore.data.pack_sources import Source, find_source
from vitcore.data.pack_writer import PackOptions, pack
from vitcore.data.splits import load
from vitcore.data.stream import AHEAD, Stored, readers
from vitcore.runtime.memory import keep_freed
from vitcore.training.state import Training

BATCH, EPOCHS, SIDE = 64, 4, 224
AUGMENT = "flip-random-resized-crop"
PHOTOGRAPHS = {"train": 100, "test": 25}  # a class
SIZES = ((500, 375), (375, 500), (480, 360), (400, 400))  # of ImageNet's photographs
MANY = 2**32  # bytes of images
POOL = 64  # different images among them
Epoch = Callable[[], Iterator[torch.Tensor]]
say = partial(print, flush=True)


def write_photographs(root: Path) -> None:
    """Write smooth images with grain, so that the JPEGs are as large as those of photographs."""
    rng = np.random.default_rng(0)
    for part, name in product(PHOTOGRAPHS, "0123456789"):
        (root / part / name).mkdir(parents=True)
        for number in range(PHOTOGRAPHS[part]):
            width, height = SIZES[number % 4]
            colors = Image.fromarray(rng.integers(0, 256, (6, 8, 3), np.uint8))
            smooth = np.asarray(colors.resize((width, height), Image.Resampling.BICUBIC))
            grained = smooth + rng.normal(0, 12, (height, width, 1))
            photo = Image.fromarray(grained.clip(0, 255).astype(np.uint8))
            photo.save(root / part / name / f"{number:05}.jpg", quality=92)


def our_epoch(name: str) -> Epoch:
    """Return epochs of standardized batches, streamed from a pack."""
    small: dict[str, Any] = {"patch": 16, "width": 16, "heads": 2, "depth": 1, "batch": BATCH}
    config = Config(data=name, augment=AUGMENT, **small)
    training = Training(config.model_copy(update={"steps": 10**6}), load(config))
    assert isinstance(training.data.train.pixels, Stored)

    def epoch() -> Iterator[torch.Tensor]:
        for _ in range(len(training.data.train) // BATCH):
            yield training.batch().images
            training.step += 1

    return epoch


def timm_epoch(root: Path) -> Epoch:
    """Return epochs of timm's loader with equal crops and flips, in this process, so that both sides have one core."""
    from timm.data.dataset_factory import create_dataset
    from timm.data.loader import create_loader

    loader: Any = create_loader(
        create_dataset("", root=str(root), split="train"),
        batch_size=BATCH,
        is_training=True,
        input_size=(3, 224, 224),
        scale=(0.08, 1.0),
        ratio=(3 / 4, 4 / 3),
        hflip=0.5,
        color_jitter=None,  # type: ignore[arg-type]  # annotated as a float there
        interpolation="bilinear",
        num_workers=0,
        device=torch.device("cpu"),
        persistent_workers=False,
        pin_memory=False,
    )
    return lambda: (images for images, _ in loader)


def images_per_second(epoch: Epoch) -> float:
    """Return images per second of CPU time, over all threads, for an epoch."""
    began, together = time.process_time(), Barrier(AHEAD)
    images = sum(len(batch) for batch in epoch() if batch.shape[1:] == (3, 224, 224))
    list(readers().map(lambda _: together.wait(), range(AHEAD)))  # until everything that is read ahead is there
    return images / (time.process_time() - began)


def loaders(root: Path) -> None:
    sides = {"bytes": our_epoch("photos"), "jpeg": our_epoch("small"), "timm": timm_epoch(root)}
    rounds = [{name: images_per_second(epoch) for name, epoch in sides.items()} for _ in range(EPOCHS)]
    for name in sides:
        say(f"{name:16} images/s a core, epoch by epoch:", *(f"{paces[name]:6.0f}" for paces in rounds))
    for name in ("bytes", "jpeg"):
        first, *later = (paces[name] / paces["timm"] for paces in rounds)
        spread = f"{min(later):.2f} to {max(later):.2f}"
        say(f"{name} / timm: first epoch {first:.2f}, later ones {np.median(later):.2f} ({spread})")


def private_bytes() -> int:
    """Return the private memory of this process in bytes."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(lines["RssAnon"].removesuffix("kB"))


def private_memory(home: Path) -> None:
    """Train for a little more than an epoch; print the private memory, which must not grow."""
    pool = np.random.default_rng(0).integers(0, 256, (POOL, 256, 256, 3), np.uint8)
    labels, began = np.arange(MANY // 256**2 // 3) % 10, time.process_time()
    names, training = list(map(str, range(len(labels)))), len(labels) * 49 // 50
    source = Source(tuple("0123456789"), labels, training, names, lambda place: Image.fromarray(pool[place % POOL]))
    one = manifest(pack("many", source, home), "many")
    say(f"packed from memory: {one.images / (time.process_time() - began):.0f} images/s a core")
    few: dict[str, Any] = {"val_fraction": 0.02, "evaluations": 8, "steps": one.train // 32 + 5}
    config = Config(data="many", patch=16, width=16, heads=2, depth=1, batch=32, **few)
    seen = [private_bytes()]

    def sampled() -> bool:
        seen.append(private_bytes())
        return False

    run = train(config, stop=sampled)
    quarter = max(seen[: len(seen) // 4])
    say(
        f"{one.bytes / 1e6:,.0f} MB of images, {run.steps} steps, {run.status}; private memory {seen[0] / 1e6:.0f} MB "
        f"at the start, at most {quarter / 1e6:.0f} MB in the first quarter and {max(seen) / 1e6:.0f} MB in all of it"
    )


def beside_hfds(home: Path) -> None:
    """Print images per second of a core, each decoded once from Parquet shards to 224 x 224 bytes, and the floor."""
    from timm.data.dataset_factory import create_dataset
    from timm.data.transforms_factory import create_transform

    write_photographs(home / "folder")
    (home / "shards").mkdir()
    for split in PHOTOGRAPHS:
        files = sorted((home / "folder" / split).rglob("*.jpg"))
        columns = {
            "image": [{"bytes": file.read_bytes(), "path": file.name} for file in files],
            "label": [int(file.parent.name) for file in files],
        }
        pq.write_table(pa.table(columns), home / "shards" / f"{split}-00000-of-00001.parquet", row_group_size=100)
    listing = list_stored(f"parquet:{home}/shards/train-*")
    reader = create_dataset(f"hfds/{home}/shards", root=str(home / "cache"), split="train")
    reader.transform = create_transform(
        SIDE, is_training=False, crop_pct=1, interpolation="bilinear", use_prefetcher=True
    )
    contents = [image.read() for image in listing.files]

    def floor() -> None:
        for content in contents:
            ImageOps.fit(Image.open(io.BytesIO(content)).convert("RGB"), (SIDE, SIDE), Image.Resampling.BILINEAR)

    sides: dict[str, Callable[[], object]] = {
        "ours": lambda: read_images(listing, (SIDE, SIDE), 3),
        "timm's hfds": lambda: [image for image, _ in reader],
        "Pillow alone": floor,
    }
    speeds: dict[str, list[float]] = {name: [] for name in sides}
    for _, (name, read) in product(range(EPOCHS), sides.items()):
        began = time.process_time()
        read()
        speeds[name].append(len(contents) / (time.process_time() - began))
    for name, values in speeds.items():
        ratios = np.divide(values, speeds["timm's hfds"])
        spread = f"{ratios.min():.2f} to {ratios.max():.2f}"
        say(f"{name:16} {np.median(values):6.0f} images/s a core, {np.median(ratios):.2f} of timm's ({spread})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=("all", "loaders", "memory", "parquet"), default="all")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed()  # as training does; timm's has the same of it
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one core for all, the threads that read ahead too
    began = time.perf_counter()
    all_streamed = mock.patch.object(splits, "image_memory", return_value=0.0)
    with all_streamed, tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        os.environ["ABLATE_DATA"] = folder
        if arguments.part in ("all", "loaders"):
            beside_timm(home)
        if arguments.part in ("all", "memory"):
            private_memory(home)
        if arguments.part == "parquet":
            beside_hfds(home)
    say(f"all in {time.perf_counter() - began:.0f} s")


def beside_timm(home: Path) -> None:
    write_photographs(home / "folder")
    source = find_source(str(home / "folder"), None)
    files = sum(path.stat().st_size for path in (home / "folder").rglob("*.jpg")) / len(source.labels)
    say(f"{len(source.labels)} photographs of {files:,.0f} B each")
    for name, options in {"photos": PackOptions(), "small": PackOptions(format="jpeg")}.items():
        used = time.process_time()
        where = pack(name, source, home, options)
        seconds = time.process_time() - used
        each = manifest(where, name).bytes / len(source.labels)
        say(f"packed as {options.format}: {len(source.labels) / seconds:.0f} images/s a core, {each:,.0f} B each")
    loaders(home / "folder")


if __name__ == "__main__":
    main()
