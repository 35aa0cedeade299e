"""Writing and reading the plans in a run directory, and finding them by name."""

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from commonfloor.files import Broken, safe_name
from commonfloor.messages import spelling_hint
from results.store.contents import SCHEMA, NewerSchema, checksum, read_json, write_json
from results.store.schemas.base import Settings, unknown_field, validated
from results.store.schemas.plans import Plan

# Settings that do not change a Vision Transformer's id: those of vitcore.settings.HOW_IT_RUNS, as a test ensures.
HOW_IT_RUNS = frozenset({"device", "threads", "compile", "cuda_graph", "attention", "micro_batch", "gpus"})
RUN_DIRECTORY = ("studies", "ledger", "trials")  # a folder with two of these is a run directory
REMEDY = (
    "remove it alone; its `ablate run` or `submit` with the same settings and --seeds writes it again (trials stay)"
)


def is_run_directory(folder: Path) -> bool:
    return sum((folder / part).is_dir() for part in RUN_DIRECTORY) > 1


def make_run_directory(folder: Path) -> None:
    """Create what makes a folder a run directory, before any file there could count as training code around it."""
    for part in RUN_DIRECTORY[:2]:
        (folder / part).mkdir(parents=True, exist_ok=True)


def study_folder(runs: Path, name: str) -> Path:
    """Return the folder of a plan. Raises ValueError if its name is not a valid file name."""
    return runs / "studies" / safe_name(name)


def plan_content(plan: Plan) -> dict[str, object]:
    return {"schema": SCHEMA, **plan.content()}


def write_plan(path: Path, plan: Plan) -> None:
    content = plan_content(plan)
    write_json(path, content | {"checksum": checksum(content)})


def read_plan(path: Path) -> Plan:
    """Return the verified plan in a file, without its checksum. Raises FileNotFoundError, Broken or NewerSchema."""
    try:
        if path.is_symlink() and not path.exists():
            raise Broken("plan.json: is a link to a missing file")
        content = read_json(path)
        recorded = content.pop("checksum", None)  # plans of 0.11 and before have none
        plan = validated(Plan, content, path)
        if recorded not in (None, checksum(content)):
            unknown = unknown_field(plan)
            what = f"unknown key {unknown!a:.60}" if unknown else "its checksum differs"
            raise Broken(f"plan.json: {what} (edited or damaged)")
        if plan.name != path.parent.name:
            raise Broken(f"plan.json: is the plan of {plan.name!a:.60}, not of its folder")
    except Broken as error:  # its text begins with the file's name
        raise Broken(f"{path.parent}/{error}: {REMEDY}") from None
    return plan


def sorted_paths(folder: Path) -> list[Path]:
    """Return the sorted paths in a folder, or [] if the folder is missing. Raises ValueError if it cannot be read."""
    try:
        return sorted(folder / name for name in os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ValueError(f"{folder}: cannot be read ({error.strerror})") from None


class Plans(NamedTuple):
    """The plans of a run directory that can be read, and the errors of those that cannot."""

    readable: list[Plan]
    damaged: list[ValueError]

    def all(self) -> list[Plan]:
        """Return the plans. Raises the first error if a plan is damaged."""
        if self.damaged:
            raise self.damaged[0]
        return self.readable


def read_plans(runs: Path) -> Plans:
    """Return the plans of a run directory, by name. Raises ValueError if their folder cannot be read."""
    plans = Plans([], [])
    for name in planned_names(runs):
        try:
            plans.readable.append(read_plan(runs / "studies" / name / "plan.json"))
        except FileNotFoundError:  # removed meanwhile
            continue
        except (Broken, NewerSchema) as error:
            plans.damaged.append(error)
    return plans


def planned_names(runs: Path) -> list[str]:
    return [folder.name for folder in sorted_paths(runs / "studies") if os.path.lexists(folder / "plan.json")]


def named_plans(runs: Path, studies: Sequence[str] = ()) -> Plans:
    """Return the named plans of a run directory, or all plans if `studies` is empty.

    Raises ValueError for an unknown name, a directory without plans, and a damaged plan that is named or the only one.
    """
    if not runs.is_dir():
        raise missing_source(runs)
    names = select_names(planned_names(runs), studies, runs)
    if studies:
        return Plans([read_plan(runs / "studies" / name / "plan.json") for name in names], [])
    plans = read_plans(runs)
    if not plans.readable:
        plans.all()
    return plans


def missing_source(source: Path) -> ValueError:
    then = "run a study first (`ablate run STUDY`), or give --runs"
    return ValueError(f"{source}: no such run directory or exported file: {then}")


def parent_setting(config: Settings) -> str:
    """Return the setting that names a parent: `teacher` if the config already has `init_from`, else `init_from`."""
    return "teacher" if "init_from" in config else "init_from"


def learned_settings(overrides: Mapping[str, Any], trainable: str) -> dict[str, Any]:
    """Return a plan's overrides that change its trials. trainable: "" for Vision Transformers.

    In other code, a name such as `device` has a meaning of its own.
    """
    if trainable:
        return dict(overrides)
    return {key: value for key, value in overrides.items() if key.rpartition(".")[2] not in HOW_IT_RUNS}


def known_name(name: str, known: Collection[str]) -> str:
    """Return the only name in `known` that is `name` with overrides, if `name` itself is unknown, or else `name`."""
    changed = [other for other in known if other.startswith((f"{name}+", f"{name},"))]
    if name in known or "@" not in name or len(changed) != 1:
        return name
    return changed[0]


def study_of(plan_name: str) -> str:
    """Return the study in a name such as `study@recipe,key=value`. Names and values may have an "@" too."""
    return plan_name.partition(",")[0].rpartition("@")[0]


def select_names(names: Sequence[str], studies: Sequence[str], source: Path) -> list[str]:
    """Return the full names of the selected plans in the order of `studies`, or of all plans if it is empty.

    "study@recipe" also selects a plan with overrides if that is its only match. source: named in errors. Raises
    ValueError.
    """
    if not names:
        raise ValueError(f"{source}: no study has been run here")
    if not studies:
        return sorted(names)
    selectable = {*map(study_of, names), *names}
    chosen = []
    for study in studies:
        name = known_name(study, selectable)
        if name not in selectable:
            # both with a recipe, or without
            similar = [other for other in selectable if ("@" in other) == ("@" in name)]
            raise ValueError(f"{source}: no study '{name}'{spelling_hint(name, similar)} (there: {', '.join(names)})")
        chosen += sorted(full for full in names if name in (study_of(full), full))
    return list(dict.fromkeys(chosen))
