"""`ablate retry`: which trials may be run again, and what is said of it."""

from collections.abc import Callable

from ablations.attempts import known
from results import store


def wanted(*, failed: bool, oom: bool, diverged: bool) -> Callable[[store.Trial], bool]:
    """Whether a trial is asked for. oom: of those that failed, the ones that ran out of memory."""

    def is_wanted(trial: store.Trial) -> bool:
        state = trial.state()
        if state.status == "failed":
            return failed or (oom and kind(trial) == "memory")
        return diverged and state.status == "diverged"

    return is_wanted


def kind(trial: store.Trial) -> str:
    """What the newest attempt failed of (ablations.faults); "" where that is not known."""
    newest = trial.attempts()[-1:]
    return str(known(newest[0] / "failure.json").get("kind", "")) if newest else ""


def told(asked: int, chosen: int, reopened: int, *, oom: bool, diverged: bool) -> str:
    """A line for a person."""
    how = " or ".join([*(["ran out of memory"] if oom else []), *(["diverged"] if diverged else [])]) or "failed"
    if not chosen:
        return f"none of {asked} trials {how}: there is nothing to retry"
    held = f"; {chosen - reopened} are held by a worker right now" if chosen > reopened else ""
    return f"{reopened} trials may be run again{held}"


ADVICE = {  # kind of a failure (ablations.faults): what helps, with {0} for the study
    "memory": "not one image fits: free or change the GPU, then: ablate retry {0} --oom",
    "input": "put right what it names, then: ablate retry {0}",
    "machine": "look at the node, or go to another, then: ablate retry {0}",
}


def advice(kind: str, study: str) -> str:
    """The command that helps."""
    other = "look: ablate logs {0} --failed; changed code runs it by itself, the same after: ablate retry {0}"
    return ADVICE.get(kind, other).format(study)
