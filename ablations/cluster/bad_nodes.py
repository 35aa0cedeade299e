"""The nodes to avoid, because their hardware or drivers ended two attempts within a day.

An attempt counts if it recorded a machine fault (ablations.faults). It also counts if its loss was NaN but
finite when computed again. A killed worker does not count, because preemption looks like a kill.
"""

import re
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from ablations.execution.attempts import failed_node, read_or_none
from ablations.faults import MACHINE
from results import store
from results.store.schemas import AnySchema, Environment, Failure, Result

FAULTS = 2
SECONDS = 24 * 3600.0  # older faults do not count, so that a repaired node is used again


def nodes_to_avoid(trials: Iterable[store.Trial]) -> list[str]:
    """Return SLURM's names of the nodes that ended at least FAULTS recent attempts. Raises NewerSchema."""
    counts: Counter[str] = Counter()
    for attempt in (attempt for trial in trials for attempt in trial.attempts()):
        failure, result = read_recent(attempt / "failure.json", Failure), read_recent(attempt / "result.json", Result)
        if (failure and failure.kind == MACHINE) or (result and result.suspect_hardware is not None):
            counts[failed_node(failure, read_or_none(attempt / "env.json", Environment))] += 1
    names = (node for node, count in counts.items() if count >= FAULTS)
    return sorted(filter(is_name, names))


def is_name(node: str) -> bool:
    """Return whether a recorded name can be that of a node."""
    return bool(re.fullmatch(r"[A-Za-z0-9][\w.-]*", node, re.ASCII))


def read_recent(path: Path, schema: type[AnySchema]) -> AnySchema | None:
    """Return the content of a file as a `schema` object; None if it is missing, broken or older than SECONDS."""
    is_recent = path.exists() and time.time() - path.stat().st_mtime < SECONDS
    return read_or_none(path, schema) if is_recent else None
