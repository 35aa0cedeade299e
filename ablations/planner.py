"""A plan made by a worker that waits for trials: it has loaded torch, which the process that asks then need not.

Nothing but time depends on it: where no worker waits, or the one that was asked is gone, the plan is made here.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ablations.prepare import Planner, here

if TYPE_CHECKING:
    from ablations.launch import Ahead, Place, Process
    from ablations.study import Design

Json = dict[str, Any]


def by(ahead: "Ahead", place: "Place") -> Planner:
    """By the first worker that waits, else here. With plugins here: what they print, nobody reads there yet."""
    waiting = [] if place.plugins else [process for _, process in ahead.waiting]
    return partial(there, waiting[0]) if waiting else here


def there(process: "Process", design: "Design", seeds: Sequence[int], old: Json | None, prune: bool) -> Json:
    """By a worker; here where it makes none."""
    made = ask(process, design, seeds, old, prune)
    if "refused" in made:
        raise ValueError(made["refused"])
    return made["plan"] if "plan" in made else here(design, seeds, old, prune)


def ask(process: "Process", design: "Design", seeds: Sequence[int], old: Json | None, prune: bool) -> Json:
    """What it answers; nothing where it dies."""
    assert process.stdin is not None
    assert process.stdout is not None
    wanted = {"design": sent(design), "seeds": list(seeds), "old": old, "prune": prune}
    with suppress(OSError, json.JSONDecodeError):  # its last line may be torn
        process.stdin.write(json.dumps({"plan": wanted}) + "\n")
        process.stdin.flush()
        return next((event for event in map(json.loads, process.stdout) if event.get("event") == "planned"), {})
    return {}


def answer(wanted: Json) -> Json:
    """What a worker says to it: the plan, or why there can be none; neither where it failed at it."""
    try:
        return {"plan": here(received(wanted["design"]), wanted["seeds"], wanted["old"], wanted["prune"])}
    except ValueError as error:
        return {"refused": str(error)}
    except Exception:  # the process that asked comes to the same, and shows it
        return {}


def sent(design: "Design") -> Json:
    """As JSON: a study's and a recipe's values are plain (vitcore.config.Options)."""
    study, recipe = design.study.model_dump(by_alias=True), design.recipe.model_dump()
    return {"study": study, "recipe": recipe, "overrides": design.overrides}


def received(content: Json) -> "Design":
    """The design that was sent."""
    from ablations.study import Design, Recipe, Study  # late: one worker of many is asked

    return Design(Study(**content["study"]), Recipe(**content["recipe"]), content["overrides"])
