"""A pack's loader beside timm's, on the same photographs: `make bench-loader`. One core, crops and flips.

Prints images a second of a core, first epoch and later ones, interleaved with timm's; what a training step waits for
data; and the memory of a training whose images are four times what it may use. Ends within five minutes.
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
from vitcore.memory import keep_freed
from vitcore.pack import Pack, manifest
from vitcore.packing import Options, pack
from vitcore.sources import find_source
from vitcore.stream import Stored
from vitcore.train import Training

BATCH, EPOCHS = 64, 4
SIZES = ((500, 375), (375, 500), (480, 360), (400, 400))  # of ImageNet's photographs
FRACTION = 4  # a training may use one in so many bytes of its images
Epoch = Callable[[], Iterator[torch.Tensor]]


def write_photographs(archive: Path, root: Path, train: int, test: int) -> None:
    """Enlarged photographs of CIFAR-10 with grain, so that their JPEGs are as large as those of real ones."""
    rng, seen = np.random.default_rng(0), dict[tuple[str, str], int]()
    grain = rng.normal(0, 12, (512, 512, 1)).astype(np.int16)
    with tarfile.open(archive) as tar:
        for member in tar:
            *_, part, name, _ = ["", "", *member.name.split("/")]
            number = seen[part, name] = seen.get((part, name), -1) + 1
            if not member.name.endswith(".jpg") or number >= (train if part == "train" else test):
                continue
            small = Image.open(io.BytesIO(tar.extractfile(member).read())).convert("RGB")  # type: ignore[union-attr]
            large = np.asarray(small.resize(SIZES[number % 4], Image.Resampling.BICUBIC)).astype(np.int16)
            large = large + grain[: large.shape[0], : large.shape[1]]
            (root / part / name).mkdir(parents=True, exist_ok=True)
            photo = Image.fromarray(large.clip(0, 255).astype(np.uint8))
            photo.save(root / part / name / f"{number:05}.jpg", quality=92)


# -- the loaders -------------------------------------------------------------------------------------------------------


def ours(name: str) -> Epoch:
    """Epochs of standardised batches, streamed."""
    config = Config(data=name, patch=16, width=16, heads=2, depth=1, batch=BATCH, augment="flip-random-resized-crop")
    training = Training(config.model_copy(update={"steps": 10**6}), load(config))
    assert isinstance(training.data.train.pixels, Stored)

    def epoch() -> Iterator[torch.Tensor]:
        for _ in range(len(training.data.train) // BATCH):
            yield training.batch().images
            training.step += 1

    return epoch


def timms(root: Path, prefetcher: bool) -> Epoch:
    """The same crops and flips, in this process, so that both have one core.

    prefetcher: images are standardised a batch at a time, by timm's PrefetchLoader; else one by one.
    """
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
        use_prefetcher=prefetcher,
        device=torch.device("cpu"),
        persistent_workers=False,
        pin_memory=False,
    )
    return lambda: (images for images, _ in loader)


def pace(epoch: Epoch) -> float:
    """Images a second of processor time, of all threads."""
    used, images = time.process_time(), 0
    for batch in epoch():
        assert batch.shape[1:] == (3, 224, 224)
        images += len(batch)
    return images / (time.process_time() - used)


def loaders(root: Path) -> None:
    """Every side's epochs, in turn."""
    sides = {"bytes": ours("photos"), "jpeg": ours("small")}
    sides |= {"timm": timms(root, prefetcher=False), "timm, prefetcher": timms(root, prefetcher=True)}
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(EPOCHS):
        for name, epoch in sides.items():
            found[name].append(pace(epoch))
    for name, paces in found.items():
        say(f"{name:16} images/s a core, epoch by epoch:", *(f"{v:6.0f}" for v in paces))
    faster = max((name for name in found if name.startswith("timm")), key=lambda name: float(np.median(found[name])))
    for name in ("bytes", "jpeg"):
        first, *later = (mine / theirs for mine, theirs in zip(found[name], found[faster], strict=True))
        spread = f"{min(later):.2f} to {max(later):.2f}"
        say(f"{name} / {faster}: first epoch {first:.2f}, later ones {np.median(later):.2f} ({spread})")


def read_or_mapped(home: Path) -> None:
    """The same random images: images a second by pread, as packs do it, and out of a mapping."""
    one = Pack(home / "photos", manifest(home / "photos", "photos"))
    count = min(500, one.manifest.train)
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
        "read and held to their sums": lambda: one.read(places, into),
        "read": lambda: one.read(places, into),
        "out of a mapping": mapped,
    }.items():
        began = time.process_time()
        work()
        say(f"stored images {name}: {count / (time.process_time() - began):.0f}/s a core")


