"""Training curves for TensorBoard while trials run, written by a thread that polls the run directory."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from results import trackers
from results.store.schemas import Plan
from results.study_results import load_plans

EVERY_SECONDS = 10.0


@contextmanager
def mirroring(plans: Sequence[Plan], runs: Path, folder: Path | None) -> Iterator[None]:
    """Write the plans' training curves to the folder, if given, every EVERY_SECONDS and when the block ends.

    If tensorboard is not installed, raises ModuleNotFoundError before the block begins.
    """
    if folder is None:
        yield
        return
    import tensorboard.compat.proto.event_pb2  # noqa: F401  # an extra: its absence would go unnoticed in the thread

    done = threading.Event()

    def keep_mirroring() -> None:
        while not done.wait(EVERY_SECONDS):
            mirror(plans, runs, folder)

    thread = threading.Thread(target=keep_mirroring, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        mirror(plans, runs, folder)


def mirror(plans: Sequence[Plan], runs: Path, folder: Path) -> None:
    """Write the training curves once. Ignores errors, because the next call writes all curves again."""
    with suppress(OSError, ValueError):  # ValueError: no trial has been evaluated yet
        trackers.write_tensorboard(load_plans(runs, plans), folder)
