"""Mirror training curves for TensorBoard while trials run, in a thread that reads the disk again and again."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from results.store.schemas import Plan
from results.study_results import load_plans
from results.trackers import tensorboard as curves

EVERY_SECONDS = 10.0


@contextmanager
def mirroring(plans: Sequence[Plan], runs: Path, folder: Path | None) -> Iterator[None]:
    """Mirror the curves of the plans to the folder until the block ends, then once more; no folder, no curves.

    Raises ModuleNotFoundError, before anything is trained, where tensorboard is not installed.
    """
    if folder is None:
        yield
        return
    import tensorboard.compat.proto.event_pb2  # noqa: F401  # an extra: the thread would miss it unheard

    done = threading.Event()
    thread = threading.Thread(target=keep_mirroring, args=(plans, runs, folder, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        mirror(plans, runs, folder)


def keep_mirroring(plans: Sequence[Plan], runs: Path, folder: Path, done: threading.Event) -> None:
    while not done.wait(EVERY_SECONDS):
        mirror(plans, runs, folder)


def mirror(plans: Sequence[Plan], runs: Path, folder: Path) -> None:
    """Write the curves once. Whatever fails is tried again the next time: training does not wait for it."""
    with suppress(OSError, ValueError):  # ValueError: no trial has been evaluated yet
        curves.write(load_plans(runs, plans), folder)
