"""The ledger of a run directory: what plans declared, and when, in files that outlive the plans.

    runs/ledger/<first digits of the file's SHA-256>.json   a declaration (schemas.Declaration), never changed

A declaration is known by the ids of its trials, so other plans over the same trials inherit it, whatever their names.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from commonfloor.files import Broken, read_bytes, refuse_links, write_bytes
from results.store.json_files import SCHEMA, NewerSchema, parse, read
from results.store.plan_files import read_plan, sorted_paths
from results.store.schemas import Declaration, DeclaredArm, Looks, Plan

FOLDER = "ledger"
LOOKS = "looks.json"  # which 0.23 wrote beside plan.json
DIGITS = 16  # of the SHA-256 in a file's name
WHEN = ("time", "ended")  # fields that do not tell what was declared


def declare(runs: Path, plan: Plan) -> None:
    """Add the plan's declaration to the ledger, unless the newest one of a plan of this name says the same.

    Declarations of plans that versions without a ledger wrote are added too. Raises the errors of `refuse_links`,
    `read_declarations` and `write_bytes`.
    """
    refuse_links(runs, runs / FOLDER)
    written = read_files(runs)
    earlier = earlier_declarations(runs, {one.plan for one in written})
    for one in earlier:
        write(runs, one)
    known = sorted([*written, *earlier], key=lambda one: one.time)
    newest = next((one for one in reversed(known) if one.plan == plan.name), None)
    declared = declaration(plan, time_after(known), ended_trials(runs, plan))
    if newest is None or newest.content(*WHEN, "schema") != declared.content(*WHEN):
        write(runs, declared)


def declaration(plan: Plan, time: str = "", ended: Iterable[str] = ()) -> Declaration:
    """Return what a plan declares. ended: the ids of its trials that have results."""
    return Declaration(
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


def ended_trials(runs: Path, plan: Plan) -> list[str]:
    """Return the ids of the arms' trials that have a result in a run directory, valid or not."""
    return [one for one in sorted(plan.arm_trials) if os.path.lexists(Path(runs, "trials", one, "result.json"))]


def time_after(known: Sequence[Declaration]) -> str:
    """Return the current time in UTC, or the time after the newest declaration if that is later.

    Clocks of several machines may differ, and declarations keep their order.
    """
    now = datetime.now(UTC)
    if known and known[-1].time:
        now = max(now, datetime.fromisoformat(known[-1].time) + datetime.resolution)
    return timestamp(now)


def timestamp(when: datetime) -> str:
    return when.isoformat(timespec="microseconds").replace("+00:00", "Z")


def write(runs: Path, declared: Declaration) -> None:
    payload = (json.dumps({"schema": SCHEMA, **declared.content()}, indent=1, allow_nan=False) + "\n").encode()
    write_bytes(runs / FOLDER / file_name(payload), payload)


def file_name(payload: bytes) -> str:
    return f"{hashlib.sha256(payload).hexdigest()[:DIGITS]}.json"


def read_declarations(runs: Path) -> list[Declaration]:
    """Return all declarations of a run directory by time, also those of plans that an earlier version wrote.

    Raises Broken if a file of the ledger is damaged, and NewerSchema if a newer version wrote it.
    """
    written = read_files(runs)
    return sorted(
        [*written, *earlier_declarations(runs, {one.plan for one in written})],
        key=lambda one: one.time,
    )


def read_files(runs: Path) -> list[Declaration]:
    """Return the declarations in the files of the ledger. Raises the errors of `read_declarations`."""
    return [read_file(path) for path in sorted_paths(runs / FOLDER) if path.suffix == ".json" and path.name[0] != "."]


def read_file(path: Path) -> Declaration:
    try:
        payload = read_bytes(path)
        if path.name != file_name(payload):
            raise Broken(f"{path.name}: edited or damaged")
        return parse(payload, path, Declaration)
    except Broken as error:  # its text begins with the file's name
        raise Broken(f"{path.parent}/{error}: restore it, or remove it and say so where you publish") from None


def earlier_declarations(runs: Path, known: set[str]) -> list[Declaration]:
    """Return the declarations of plans that a version without a ledger wrote. known: names of plans in the ledger.

    Damaged plans are left out, as the commands that read plans name them.
    """
    found: list[Declaration] = []
    for folder in sorted_paths(runs / "studies"):
        if folder.name in known:
            continue
        try:
            plan = read_plan(folder / "plan.json")
        except (FileNotFoundError, NotADirectoryError):
            found += declarations_of_looks(folder)
        except (Broken, NewerSchema):
            continue
        else:
            found += declarations_of_plan(plan, modified(folder / "plan.json"))
    return found


def modified(path: Path) -> str:
    return timestamp(datetime.fromtimestamp(path.stat().st_mtime, UTC))


def declarations_of_plan(plan: Plan, time: str = "") -> list[Declaration]:
    """Return a declaration for each number of seeds that a plan of an earlier version has had.

    Such plans recorded a number only once the seeds before it had a result. A plan of a later version is here only if
    its ledger was removed: all its trials may have had results before.
    """
    found = list[Declaration]()
    ended = list[str]()
    if "grows" in plan.model_fields_set and not plan.looks:
        return [declaration(plan, time, sorted(plan.arm_trials))]
    for number in plan.looks or [len(plan.seeds)]:
        seeds = list(range(number)) if plan.looks else plan.seeds
        arms = [
            arm.model_copy(update={"trials": [one for one in arm.trials if one.seed in seeds]}) for arm in plan.arms
        ]
        found.append(declaration(plan.model_copy(update={"seeds": seeds, "arms": arms}), time, ended))
        ended = sorted(found[-1].ids)
    return found


def declarations_of_looks(folder: Path) -> list[Declaration]:
    """Return the declarations that looks.json stands for where plan.json was removed, with the first seed's trials."""
    try:
        looks = read(folder / LOOKS, Looks)
    except (FileNotFoundError, NotADirectoryError, Broken, NewerSchema):
        return []
    arms = {trial: DeclaredArm(baseline=trial, trials=[trial]) for trial in looks.trials}
    time = modified(folder / LOOKS)
    found = list[Declaration]()
    for number in looks.looks:
        ended = looks.trials if found else []
        seeds = list(range(number))
        found.append(
            Declaration(
                plan=folder.name,
                time=time,
                metric="",
                margin=None,
                baseline="",
                seeds=seeds,
                family=0,
                arms=arms,
                ended=ended,
            )
        )
    return found


def with_declarations(plan: Plan, declarations: Iterable[Declaration]) -> Plan:
    """Return the plan with those of the declarations that share a trial with it."""
    own = plan.arm_trials
    return plan.model_copy(update={"declarations": [one for one in declarations if not own.isdisjoint(one.ids)]})
