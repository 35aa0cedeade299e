"""The ledger of a run directory: what plans declared, and when, in files that outlive the plans.

    runs/ledger/<first digits of the file's SHA-256>.json   a declaration (`Declaration`), never changed

A declaration is known by the ids of its trials, so other plans over the same trials inherit it, whatever their names.
"""

import hashlib
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from commonfloor.files import Broken, read_bytes, refuse_links, write_bytes
from results.store.contents import SCHEMA, NewerSchema, json_bytes, parse, read
from results.store.plan_files import read_plan, sorted_paths
from results.store.schemas.declarations import Declaration, DeclaredArm, Looks
from results.store.schemas.plans import Plan

FOLDER = "ledger"
LOOKS = "looks.json"  # which 0.23 wrote beside plan.json
DIGITS = 16  # of the SHA-256 in a file's name
WHEN = ("time", "ended")  # fields that do not tell what was declared


def declare(runs: Path, plan: Plan) -> None:
    """Add the plan's declaration to the ledger, unless its newest one says the same, and those of earlier versions."""
    refuse_links(runs, runs / FOLDER)
    written = read_files(runs)
    earlier = earlier_declarations(runs, written)
    for declared in earlier:
        write(runs, declared)
    declarations = by_time([*written, *earlier])
    content = declaration(plan, time_after(declarations), ended_trials(runs, plan))
    of_plan = [declared for declared in declarations if declared.plan == plan.name]
    if not of_plan or of_plan[-1].content(*WHEN, "schema") != content.content(*WHEN):
        write(runs, content)


def declaration(plan: Plan, time: str = "", ended: Sequence[str] = ()) -> Declaration:
    """Return what a plan declares. ended: the ids of its trials that have results."""
    declared = Declaration(
        plan=plan.name,
        time=time,
        metric=plan.metric,
        margin=plan.margin,
        baseline=plan.baseline,
        grows=plan.grows,
        seeds=plan.seeds,
        family=plan.family,
        points_family=plan.points_family,
        claims=plan.claims,
        arms={arm.name: DeclaredArm(baseline=arm.baseline, trials=[*arm.ids.values()]) for arm in plan.arms},
        ended=list(ended),
    )
    if plan.secondary_metrics:
        declared = declared.model_copy(update={"secondary_metrics": plan.secondary_metrics})
    if plan.race:
        declared = declared.model_copy(update={"race": True})
    if not plan.is_paired:
        declared = declared.model_copy(update={"paired": plan.paired})
    return declared


def ended_trials(runs: Path, plan: Plan) -> list[str]:
    return [trial for trial in sorted(plan.arm_trials) if os.path.lexists(Path(runs, "trials", trial, "result.json"))]


def time_after(declarations: Sequence[Declaration]) -> str:
    """Return the time in UTC, but later than all declarations: they keep their order although clocks differ."""
    now = datetime.now(UTC)
    if declarations and declarations[-1].time:
        now = max(now, datetime.fromisoformat(declarations[-1].time) + datetime.resolution)
    return timestamp(now)


def timestamp(when: datetime) -> str:
    return when.isoformat(timespec="microseconds").replace("+00:00", "Z")


def by_time(declarations: Iterable[Declaration]) -> list[Declaration]:
    return sorted(declarations, key=lambda declared: declared.time)


def write(runs: Path, declared: Declaration) -> None:
    payload = json_bytes({"schema": SCHEMA, **declared.content()})
    write_bytes(runs / FOLDER / file_name(payload), payload)


def file_name(payload: bytes) -> str:
    return f"{hashlib.sha256(payload).hexdigest()[:DIGITS]}.json"


def read_declarations(runs: Path) -> list[Declaration]:
    """Return all declarations of a run directory by time, with those of plans that an earlier version wrote.

    Raises Broken if a file of the ledger is damaged, and NewerSchema if a newer version wrote it.
    """
    written = read_files(runs)
    return by_time([*written, *earlier_declarations(runs, written)])


def read_files(runs: Path) -> list[Declaration]:
    return [read_file(path) for path in sorted_paths(runs / FOLDER) if path.suffix == ".json" and path.name[0] != "."]


def read_file(path: Path) -> Declaration:
    try:
        payload = read_bytes(path)
        if path.name != file_name(payload):
            raise Broken(f"{path.name}: edited or damaged")
        return parse(payload, path, Declaration)
    except Broken as error:  # its text begins with the file's name
        raise Broken(f"{path.parent}/{error}: restore it, or remove it and say so where you publish") from None


def earlier_declarations(runs: Path, written: Iterable[Declaration]) -> list[Declaration]:
    """Return the declarations of plans that a version without a ledger wrote. written: those in the ledger.

    The commands that read plans name the damaged ones.
    """
    names = {declared.plan for declared in written}
    declarations: list[Declaration] = []
    for folder in sorted_paths(runs / "studies"):
        if folder.name in names:
            continue
        with suppress(Broken, NewerSchema):
            try:
                plan = read_plan(folder / "plan.json")
                declarations += declarations_of_plan(plan, modified(folder / "plan.json"))
            except (FileNotFoundError, NotADirectoryError):
                declarations += declarations_of_looks(folder)
    return declarations


def modified(path: Path) -> str:
    return timestamp(datetime.fromtimestamp(path.stat().st_mtime, UTC))


def declarations_of_plan(plan: Plan, time: str = "") -> list[Declaration]:
    """Return a declaration for each number of seeds that a plan of an earlier version has had.

    The seeds before such a number had results. If only the ledger of a later plan was removed, all trials may have had.
    """
    if "grows" in plan.model_fields_set and not plan.looks:
        return [declaration(plan, time, sorted(plan.arm_trials))]
    if not plan.looks:
        return [declaration(plan, time)]
    declarations: list[Declaration] = []
    ended: list[str] = []
    for number in plan.looks:
        arms = []
        for arm in plan.arms:
            trials = [trial for trial in arm.trials if trial.seed < number]
            arms.append(arm.model_copy(update={"trials": trials}))
        earlier = plan.model_copy(update={"seeds": list(range(number)), "arms": arms})
        declarations.append(declaration(earlier, time, ended))
        ended = sorted(earlier.arm_trials)
    return declarations


def declarations_of_looks(folder: Path) -> list[Declaration]:
    """Return the declarations that looks.json stands for where plan.json was removed, with the first seed's trials."""
    try:
        looks = read(folder / LOOKS, Looks)
    except (FileNotFoundError, NotADirectoryError):
        return []
    arms = {trial: DeclaredArm(baseline=trial, trials=[trial]) for trial in looks.trials}
    recorded: dict[str, Any] = {"plan": folder.name, "time": modified(folder / LOOKS), "arms": arms}
    unknown: dict[str, Any] = {"metric": "", "margin": None, "baseline": "", "family": 0}
    declarations = []
    ended: list[str] = []
    for number in looks.looks:
        declarations.append(Declaration(**recorded, **unknown, seeds=list(range(number)), ended=ended))
        ended = looks.trials
    return declarations


def with_declarations(plan: Plan, declarations: Iterable[Declaration]) -> Plan:
    trials = plan.arm_trials
    shared = [declared for declared in declarations if not trials.isdisjoint(declared.ids)]
    return plan.model_copy(update={"declarations": shared})
