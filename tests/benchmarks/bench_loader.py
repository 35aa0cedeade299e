"""A pack's loader beside timm's on equal photographs, with crops and flips on one core: `make bench-loader`.

It prints images per second of a core, for the first epoch and later ones, interleaved with timm's; the time that a
training step waits for data; and the memory of a training on 4 GiB of images that may use a quarter of that. It ends
within eight minutes; `--part` runs one half.
"""

import argparse
import io
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import torch
from PIL import Image

from ablations.bench.memory import resident
from vitcore import Config, train
from vitcore.data import splits
from vitcore.data.pack import manifest
from vitcore.data.pack_sources import Source, find_source
from vitcore.data.pack_writer import Options, pack
from vitcore.data.splits import load
from vitcore.data.stream import AHEAD, Stored, readers
from vitcore.runtime.memory import keep_freed
from vitcore.training.loop import Training

BATCH, EPOCHS, TURN = 64, 4, 3
STEPS = 6  # of training
AUGMENT = "flip-random-resized-crop"
PHOTOGRAPHS = {"train": 100, "test": 25}  # a class
SIZES = ((500, 375), (375, 500), (480, 360), (400, 400))  # of ImageNet's photographs
ALLOWED = 2**30  # bytes of memory
FRACTION = 4  # of so many times as many bytes of images
POOL = 64  # different images among them
Epoch = Callable[[], Iterator[torch.Tensor]]


def write_photographs(archive: Path, root: Path) -> None:
    """Write enlarged photographs of CIFAR-10 with grain, so that the JPEGs are as large as real ones."""
    rng, seen = np.random.default_rng(0), dict[tuple[str, str], int]()
    grain = rng.normal(0, 12, (512, 512, 1)).astype(np.int16)
    with tarfile.open(archive) as tar:
        for member in tar:
            *_, part, name, _ = ["", "", *member.name.split("/")]
            number = seen[part, name] = seen.get((part, name), -1) + 1
            if not member.name.endswith(".jpg") or number >= PHOTOGRAPHS.get(part, 0):
                continue
            small = Image.open(io.BytesIO(tar.extractfile(member).read())).convert("RGB")  # type: ignore[union-attr]
            large = np.asarray(small.resize(SIZES[number % 4], Image.Resampling.BICUBIC)).astype(np.int16)
            large = large + grain[: large.shape[0], : large.shape[1]]
            (root / part / name).mkdir(parents=True, exist_ok=True)
            photo = Image.fromarray(large.clip(0, 255).astype(np.uint8))
            photo.save(root / part / name / f"{number:05}.jpg", quality=92)


