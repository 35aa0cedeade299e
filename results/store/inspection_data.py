"""Read the result of `ablate inspect` from a trial's folder, and convert it to and from the text in an export."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from results import store
from results.store import eval_files
from results.store.files import npz_bytes, parse_npz

FACTS = "facts.json"  # the name of the facts among the arrays


@dataclass(frozen=True)
class Inspection:
    """The eval `inspect` of a trial.

    facts: its JSON content. arrays: those of vitcore.analysis.interpret.inspect, by name.
    """

    trial: str
    facts: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]


def read(trial: store.Trial) -> Inspection:
    """Read the inspection of a trial. Raises FileNotFoundError if there is none; Broken; NewerSchema."""
    result = trial.result()
    found = eval_files.read(trial, "inspect", result.weights_sha256 if result else None)
    return Inspection(trial.id, found.content(), eval_files.read_arrays(trial, found))


def pack(inside: Inspection) -> str:
    """Convert an inspection to text; equal inspections give equal texts."""
    facts = np.frombuffer(json.dumps(dict(inside.facts), sort_keys=True).encode(), np.uint8)
    return base64.b64encode(npz_bytes({**inside.arrays, FACTS: facts})).decode()


def unpack(trial: str, text: str) -> Inspection:
    """Convert the text of `pack` to an inspection. Raises Broken for other text."""
    name = f"the inspection of trial {trial}"
    try:
        arrays = parse_npz(base64.b64decode(text), name)
        facts = json.loads(arrays.pop(FACTS).tobytes())
    except (KeyError, RecursionError, ValueError) as error:
        raise store.Broken(f"{name}: cannot be read ({error})") from None
    return Inspection(trial, facts, arrays)
