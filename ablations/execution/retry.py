"""Which trials may be run again: those that `ablate retry` asks for, and those that lost what others start from."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ablations.execution.attempts import known
from ablations.execution.runner import outcome
from ablations.planning.jobs import Job
from results import store
from results.store import dependencies, evals, lease
from results.store.schemas import Failure

Wanted = Callable[[store.Trial, store.TrialState], bool]


def wanted(*, failed: bool, oom: bool, diverged: bool) -> Wanted:
    """Whether a trial is asked for. oom: of those that failed, the ones that ran out of memory."""

    def is_wanted(trial: store.Trial, state: store.TrialState) -> bool:
        if state.status == "failed":
            return failed or (oom and kind(trial) == "memory")
        return diverged and state.status == "diverged"

    return is_wanted


def kind(trial: store.Trial) -> str:
    """What the newest attempt failed of (ablations.execution.faults); "" where that is not known."""
    newest = trial.attempts()[-1:]
    return str(known(newest[0] / "failure.json", Failure).get("kind", "")) if newest else ""


def retry(trials: Iterable[store.Trial], wanted: Wanted, evals_too: bool) -> list[bool]:
    """Of each trial that is asked for, or has evals that failed, whether it may be run again: else it is held."""
    seen = ((trial, trial.state()) for trial in trials)
    asked = ((trial, state if wanted(trial, state) else None) for trial, state in seen)
    return [again(trial, state, evals_too) for trial, state in asked if state or owes(trial, evals_too)]


def owes(trial: store.Trial, evals_too: bool) -> bool:
    return evals_too and evals.failure(trial) is not None


def again(trial: store.Trial, wanted: store.TrialState | None, evals_too: bool) -> bool:
    """wanted: in which state it was asked for; None: only its evals were. It is left where it ended anew since."""
    forgiven = evals_too and evals.forgive(trial)
    return forgiven if wanted is None else trial.reopen(lease.Watch(), wanted.result)


def lost(runs: Path, jobs: Iterable[Job], code: str | None = None) -> dict[str, str]:
    """What has to be trained again, as its weights are gone and one of the jobs has still to start from them.

    By id, with what it is called. code: under which failures count, None: under any.
    """
    look, found = dependencies.on_disk(runs, code), dict[str, str]()
    for job in jobs:
        start = dependencies.begin(runs, job.id, job.parents, look)
        if start.kind == dependencies.LOST and outcome(runs, job, code, look)[0] == "todo":
            found |= {key: f"{job.parents[key]} seed {job.config['seed']}" for key in start.lost}
    return found


def to_do(runs: Path, jobs: Sequence[Job], code: str | None = None) -> list[Job]:
    """Those that a run would train, what is to be trained again included."""
    look, again = dependencies.on_disk(runs, code), lost(runs, jobs, code)
    return [job for job in jobs if job.id in again or outcome(runs, job, code, look)[0] == "todo"]


def renew(runs: Path, jobs: Iterable[Job], code: str | None = None) -> list[str]:
    """Lets these be trained again; what they are called. One that is held, or that another process renewed, is left."""
    watch = lease.Watch()
    return [name for key, name in lost(runs, jobs, code).items() if reopened(store.trial(runs, key), watch)]


def reopened(trial: store.Trial, watch: lease.Watch) -> bool:
    """Whether it still had finished without weights, and may be trained again."""
    state = trial.state()  # once: the result whose weights are gone is the one to move aside
    is_lost = state.status == "finished" and not state.weights.exists()
    return is_lost and trial.reopen(watch, state.result)


def renewed(names: Sequence[str]) -> str:
    """A line for a person; "" where there is nothing to say."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    listed = ", ".join(names[:3]) + more
    return f"to train again, as the weights that others start from are gone: {listed}" if names else ""


def told(asked: int, reopened: Sequence[bool], *, oom: bool, diverged: bool) -> str:
    """A line for a person."""
    how = " or ".join([*(["ran out of memory"] if oom else []), *(["diverged"] if diverged else [])]) or "failed"
    if not reopened:
        return f"none of {asked} trials {how}: there is nothing to retry"
    held = f"; {reopened.count(False)} are held by a worker right now" if not all(reopened) else ""
    return f"{sum(reopened)} trials may be run again{held}"


ADVICE = {  # kind of a failure (ablations.execution.faults): what helps, with {0} for the study
    "memory": "not one image fits: free or change the GPU, then: ablate retry {0} --oom",
    "input": "put right what it names, then: ablate retry {0}",
    "machine": "look at the node, or go to another, then: ablate retry {0}",
}


def advice(kind: str, study: str) -> str:
    """The command that helps."""
    other = "look: ablate logs {0} --failed; changed code runs it by itself, the same after: ablate retry {0}"
    return ADVICE.get(kind, other).format(study)
