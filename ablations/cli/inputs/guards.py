"""Checks that precede writing and training. A failed check raises a ValueError with one line on what to change."""

import tempfile
from pathlib import Path

from ablations import machine
from ablations.execution import slots
from ablations.execution.launch import Place
from ablations.execution.retry import trials_to_run
from ablations.jobs import Job
from results import store
from results.store.files import check_hard_links


def ensure_trainable(jobs: list[Job], place: Place) -> None:
    """Raise ValueError if the trials cannot be trained here, or an error of `ensure_data`. Creates missing folders."""
    from vitcore.runtime.host import check_memory, host_limits

    todo = trials_to_run(place.runs, jobs, place.code)
    if any(job.config["device"] == "cuda" for job in todo):
        from vitcore.runtime.device import require_gpu

        require_gpu()
    slots.check_gpus(todo, len(machine.gpus()), machine.nodes(), "here")
    limit = min(host_limits())
    for job in todo:
        if job.cost is not None and (job.config["device"] == "cpu" or not machine.gpus()):
            check_memory(job.config, job.cost, limit)
    ensure_data(jobs, place)
    ensure_publishable(place.runs)
    if place.checkpoints:
        ensure_writable(place.checkpoints, "--checkpoints", mode=0o700)


def ensure_data(jobs: list[Job], place: Place) -> None:
    """Raise ValueError if data that the trials need are missing or damaged, and OSError if they cannot be read."""
    from vitcore.data.builtin import BUILT_IN
    from vitcore.data.homes import data_home
    from vitcore.data.imagefolder import check_images
    from vitcore.data.lookup import FOLDER, describe, find_pack, image_folder
    from vitcore.data.pack import manifest, open_pack

    left = {job.config["data"] for job in jobs if not store.trial(place.runs, job.id).state().is_over}
    for name in sorted({job.config["data"] for job in jobs}):
        if name in BUILT_IN:
            BUILT_IN[name].read(data_home(place.data_dir))
        elif (folder := find_pack(name)) is not None:
            open_pack(folder, manifest(folder, name))
        elif name.startswith(FOLDER) and name in left:  # every image is decoded, which only training needs
            check_images(image_folder(name), describe(name).channels)


def ensure_publishable(runs: Path) -> None:
    """Create a run directory if it is missing. Raises ValueError if results cannot be written or linked there."""
    ensure_writable(runs)
    check_hard_links(runs)


def ensure_writable(folder: Path, option: str = "--runs", mode: int = 0o777) -> None:
    """Create a folder if it is missing. Raises a ValueError that names `option` if the folder cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=mode)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ValueError(f"{option} {folder}: cannot be written ({error.strerror})") from None
