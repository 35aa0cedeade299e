"""A pack's loader beside timm's, on the same photographs: `make bench-loader`. One core, crops and flips.

Prints images a second of the first epoch and the next ones, interleaved; of bytes and JPEG; read and mapped; what a
training step waits for data; and the memory of a training whose images are four times what it may use.
"""

import argparse
import io
import mmap
import os
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from vitcore import Config, data, train
from vitcore.data import load
from vitcore.pack import Pack, manifest
from vitcore.packing import Options, pack
from vitcore.sources import find_source
from vitcore.stream import Stored
from vitcore.train import Training

BATCH, ROUNDS = 64, 3
SIZES = ((500, 375), (375, 500), (480, 360), (400, 400))  # of ImageNet's photographs


def write_photographs(archive: Path, root: Path, train: int, test: int) -> None:
    """Enlarged photographs of CIFAR-10 with grain, so that their JPEGs are as large as those of real ones."""
    rng, seen = np.random.default_rng(0), dict[tuple[str, str], int]()
    with tarfile.open(archive) as tar:
        for member in tar:
            *_, part, name, _ = ["", "", *member.name.split("/")]
            number = seen[part, name] = seen.get((part, name), -1) + 1
            if not member.name.endswith(".jpg") or number >= (train if part == "train" else test):
                continue
            small = Image.open(io.BytesIO(tar.extractfile(member).read())).convert("RGB")  # type: ignore[union-attr]
            large = np.asarray(small.resize(SIZES[number % 4], Image.Resampling.BICUBIC)).astype(np.int16)
            large = large + rng.normal(0, 12, large.shape[:2])[..., None].astype(np.int16)
            (root / part / name).mkdir(parents=True, exist_ok=True)
            photo = Image.fromarray(large.clip(0, 255).astype(np.uint8))
            photo.save(root / part / name / f"{number:05}.jpg", quality=92)


def ours(name: str) -> Callable[[], Iterator[torch.Tensor]]:
    """Epochs of standardised batches, streamed."""
    config = Config(data=name, patch=16, width=16, heads=2, depth=1, batch=BATCH, augment="flip-random-resized-crop")
    training = Training(config.model_copy(update={"steps": 10**6}), load(config))
    assert isinstance(training.data.train.pixels, Stored)

    def epoch() -> Iterator[torch.Tensor]:
        for _ in range(len(training.data.train) // BATCH):
            yield training.batch().images
            training.step += 1

    return epoch


def timms(root: Path) -> Callable[[], Iterator[torch.Tensor]]:
    """The same crops and flips, in this process, so that both have one core."""
    from timm.data import create_dataset, create_loader

    loader = create_loader(
        create_dataset("", root=str(root), split="train"),
        input_size=(3, 224, 224),
        batch_size=BATCH,
        is_training=True,
        scale=(0.08, 1.0),
        ratio=(3 / 4, 4 / 3),
        hflip=0.5,
        color_jitter=None,
        interpolation="bilinear",
        num_workers=0,
        use_prefetcher=False,
        persistent_workers=False,
        pin_memory=False,
    )
    return lambda: (images for images, _ in loader)


def pace(epoch: Callable[[], Iterator[torch.Tensor]]) -> tuple[float, float]:
    """Images a second, and a second of processor time."""
    began, used, images = time.perf_counter(), time.process_time(), 0
    for batch in epoch():
        assert batch.shape[1:] == (3, 224, 224)
        images += len(batch)
    return images / (time.perf_counter() - began), images / (time.process_time() - used)


def loaders(root: Path) -> None:
    sides = {"bytes": ours("photos"), "jpeg": ours("small"), "timm": timms(root)}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, epoch in sides.items():
            found[name].append(pace(epoch))
    for name, rounds in found.items():
        walls, cores = zip(*rounds, strict=True)
        print(f"{name:6} images/s, epoch by epoch:", *(f"{v:8.0f}" for v in walls), end="")
        print(f"   a core, median {np.median(cores):8.0f}")
    for name in ("bytes", "jpeg"):
        ratios = [a[1] / b[1] for a, b in zip(found[name], found["timm"], strict=True)]
        print(f"{name} / timm, a core:", *(f"{ratio:.1f}" for ratio in ratios))


def read_or_mapped(home: Path) -> None:
    """The same random images: images a second by pread, as packs do it, and out of a mapping."""
    one = Pack(home / "photos", manifest(home / "photos", "photos"))
    count = min(1000, one.manifest.train)
    places = np.random.default_rng(0).permutation(one.manifest.train)[:count]
    into = np.empty((count, *one.shape), np.uint8)
    maps = []
    for shard in one.manifest.shards:
        with open(home / "photos" / shard.file, "rb") as file:
            maps.append(np.frombuffer(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ), np.uint8))

    def mapped() -> None:
        for row, place in enumerate(places):
            first = int(one.records[place]["offset"])
            into[row].reshape(-1)[:] = maps[one.shard_of[place]][first : first + into[row].size]

    for name, work in {
        "checked": lambda: one.read(places, into),
        "read": lambda: one.read(places, into),
        "mapped": mapped,
    }.items():
        began = time.perf_counter()
        work()
        print(f"{name:8} {count / (time.perf_counter() - began):8.0f} images/s")


