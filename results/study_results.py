"""StudyResults: a study's plan and the results of its trials, which every table and figure starts from."""

import itertools
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results import store
from results.names import MEASURES, METRICS
from results.store import dependencies, record
from results.store.correctness import Correct
from results.store.record import FAULTS, PARTS, PROVENANCE, Record

if TYPE_CHECKING:
    import pandas as pd

TEXTS = ("status", "reason", *PROVENANCE, "weights_sha256", "evals", "config")
NUMBERS = (*METRICS, *MEASURES, *FAULTS)
HISTORY = ("step", "epoch", "images", "seconds", "train_loss", "val_loss", "val_accuracy", "lr")
EVALUATION = ("arm", "seed", "id", *HISTORY)


@dataclass(frozen=True)
class StudyResults:
    """A study's plan and what there is of its trials.

    plan: plan.json.
    columns: by name, a value for each planned (arm, seed), in the plan's order: arm, seed, id, status, reason (why a
    cell is missing, or what of a finished one cannot be read), metrics and measures (NaN where there is none), those of
    evals too, the provenance, the weights' sha256, evals and config as text (empty where there is none).
    evaluations: of every trial, in the order of EVALUATION: arm, seed, id, step, ...
    correct: trial id -> index (images,), correct (images,).
    """

    plan: dict[str, Any]
    columns: dict[str, list[Any]]
    evaluations: list[tuple[Any, ...]]
    correct: dict[str, Correct]

    @cached_property
    def trials(self) -> "pd.DataFrame":
        """The columns as a frame, which figures, reports and exports work with."""
        import pandas as pd  # late: more than half of a second, and tables do without

        return pd.DataFrame(self.columns)

    @cached_property
    def history(self) -> "pd.DataFrame":
        """The evaluations as a frame."""
        import pandas as pd  # late: as above

        return pd.DataFrame(self.evaluations, columns=list(EVALUATION))

    @property
    def numbers(self) -> list[str]:
        """What was measured of its trials: the columns that hold numbers of some."""
        own = (name for name in self.columns if name not in (*EVALUATION[:3], *TEXTS))
        return [name for name in own if not all(map(math.isnan, self.columns[name]))]

    @property
    def name(self) -> str:
        """study@recipe[+overrides]"""
        return str(self.plan["name"])


def of_plans(source: Path, plans: Sequence[dict[str, Any]], parts: Collection[str] = PARTS) -> list[StudyResults]:
    """What there is in a runs folder of these plans, whatever plan.json says by now. Raises NewerSchema."""
    ids = {trial["id"] for plan in plans for arm in plan["arms"] for trial in arm["trials"]}
    records = record.of_many(source, sorted(ids), parts)
    return [assemble(timed(plan, source), records | started(source, plan, records)) for plan in plans]


def timed(plan: dict[str, Any], runs: Path) -> dict[str, Any]:
    """The plan with the seconds that each trial of its stages took, where it is over: part of what the study costs."""
    if not plan.get("stages"):
        return plan

    def took(trial: dict[str, Any]) -> dict[str, Any]:
        result = store.trial(runs, trial["id"]).state().result
        return trial | ({"train_seconds": result["train_seconds"]} if result and "train_seconds" in result else {})

    return plan | {"stages": [one | {"trials": [took(trial) for trial in one["trials"]]} for one in plan["stages"]]}


def started(runs: Path, plan: dict[str, Any], records: Mapping[str, Record]) -> dict[str, Record]:
    """The plan's trials that start from others, with why they have not begun, or what those were found to be worth.

    An eval `start` has the metrics of the evals of the weights that they start from, under start_<metric>.
    """
    found = {}
    starts, probed = dependencies.starts(runs, plan), dependencies.probed(runs, plan)
    for trial_id in starts.keys() & records.keys():  # those of the arms
        values = dict(records[trial_id].values)
        if values["status"] == "missing":
            values["reason"] = starts[trial_id].why or values["reason"]
        if metrics := probed[trial_id]:
            known = json.loads(values.get("evals") or "{}") | {"start": {"metrics": metrics, "notes": []}}
            values["evals"] = json.dumps(known, sort_keys=True)
        found[trial_id] = replace(records[trial_id], values=values)
    return found


def assemble(plan: dict[str, Any], records: Mapping[str, Record]) -> StudyResults:
    """The study's columns: every planned (arm, seed) has a value in each, whatever became of it."""
    cells = [(arm["name"], trial["seed"], trial["id"]) for arm in plan["arms"] for trial in arm["trials"]]
    mine = {trial_id: records[trial_id] for _, _, trial_id in cells}
    later = {trial_id: eval_metrics(record) for trial_id, record in mine.items() if record.values.get("evals")}
    added = {name for metrics in later.values() for name in metrics} | {plan["metric"]}
    numbers = list(dict.fromkeys([*NUMBERS, *sorted(added)]))
    defaults = dict.fromkeys(TEXTS, "") | dict.fromkeys(numbers, math.nan)
    known = {trial_id: {**defaults, **record.values, **later.get(trial_id, {})} for trial_id, record in mine.items()}
    rows = zip(*map(itemgetter(*TEXTS, *numbers), (known[trial_id] for _, _, trial_id in cells)), strict=True)
    columns: dict[str, list[Any]] = {name: [] for name in (*EVALUATION[:3], *TEXTS, *numbers)}  # also of no trials
    columns |= zip(columns, map(list, itertools.chain(zip(*cells, strict=True), rows)), strict=False)
    columns |= {name: floats(columns[name]) for name in numbers}
    lines = [(*cell, *(number(line.get(n)) for n in HISTORY)) for cell in cells for line in mine[cell[2]].history]
    correct = {trial_id: record.correct for trial_id, record in mine.items() if record.correct is not None}
    return StudyResults(plan, columns, lines, correct)


def eval_metrics(record: Record) -> dict[str, float]:
    """The metrics of all evals of a trial."""
    found = json.loads(record.values["evals"])
    return {name: value for one in found.values() for name, value in one["metrics"].items()}


def floats(values: list[Any]) -> list[float]:
    """A column as numbers: most have nothing but those."""
    kinds = set(map(type, values))
    return list(map(float, values)) if kinds <= {float, int} else [number(value) for value in values]


def number(value: Any) -> float:
    """NaN for what is none."""
    return float(value) if isinstance(value, int | float) else math.nan
