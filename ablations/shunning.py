"""Nodes that trials are kept away from: those whose hardware or drivers ended two attempts within a day.

What counts is the machine's fault on record (ablations.faults), or a loss that was no number once and was one when
computed again; not a killed worker, which is what preemption looks like.
"""

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from ablations.attempts import known, node_of
from ablations.faults import MACHINE
from results import store

FAULTS = 2
SECONDS = 24 * 3600.0  # a node that was mended meanwhile is as good as any


def shunned(trials: Iterable[store.Trial]) -> list[str]:
    """The nodes, by SLURM's names."""
    faults = {fault for trial in trials for fault in faults_of(trial)}
    counts = Counter(node for node, _ in faults)
    return sorted(node for node, count in counts.items() if count >= FAULTS)


def faults_of(trial: store.Trial) -> Iterator[tuple[str, str]]:
    """Of each attempt that its machine ended, or miscomputed, lately: the node, and what names the event.

    Trials that were trained as one met theirs together: it is one.
    """
    for attempt in trial.attempts():
        for name in ("failure.json", "result.json"):
            if lately(attempt / name) and is_fault(ended := known(attempt / name)):
                env = known(attempt / "env.json")
                node, event = node_of(ended, env), str(env.get("group", attempt))
                yield from [(node, event)] if re.fullmatch(r"[A-Za-z0-9][\w.-]*", node, re.ASCII) else []


def lately(path: Path) -> bool:
    return path.exists() and time.time() - path.stat().st_mtime < SECONDS


def is_fault(ended: store.Json) -> bool:
    return ended.get("kind") == MACHINE or ended.get("suspect_hardware") is not None
