"""What `ablate inspect` found in a trial, as data: read from its folder, packed into an export."""

import base64
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from results import evals, store
from results.study import StudyResults

FACTS = "facts.json"  # the name of the facts among the arrays


@dataclass(frozen=True)
class Inspection:
    """The eval `inspect` of a trial. facts: plain JSON; arrays: by name, as vitcore.interpret.inspect wrote them."""

    trial: str
    facts: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]


def read(trial: store.Trial) -> Inspection:
    """Raises FileNotFoundError where the trial was not inspected; Broken; NewerSchema."""
    result = trial.result()
    content = evals.read(trial, "inspect", result.get("weights_sha256") if result else None)
    return Inspection(trial.id, content, evals.read_arrays(trial, content))


def found(source: Path, studies: Sequence[StudyResults]) -> dict[str, Inspection]:
    """Trial id -> what was found in it, of the first seed of every arm that was inspected; not damaged ones.

    source: a runs folder or an exported file.
    """
    if source.is_file():
        from results.export import read_inside  # late: pulls in the Parquet reader

        return read_inside(source)
    first = {arm["trials"][0]["id"] for study in studies for arm in study.plan["arms"]}
    inspections = {}
    for trial_id in sorted(first):
        try:
            inspections[trial_id] = read(store.trial(source, trial_id))
        except (FileNotFoundError, store.Broken):
            continue
    return inspections


def pack(inside: Inspection) -> str:
    """All of it as text; equal inspections give equal texts."""
    facts = np.frombuffer(json.dumps(dict(inside.facts), sort_keys=True).encode(), np.uint8)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **{**inside.arrays, FACTS: facts})
    return base64.b64encode(buffer.getvalue()).decode()


def unpack(trial: str, text: str) -> Inspection:
    """What `pack` gave."""
    with np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False) as packed:
        arrays = dict(packed)
    return Inspection(trial, json.loads(arrays.pop(FACTS).tobytes()), arrays)
