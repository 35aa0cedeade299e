"""A plan made by a worker that waits for trials: it has loaded torch, which the process that asks then need not.

Nothing but time depends on it: where no worker answers, the plan is made here.
"""

import gc
import json
import os
import selectors
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ablations.prepare import Planner, here, images
from vitcore.datasets import TORCHVISION
from vitcore.describe import FOLDER

if TYPE_CHECKING:
    from ablations.launch import Ahead, Place, Process
    from ablations.study import Design

Json = dict[str, Any]
PATIENCE = 300.0  # seconds until a plan is made here after all
CHUNK = 2**16  # bytes


def nothing() -> None: ...


def by(ahead: "Ahead", place: "Place", meanwhile: Callable[[], None] = nothing) -> Planner:
    """By a worker that waits; here where none does, and where torch is loaded here anyhow: by plugins.

    meanwhile: called when a worker has begun: the other cores have nothing to do, as other workers wait for the plan.
    """
    return partial(there, ahead, meanwhile=meanwhile) if ahead.waiting and not place.plugins else here


def there(
    ahead: "Ahead",
    design: "Design",
    seeds: Sequence[int],
    old: Json | None,
    prune: bool,
    meanwhile: Callable[[], None] = nothing,
) -> Json:
    """By the first worker that is ready; here where none makes it, and where this process has the images, or torch."""
    if any(name in TORCHVISION or name.startswith(FOLDER) for name in images(design, old)):
        return here(design, seeds, old, prune)
    wanted = {"design": sent(design), "seeds": list(seeds), "old": old, "prune": prune}
    order, deadline = json.dumps({"plan": wanted}), time.monotonic() + PATIENCE
    answer: Json = {}
    while not answer and (process := first(ahead.processes(), deadline)):
        late = threading.Timer(deadline - time.monotonic(), process.kill)  # also one that no longer reads
        late.start()
        try:
            answer = ask(process, order, deadline, meanwhile)
        finally:
            late.cancel()
        if not answer:
            ahead.end(process)  # nobody takes a late answer for a trial's
    if "refused" in answer:
        raise ValueError(answer["refused"])
    return answer["plan"] if "plan" in answer else here(design, seeds, old, prune)


def first(processes: Iterable["Process"], deadline: float) -> "Process | None":
    """The first that has said something, or has ended. What they write to standard error is read: a full pipe stops."""
    with selectors.DefaultSelector() as selector:
        for process in processes:
            assert process.stdout is not None
            assert process.stderr is not None
            selector.register(process.stdout, selectors.EVENT_READ, process)
            selector.register(process.stderr, selectors.EVENT_READ, None)
        while (left := deadline - time.monotonic()) > 0 and selector.get_map():
            for key, _ in selector.select(left):
                if key.data is not None:
                    found: Process = key.data
                    return found
                if not os.read(key.fd, CHUNK):
                    selector.unregister(key.fileobj)
    return None


def ask(process: "Process", order: str, deadline: float, meanwhile: Callable[[], None] = nothing) -> Json:
    """What it answers; nothing where it does not, or says something else."""
    try:
        if json.loads(line(process, deadline))["event"] != "ready":
            return {}
        tell(process, order)
        meanwhile()
        found: Json = json.loads(line(process, deadline))
        tell(process, json.dumps({"greet": True}))  # not before: others would miss what follows a line read here
        return found if found["event"] == "planned" else {}
    except (OSError, ValueError, LookupError, TypeError):  # it ended, its line is torn, it is none of ours
        return {}


def tell(process: "Process", order: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{order}\n")
    process.stdin.flush()


def line(process: "Process", deadline: float) -> bytes:
    """What it says next, to the end of the line: past its buffers, as others read on. Torn where it says no more."""
    assert process.stdout is not None
    found = b""
    while not found.endswith(b"\n") and first([process], deadline):
        if not (some := os.read(process.stdout.fileno(), CHUNK)):
            break
        found += some
    return found


def answer(wanted: Json) -> Json:
    """What a worker says to it: the plan, or why there can be none; neither where it failed at it."""
    try:
        return {"plan": here(received(wanted["design"]), wanted["seeds"], wanted["old"], wanted["prune"])}
    except ValueError as error:
        return {"refused": str(error)}
    except Exception:  # the process that asked comes to the same, and shows it
        return {}
    finally:
        gc.collect()


def sent(design: "Design") -> Json:
    """As JSON: a study's and a recipe's values are plain (vitcore.config.Options)."""
    study, recipe = design.study.model_dump(by_alias=True), design.recipe.model_dump()
    return {"study": study, "recipe": recipe, "overrides": design.overrides}


def received(content: Json) -> "Design":
    """The design that was sent."""
    from ablations.study import Design, Recipe, Study  # late: one worker of many is asked

    return Design(Study(**content["study"]), Recipe(**content["recipe"]), content["overrides"])
