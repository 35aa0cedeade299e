"""The results of `ablate inspect`, read from a trial's folder or packed as text in an export."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from results import store
from results.store import eval_files
from results.store.files import npz_bytes, parse_npz
from results.store.json_files import parse_json

FACTS = "facts.json"  # the name of the facts among the arrays


@dataclass(frozen=True)
class Inspection:
    """The result of `ablate inspect` for a trial.

    trial: the trial's id. facts: content of the JSON file. arrays: name -> array, from
    vitcore.analysis.interpret.inspect. planned_as: the trial's arm and seed for titles, which `read` leaves "".
    """

    trial: str
    facts: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]
    planned_as: str = ""

    @property
    def title(self) -> str:
        """The trial as text: "trial 3f2a9c01b7de (position=2d seed 0)"."""
        return f"trial {self.trial}{f' ({self.planned_as})' if self.planned_as else ''}"


def read(trial: store.Trial) -> Inspection:
    """Return the inspection of a trial. Raises the errors of `eval_files.read` and `eval_files.read_arrays`."""
    result = trial.result()
    found = eval_files.read(trial, "inspect", result.weights_sha256 if result else None)
    return Inspection(trial.id, found.content(), eval_files.read_arrays(trial, found))


def pack(inside: Inspection) -> str:
    """Return an inspection as base64 text. Equal inspections give equal texts."""
    facts = np.frombuffer(json.dumps(dict(inside.facts), sort_keys=True).encode(), np.uint8)
    return base64.b64encode(npz_bytes({**inside.arrays, FACTS: facts})).decode()


def unpack(trial: str, text: str) -> Inspection:
    """Return the inspection that `pack` turned into text. trial: the trial's id. Raises Broken if it is damaged."""
    name = f"the inspection of trial {trial}"
    try:
        arrays = parse_npz(base64.b64decode(text), name)
        facts = parse_json(arrays.pop(FACTS).tobytes(), Path(FACTS))
    except (KeyError, ValueError) as error:
        raise store.Broken(f"{name}: cannot be read ({error})") from None
    return Inspection(trial, facts, arrays)
