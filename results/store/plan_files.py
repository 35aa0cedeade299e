"""The plans in a run directory, each with a checksum."""

import os
from collections.abc import Iterator
from pathlib import Path

from results.store.files import Broken
from results.store.json_files import SCHEMA, checksum, read_json, typed, write_json
from results.store.paths import safe_name
from results.store.schemas import Plan, stray


def study_folder(runs: Path, name: str) -> Path:
    """Return the folder of a plan. Raises ValueError if the plan's name is not a valid file name."""
    return runs / "studies" / safe_name(name)


def plan_content(plan: Plan) -> dict[str, object]:
    """Return the content of plan.json as field -> JSON value, without the checksum."""
    return {"schema": SCHEMA, **plan.content()}


def write_plan(path: Path, plan: Plan) -> None:
    """Write a plan with a checksum that reveals later edits."""
    content = plan_content(plan)
    write_json(path, content | {"checksum": checksum(content)})


def read_plan(path: Path) -> Plan:
    """Return a plan without its checksum, against which the content is verified.

    A plan of 0.11 or before has no checksum and is not verified. Raises FileNotFoundError if the file is missing.
    Raises Broken if it is damaged or edited. Raises NewerSchema if a newer version wrote it.
    """
    content = read_json(path)
    recorded = content.pop("checksum", None)  # plans of 0.11 and before have none
    plan = typed(content, path, Plan)
    if recorded is not None and recorded != checksum(content):
        what = f"unknown key {unknown!a:.60}" if (unknown := stray(plan)) else "its checksum differs"
        raise Broken(
            f"plan.json: {what} (edited or damaged): remove it, and `ablate run` or `submit` plans anew (results stay)"
        )
    return plan


def listed(folder: Path) -> list[Path]:
    """Return the sorted paths in a folder, or [] if the folder is missing. Raises ValueError if it cannot be read."""
    try:
        return sorted(folder / name for name in os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ValueError(f"{folder}: cannot be read ({error.strerror})") from None


def plans(runs: Path) -> Iterator[Plan]:
    """Yield all plans of a run directory, sorted by name. Folders without plan.json are skipped.

    Raises Broken if a plan is damaged or in a wrong folder. Raises NewerSchema if a newer version wrote it. Raises
    ValueError if the folder of plans cannot be read.
    """
    for folder in listed(runs / "studies"):
        path = folder / "plan.json"
        try:
            plan = read_plan(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except Broken as error:  # whose text begins with the file's name
            raise Broken(f"{path.parent}/{error}") from None
        if plan.name != path.parent.name:
            raise Broken(f"{path}: is the plan of {plan.name!a:.60}, not of its folder")
        yield plan
