"""The trials of a run directory that must finish before a single trial begins."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ablations.jobs import Job
from ablations.trainables.trainable import LINKS, find, is_trial_id, trial_id
from results import store
from results.store.schemas import Settings

# Statuses of trials that others may start from, now or once they have finished.
GO_ON = ("finished", "interrupted", "running")


def ancestors(name: str, settings: Settings, runs: Path) -> list[Job]:
    """Return the jobs in `runs` that must finish before a trial with these settings begins, oldest first.

    The first is the nearest finished ancestor with weights, or else the earliest ancestor. Finished ancestors without
    weights are trained again. name: the trainable, as module:attribute. Raises ValueError if an ancestor is missing,
    has failed, cannot be trained again, or does not fit. Raises the errors of `Trial.config`.
    """
    trainable = find(name)
    before: list[Job] = []
    while link := link_of(settings):
        text = f"{link}={settings[link]}"
        trial = store.trial(runs, settings[link])
        state = trial.state()
        if state.status not in GO_ON:
            raise ValueError(f"{text}: {state.status} in {runs}: name a finished trial or a file")
        parent = trainable.resolve(trial.config())
        trainable.check_trial(settings, parent)
        before.insert(0, Job(trial.id, parent, "train", "", trainable=name))
        if state.status == "finished" and state.weights.exists():
            break
        if trial_id(trainable, parent) != trial.id:
            raise ValueError(
                f"{text}: its weights are not in {runs}, and it cannot be trained again: its data "
                "or the code of its parts changed"
            )
        settings = parent
    else:
        trainable.check_trial(settings, None)
    return [replace(job, parents=parent_names(before[:position])) for position, job in enumerate(before)]


def link_of(settings: Settings) -> str:
    """Return the setting that names another trial, or "" if none does."""
    return next((link for link in LINKS if is_trial_id(settings.get(link))), "")


def parent_names(before: Sequence[Job]) -> dict[str, str]:
    """Return job id -> display name, nearest ancestor first. before: the ancestors' jobs, oldest first."""
    return {job.id: f"trial {job.id}" for job in reversed(before)}
