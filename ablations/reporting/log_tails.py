"""`ablate logs`: the end of each trial's newest log, with the traceback of a failure.

For trials that a SLURM task never began or left unfinished, the task's log is shown too: it says what killed it.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from ablations.cluster import submitted_arrays
from ablations.cluster.submitted_arrays import SubmittedTask
from ablations.execution.logs import end_of
from ablations.planning.jobs import jobs
from results import store

NO_LOG = "no log yet: its job has not started, or ended before it could write (`ablate status`)"


def tails(runs: Path, ids: Sequence[str], lines: int, only_failed: bool) -> Iterator[str]:
    """One text per log: a heading and its last lines. The log of a shared task is shown once."""
    names = {job.id: f"{job.arm} seed {job.config['seed']}" for job in jobs(store.plans(runs))}
    tasks = submitted_arrays.submitted_tasks(runs)
    told: set[tuple[str, int]] = set()
    for key in ids:
        trial = store.trial(runs, key)
        state = trial.state()
        if only_failed and state.status != "failed":
            continue
        heading = f"== {key}  {names.get(key, '')}  {state.status}"
        if state.attempt is not None:
            yield "\n".join([f"{heading}  {state.attempt}", *attempt_lines(trial, state.attempt)[-lines:]])
        if state.status not in ("missing", "interrupted") or key not in tasks:
            continue
        task, later = newest_with_output(tasks[key])
        if (task.tag, task.index) not in told:
            told.add((task.tag, task.index))
            which = f" (the {later} after it printed nothing)" if later else ""
            yield "\n".join([f"{heading}, its task:  {task.array}{which}", *(task.lines() or [NO_LOG])[-lines:]])


def attempt_lines(trial: store.Trial, attempt: Path) -> list[str]:
    text = end_of(attempt / "log")
    return (text + str((trial.failure() or {}).get("traceback", ""))).splitlines()


def newest_with_output(tasks: Sequence[SubmittedTask]) -> tuple[SubmittedTask, int]:
    """The newest task that printed anything (else the newest), and the number of silent tasks after it."""
    for later, task in enumerate(reversed(tasks)):
        if task.lines():
            return task, later
    return tasks[-1], 0
