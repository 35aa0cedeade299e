"""Select plans by the names given in a command, and list what a plan trains and evaluates."""

from collections.abc import Collection, Sequence
from pathlib import Path

from results import store
from results.did_you_mean import suggestion
from results.store.schemas import Entry, Plan


def plans(runs: Path, studies: Sequence[str] = ()) -> list[Plan]:
    """Return the named plans of a run directory, or all plans.

    studies: "pooling" for every recipe, "pooling@digits" for one recipe. Raises ValueError for an unknown name or an
    empty directory.
    """
    if not runs.is_dir():
        raise absent(runs)
    found = list(store.plans(runs))
    wanted = set(select(found, studies, runs))
    return sorted((plan for plan in found if plan.name in wanted), key=lambda plan: order(plan, studies))


def absent(source: Path) -> ValueError:
    """Return the error for a run directory or file that does not exist."""
    then = "run a study first (`ablate run STUDY`), or give --runs"
    return ValueError(f"{source}: no such run directory or exported file: {then}")


def trained(plan: Plan) -> list[Entry]:
    """List the entries of a plan: stages in order of dependence, then arms."""
    return [*plan.stages, *plan.arms]


def objective(plan: Plan) -> str:
    """Return the objective of all arms; "" where arms differ."""
    found = {arm.config.get("objective", "classification") for arm in plan.arms}
    return str(found.pop()) if len(found) == 1 else ""


def evals_of(entry: Entry, plan: Plan) -> list[str]:
    """List the evals that the trials of an entry owe, by default the plan's."""
    return list(plan.evals if entry.evals is None else entry.evals)


def select(plans: Sequence[Plan], studies: Sequence[str], source: Path) -> list[str]:
    """Return the full names of the plans that `studies` name, or of all. Raises ValueError for an unknown name."""
    if not plans:
        raise ValueError(f"{source}: no study has been run here")
    known = {name for plan in plans for name in (plan.study, plan.name)}
    asked = [resolved(name, known) for name in studies]
    for name in asked:
        if name not in known:
            there = ", ".join(plan.name for plan in plans)
            alike = [one for one in known if ("@" in one) == ("@" in name)]  # with a recipe, or without
            raise ValueError(f"{source}: no study '{name}'{suggestion(name, alike)} (there: {there})")
    return [plan.name for plan in plans if not studies or {plan.study, plan.name} & set(asked)]


def resolved(name: str, known: Collection[str]) -> str:
    """Return the full name of 'study@recipe' if only one plan adds overrides to it; else the name unchanged."""
    changed = [one for one in known if one.startswith(f"{name}+")]
    return changed[0] if name not in known and "@" in name and len(changed) == 1 else name


def order(plan: Plan, studies: Sequence[str]) -> tuple[int, str]:
    """Return the key that sorts plans in the order of `studies`, then by name."""
    names = (plan.study, plan.name)
    asked = [i for i, name in enumerate(studies) if name in names or resolved(name, names) in names]
    return min(asked, default=0), plan.name