def waiting(steps: int) -> None:
    """Of training steps of a ViT-Ti/16, streamed: the time before the batch is there, and of it the waiting."""
    config = Config(
        data="photos", model="Ti/16", pool="gap", batch=BATCH, steps=steps + 1, augment="flip-random-resized-crop"
    )
    training = Training(config, load(config))
    training.advance()
    read, spent = training.images, [0.0, 0.0]

    def timed(step: int) -> torch.Tensor:
        began = time.perf_counter()
        images = read(step)
        spent[0] += time.perf_counter() - began
        return images

    training.images = timed
    began = time.perf_counter()
    for _ in range(steps):
        training.advance()
    total = time.perf_counter() - began
    print(f"a training step of Ti/16: {total / steps:.2f} s, waits for data {100 * spent[0] / total:.2f} % of it")


def bounded(home: Path) -> None:
    """A training in a process whose address space may grow by a quarter of its images: it streams, and ends well."""
    code = "import sys, bench_loader; bench_loader.in_little_memory()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    print(done.stdout.strip() or done.stderr[-2000:])


def in_little_memory() -> None:
    torch.set_num_threads(1)
    one = manifest(Path(os.environ["ABLATE_DATA"]) / "photos", "photos")
    allowed = one.bytes // 4
    config = Config(data="photos", patch=16, width=16, heads=2, depth=1, batch=16, steps=40, evaluations=2)
    before = field("VmRSS")
    data.room = lambda device: allowed / 4 / len(os.sched_getaffinity(0))  # as in a control group of that size
    resource.setrlimit(resource.RLIMIT_DATA, (field("VmData") + allowed, -1))
    run = train(config)
    print(
        f"{one.bytes / 1e6:.0f} MB of images, {allowed / 1e6:.0f} MB more than at the start allowed: {run.status}, "
        f"resident {before / 1e6:.0f} MB then, {field('VmHWM') / 1e6:.0f} MB at most"
    )


def field(name: str) -> int:
    """Of /proc/self/status, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return 1024 * int(line.split()[1])
    raise KeyError(name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", type=int, default=200, help="photographs a class")
    parser.add_argument("--steps", type=int, default=8)
    arguments = parser.parse_args()
    archive = Path(os.environ.get("ABLATE_DATA", "/nowhere")) / "cifar10-jpg.tar.xz"
    if not archive.exists():
        sys.exit("no cifar10-jpg.tar.xz in the directory that ABLATE_DATA names")
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one core for all, the threads that read ahead too
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        write_photographs(archive, home / "folder", arguments.train, arguments.train // 4)
        os.environ["ABLATE_DATA"] = folder
        source = find_source(str(home / "folder"), None)
        files = sum(path.stat().st_size for path in (home / "folder").rglob("*.jpg")) / len(source.labels)
        print(f"{len(source.labels)} photographs of {files:,.0f} B each")
        for name, options in {"photos": Options(), "small": Options(format="jpeg")}.items():
            began = time.perf_counter()
            where = pack(name, source, home, options)
            seconds = time.perf_counter() - began
            each = manifest(where, name).bytes / len(source.labels)
            print(f"packed as {options.format}: {len(source.labels) / seconds:.0f} images/s, {each:,.0f} B each")
        loaders(home / "folder")
        read_or_mapped(home)
        waiting(arguments.steps)
        bounded(home)


if __name__ == "__main__":
    main()