# -- a training --------------------------------------------------------------------------------------------------------


def waiting(steps: int) -> None:
    """Of training steps of a ViT-Ti/16, streamed: what goes by before the batch is there, and of it the waiting."""
    config = Config(
        data="photos", model="Ti/16", pool="gap", batch=32, steps=steps + 1, augment="flip-random-resized-crop"
    )
    training = Training(config, load(config))
    training.advance()
    read, batch, spent = training.images, training.batch, {"reading": 0.0, "batch": 0.0}

    def timed(name: str, work: Callable[[], object]) -> object:
        began = time.perf_counter()
        done = work()
        spent[name] += time.perf_counter() - began
        return done

    training.images = lambda step: timed("reading", lambda: read(step))  # type: ignore[assignment,return-value]
    training.batch = lambda: timed("batch", batch)  # type: ignore[method-assign,assignment,return-value]
    began = time.perf_counter()
    for _ in range(steps):
        training.advance()
    total = time.perf_counter() - began
    waits, makes = (100 * spent[name] / total for name in ("reading", "batch"))
    say(
        f"a training step of Ti/16, {config.batch} images, the same core: {total / steps:.2f} s, of which it waits "
        f"{waits:.2f} % for images to be read and {makes - waits:.2f} % go into crops, flips, standardising"
    )


def bounded() -> None:
    """A training in a process that may use a quarter of its images' bytes: streamed it ends well, else it does not."""
    for kept in ("streamed", "resident"):
        code = f"import bench_loader; bench_loader.in_little_memory({kept!r})"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        say(done.stdout.strip() or f"{kept}: {done.stderr.strip().splitlines()[-1][:100]}")


def in_little_memory(kept: str) -> None:
    """The limit, enforced by the kernel, is on private memory: what a job's control group can never take back."""
    torch.set_num_threads(1)
    one = manifest(Path(os.environ["ABLATE_DATA"]) / "photos", "photos")
    allowed, images = one.bytes // FRACTION, one.bytes
    steps = one.train // 16 + 5  # more than an epoch
    config = Config(data="photos", patch=16, width=16, heads=2, depth=1, batch=16, steps=steps, evaluations=2)
    data.room = lambda device: 0.0 if kept == "streamed" else float(images)
    before, most = field("RssAnon"), [0, 0]
    resource.setrlimit(resource.RLIMIT_DATA, (field("VmData") + allowed, -1))

    def sampled() -> bool:
        most[:] = max(most[0], field("RssAnon")), max(most[1], field("RssFile"))
        return False

    run = train(config, stop=sampled)
    say(
        f"{kept}: {images / 1e6:.0f} MB of images, {allowed / 1e6:.0f} MB more than at the start allowed: "
        f"{run.steps} steps, {run.status}; private memory {before / 1e6:.0f} MB at the start, {most[0] / 1e6:.0f} MB "
        f"at most, mapped files {most[1] / 1e6:.0f} MB"
    )


def field(name: str) -> int:
    """Of /proc/self/status, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return 1024 * int(line.split()[1])
    raise KeyError(name)


def say(*words: str) -> None:
    print(*words, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", type=int, default=100, help="photographs a class")
    parser.add_argument("--steps", type=int, default=6)
    arguments = parser.parse_args()
    archive = Path(os.environ.get("ABLATE_DATA", "/nowhere")) / "cifar10-jpg.tar.xz"
    if not archive.exists():
        sys.exit("no cifar10-jpg.tar.xz in the directory that ABLATE_DATA names")
    torch.set_num_threads(1)
    keep_freed()  # as training does; timm's has the same of it
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one core for all, the threads that read ahead too
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        write_photographs(archive, home / "folder", arguments.train, arguments.train // 4)
        os.environ["ABLATE_DATA"] = folder
        source = find_source(str(home / "folder"), None)
        files = sum(path.stat().st_size for path in (home / "folder").rglob("*.jpg")) / len(source.labels)
        say(f"{len(source.labels)} photographs of {files:,.0f} B each")
        for name, options in {"photos": Options(), "small": Options(format="jpeg")}.items():
            used = time.process_time()
            where = pack(name, source, home, options)
            seconds = time.process_time() - used
            each = manifest(where, name).bytes / len(source.labels)
            say(f"packed as {options.format}: {len(source.labels) / seconds:.0f} images/s a core, {each:,.0f} B each")
        # on one core, there is room for so few images in memory
        room, data.room = data.room, lambda device: 0.0
        loaders(home / "folder")
        read_or_mapped(home)
        waiting(arguments.steps)
        data.room = room
        bounded()
    say(f"all in {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
