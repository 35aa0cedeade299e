"""Selection of plans by the names given to a command, and what a plan trains and evaluates."""

from collections.abc import Sequence
from pathlib import Path

from results import store
from results.names import suggestion
from results.store.schemas import Entry, Plan


def plans(runs: Path, studies: Sequence[str] = ()) -> list[Plan]:
    """Return the named plans of a run directory, or all plans if `studies` is empty.

    studies: "pooling" for every recipe, "pooling@digits" for one recipe. Raises ValueError if a name is unknown, or if
    the directory is missing or without plans. Raises ValueError too if a plan is damaged or of a newer version.
    """
    if not runs.is_dir():
        raise absent(runs)
    found = {plan.name: plan for plan in store.plans(runs)}
    return [found[name] for name in select([*found.values()], studies, runs)]


def absent(source: Path) -> ValueError:
    """Return the error for a run directory or file that does not exist."""
    then = "run a study first (`ablate run STUDY`), or give --runs"
    return ValueError(f"{source}: no such run directory or exported file: {then}")


def trained(plan: Plan) -> list[Entry]:
    """Return the stages of a plan, parents first, and then its arms."""
    return [*plan.stages, *plan.arms]


def objective(plan: Plan) -> str:
    """Return the training objective that all arms share, or "" if the arms differ."""
    found = {arm.config.get("objective", "classification") for arm in plan.arms}
    return str(found.pop()) if len(found) == 1 else ""


def evals_of(entry: Entry, plan: Plan) -> list[str]:
    """Return the names of the evals that the trials of an entry need: its own list, or else the plan's."""
    return list(plan.evals if entry.evals is None else entry.evals)


def select(plans: Sequence[Plan], studies: Sequence[str], source: Path) -> list[str]:
    """Return the full names of the selected plans in the order of `studies`, or of all plans if it is empty.

    "study@recipe" also selects a plan with overrides if that is its only match. source: the run directory or file, for
    errors. Raises ValueError if a name is unknown or there are no plans.
    """
    if not plans:
        raise ValueError(f"{source}: no study has been run here")
    known = {name for plan in plans for name in (plan.study, plan.name)}
    places: dict[str, int] = {}
    for place, name in enumerate(studies):
        changed = [one for one in known if one.startswith(f"{name}+")] if "@" in name else []
        asked = changed[0] if name not in known and len(changed) == 1 else name
        if asked not in known:
            there = ", ".join(plan.name for plan in plans)
            alike = [one for one in known if ("@" in one) == ("@" in asked)]  # both with a recipe, or both without
            raise ValueError(f"{source}: no study '{asked}'{suggestion(asked, alike)} (there: {there})")
        for plan in plans:
            if asked in (plan.study, plan.name):
                places.setdefault(plan.name, place)
    chosen = places if studies else {plan.name: 0 for plan in plans}
    return sorted(chosen, key=lambda name: (chosen[name], name))