def ours(name: str) -> Epoch:
    """Return epochs of standardized batches, streamed from a pack."""
    config = Config(data=name, patch=16, width=16, heads=2, depth=1, batch=BATCH, augment=AUGMENT)
    training = Training(config.model_copy(update={"steps": 10**6}), load(config))
    assert isinstance(training.data.train.pixels, Stored)

    def epoch() -> Iterator[torch.Tensor]:
        for _ in range(len(training.data.train) // BATCH):
            yield training.batch().images
            training.step += 1

    return epoch


def timms(root: Path, prefetcher: bool) -> Epoch:
    """Return epochs of timm's loader with equal crops and flips, in this process, so that both sides have one core.

    prefetcher: timm's PrefetchLoader standardizes whole batches; else images are standardized one by one.
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


def paces(sides: dict[str, Epoch]) -> dict[str, float]:
    """Return images per second of CPU time, over all threads, for an epoch of each side, TURN batches in turn."""
    epochs = {name: epoch() for name, epoch in sides.items()}
    used, images = dict.fromkeys(sides, 0.0), dict.fromkeys(sides, 0)
    left = list(sides)
    while left:
        for name in list(left):
            began = time.process_time()
            batches = [len(batch) for batch in islice(epochs[name], TURN) if batch.shape[1:] == (3, 224, 224)]
            idle()
            used[name] += time.process_time() - began
            images[name] += sum(batches)
            if len(batches) < TURN:
                left.remove(name)
    return {name: images[name] / used[name] for name in sides}


def idle() -> None:
    """Wait until everything that is read ahead is there, by a barrier of all reading threads."""
    together = Barrier(AHEAD)
    list(readers().map(lambda _: together.wait(), range(AHEAD)))


def loaders(root: Path) -> None:
    """Measure the epochs of all sides in turn."""
    sides = {"bytes": ours("photos"), "jpeg": ours("small")}
    sides |= {"timm": timms(root, prefetcher=False), "timm, prefetcher": timms(root, prefetcher=True)}
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(EPOCHS):
        for name, pace in paces(sides).items():
            found[name].append(pace)
    for name, own in found.items():
        say(f"{name:16} images/s a core, epoch by epoch:", *(f"{pace:6.0f}" for pace in own))
    faster = max((name for name in found if name.startswith("timm")), key=lambda name: float(np.median(found[name])))
    for name in ("bytes", "jpeg"):
        first, *later = (mine / theirs for mine, theirs in zip(found[name], found[faster], strict=True))
        spread = f"{min(later):.2f} to {max(later):.2f}"
        say(f"{name} / {faster}: first epoch {first:.2f}, later ones {np.median(later):.2f} ({spread})")


def waiting() -> None:
    """Measure the shares of a streamed ViT-Ti/16 training step that go into waiting for images and making batches."""
    config = Config(data="photos", model="Ti/16", pool="gap", batch=32, steps=STEPS + 1, augment=AUGMENT)
    training = Training(config, load(config))
    training.advance()
    spent = {"reading": 0.0, "batch": 0.0}

    def timed(name: str, work: Callable[[Any], Any], of: Any) -> Any:
        began = time.perf_counter()
        done = work(of)
        spent[name] += time.perf_counter() - began
        return done

    training.images = partial(timed, "reading", training.images)
    training.train_step.batch = partial(timed, "batch", training.train_step.batch)  # type: ignore[method-assign]
    began = time.perf_counter()
    for _ in range(STEPS):
        training.advance()
    total = time.perf_counter() - began
    waits, makes = (f"{100 * seconds / total:.2f} %" for seconds in spent.values())
    say(
        f"a training step of Ti/16, {config.batch} images, the same core: {total / STEPS:.2f} s, of which it waits "
        f"{waits} for images to be read and {makes} go into crops, flips, standardising"
    )


def bounded(home: Path) -> None:
    """Train with a quarter of the images' bytes as memory limit: a streamed training ends, a resident one is killed."""
    began = time.process_time()
    folder = pack("many", many(FRACTION * ALLOWED // 256**2 // 3), home)
    one = manifest(folder, "many")
    say(f"packed from memory: {one.images / (time.process_time() - began):.0f} images/s a core")
    for kept in ("streamed", "resident"):
        forget(folder)
        with control_group() as group:
            enter = f"open('{group}/cgroup.procs', 'w').write('0')" if group else of_this_process()
            code = f"{enter}; import bench_loader; bench_loader.in_little_memory({kept!r})"
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
            done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
            whole = int((group / "memory.max_usage_in_bytes").read_text()) if group else 0
        ended = f"ended by {signal.Signals(-done.returncode).name}" if done.returncode < 0 else ""
        said = done.stderr.strip().splitlines()[-1:] or [ended]
        limit = f"a control group, of which {whole / 1e6:,.0f} MB were used at most" if group else "the process's limit"
        say(f"{kept}: {one.bytes / 1e6:,.0f} MB of images, {ALLOWED / 1e6:,.0f} MB of memory allowed, by {limit}:")
        say(f"    {done.stdout.strip() or said[0][:100]}")


def many(count: int) -> Source:
    """Return a source of `count` images that repeat POOL images of noise."""
    pool = np.random.default_rng(0).integers(0, 256, (POOL, 256, 256, 3), np.uint8)
    labels = np.arange(count) % 10
    names = [str(place) for place in range(count)]
    return Source(tuple("0123456789"), labels, count * 49 // 50, names, lambda n: Image.fromarray(pool[n % POOL]))


def forget(folder: Path) -> None:
    """Drop a folder's files from the page cache, so that they are charged to the process that reads them."""
    for path in folder.iterdir():
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@contextmanager
def control_group() -> Iterator[Path | None]:
    """Yield a control group with ALLOWED bytes of memory, page cache included, as SLURM makes for a job.

    It needs version 1 and root; None if it cannot be made.
    """
    mine = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    above = [group for _, controllers, group in mine if controllers == "memory"]
    group = Path("/sys/fs/cgroup/memory", *(one.lstrip("/") for one in above), f"bench-loader-{os.getpid()}")
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(ALLOWED))
    except OSError:
        yield None
        return
    try:
        yield group
    finally:
        group.rmdir()


def of_this_process() -> str:
    """Return code that limits this process's private memory, which a control group cannot reclaim."""
    return f"import resource; resource.setrlimit(resource.RLIMIT_DATA, ({ALLOWED}, {ALLOWED}))"


def in_little_memory(kept: str) -> None:
    """Train for a little more than an epoch; print the private memory, which must not grow."""
    torch.set_num_threads(1)
    if kept == "resident":
        splits.room = lambda device: float("inf")
    one = manifest(Path(os.environ["ABLATE_DATA"]) / "many", "many")
    steps = one.train // 32 + 5
    few = {"val_fraction": 0.02, "evaluations": 8}
    config = Config(data="many", patch=16, width=16, heads=2, depth=1, batch=32, steps=steps, **few)
    seen = [resident("RssAnon")]

    def sampled() -> bool:
        seen.append(resident("RssAnon"))
        return False

    run = train(config, stop=sampled)
    quarter = max(seen[: len(seen) // 4])
    say(
        f"{run.steps} steps, {run.status}; private memory {seen[0] / 1e6:.0f} MB at the start, at most "
        f"{quarter / 1e6:.0f} MB in the first quarter and {max(seen) / 1e6:.0f} MB in all of it"
    )


def say(*words: str) -> None:
    print(*words, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=("all", "loaders", "memory"), default="all")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # what is made in between is removed
    torch.set_num_threads(1)
    keep_freed()  # as training does; timm's has the same of it
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one core for all, the threads that read ahead too
    began = time.perf_counter()
    archive = Path(os.environ.get("ABLATE_DATA", "/nowhere")) / "cifar10-jpg.tar.xz"
    if arguments.part != "memory" and not archive.exists():
        sys.exit("no cifar10-jpg.tar.xz in the directory that ABLATE_DATA names")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        os.environ["ABLATE_DATA"] = folder
        if arguments.part != "memory":
            beside_timm(archive, home)
        if arguments.part != "loaders":
            bounded(home)
    say(f"all in {time.perf_counter() - began:.0f} s")


def beside_timm(archive: Path, home: Path) -> None:
    """Measure packs of photographs beside timm."""
    write_photographs(archive, home / "folder")
    source = find_source(str(home / "folder"), None)
    files = sum(path.stat().st_size for path in (home / "folder").rglob("*.jpg")) / len(source.labels)
    say(f"{len(source.labels)} photographs of {files:,.0f} B each")
    for name, options in {"photos": Options(), "small": Options(format="jpeg")}.items():
        used = time.process_time()
        where = pack(name, source, home, options)
        seconds = time.process_time() - used
        each = manifest(where, name).bytes / len(source.labels)
        say(f"packed as {options.format}: {len(source.labels) / seconds:.0f} images/s a core, {each:,.0f} B each")
    room, splits.room = splits.room, lambda device: 0.0  # on one core, there is room for so few images in memory
    loaders(home / "folder")
    waiting()
    splits.room = room


if __name__ == "__main__":
    main()
