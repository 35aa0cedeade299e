"""Plans on disk, which persist: a plan may only be replaced by one that extends it."""

from pathlib import Path

from ablations.trainables.trainable import find
from commonfloor.files import refuse_links
from results import store
from results.store import lease, ledger
from results.store.schemas.base import Settings
from results.store.schemas.plans import Plan


def saved_plan(runs: Path, plan_name: str) -> Plan | None:
    """Return a plan on disk, or None if there is none. Raises ValueError (Broken, NewerSchema) if it is unreadable."""
    try:
        return store.read_plan(store.study_folder(runs, plan_name) / "plan.json")
    except FileNotFoundError:
        return None


def save_plan(runs: Path, plan: Plan) -> None:
    """Declare a plan, and write plan.json if the plan on disk is still the one that `plan` extends.

    Raises ValueError if it is not, and TimeoutError if another process holds the lock.
    """
    folder = store.study_folder(runs, plan.name)
    refuse_links(runs, folder / "turns")
    store.make_run_directory(runs)
    with lease.lock(folder / "turns"):
        on_disk = saved_plan(runs, plan.name)
        if plan_digest(on_disk) not in (plan.extends, plan_digest(plan)):
            if on_disk is not None and not plan.pruned:
                check_same_table(on_disk, plan)
            raise ValueError(f"{plan.name}: another run changed its plan meanwhile: give the command again")
        ledger.declare(runs, plan)
        store.write_plan(folder / "plan.json", plan)


def plan_digest(plan: Plan | None) -> str:
    return "" if plan is None else store.checksum(store.plan_content(plan))


def check_same_table(old: Plan, new: Plan) -> None:
    """Raise ValueError if two plans of one name have different baselines or metrics. Secondary ones have no order."""
    if old.baseline != new.baseline and old.baseline_arm.key == new.baseline_arm.key:
        factors = ", ".join(sorted(old.factors.keys() ^ new.factors.keys()))
        raise ValueError(
            f"{old.name} was planned with other factors ({factors}), which name its baseline {old.baseline}: leave the "
            "factors as they were, give the study another name, or plan it anew with --prune (results stay)"
        )
    kept = [("baseline", old.baseline, new.baseline), ("metric", old.metric, new.metric)]
    if set(old.secondary_metrics) != set(new.secondary_metrics):
        kept.append(("metrics", ", ".join(old.compared_metrics), ", ".join(new.compared_metrics)))
    for key, before, now in kept:
        if before != now:
            raise ValueError(
                f"{old.name} was planned with {key} {before}, now it is {now}: give the study another name, "
                "or plan it anew with --prune (results stay)"
            )
    if old.baseline_arm.key != new.baseline_arm.key:
        settings = settings_of_baseline(old)
        others = settings_of_baseline(new)
        differ = [key for key in settings | others if settings.get(key) != others.get(key)]
        changed = ", ".join(f"{key} {settings.get(key)} -> {others.get(key)}" for key in differ[:3])
        code = find(new.trainable).code_changes(old.trainable)
        if code and not changed:
            raise ValueError(
                f"{old.name}: its code or recipe has changed since it was planned ({code}): undo that, "
                "plan it anew with --prune (results stay), or keep both tables with --name NEW"
            )
        raise ValueError(
            f"{old.name} was planned with another baseline "
            f"({changed or 'its data, its code, or what one of its parts computes'}): "
            "give what you edited, study or recipe, another name, or plan it anew with --prune (results stay)"
        )


def settings_of_baseline(plan: Plan) -> Settings:
    settings = dict(plan.baseline_arm.config)
    for stage in plan.lineage(plan.baseline_arm):
        settings |= {f"{stage.stage}.{key}": value for key, value in stage.config.items()}
    return settings
