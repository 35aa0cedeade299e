"""A study's plan together with the results of its trials, from which every table and figure is made."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from results import store
from results.store import eval_files, ledger, record
from results.store.record import FAULTS, PARTS, PROVENANCE, Correct, Record
from results.store.schemas import Arm, EvalSummary, Plan, PlannedTrial
from results.store.schemas.metrics import AXES, MEASURES
from results.store.standing import Standings

if TYPE_CHECKING:
    import pandas as pd

TEXTS = ("status", "reason", *PROVENANCE, "weights_sha256", "config")
CELL = ("arm", "seed", "id")  # the columns that name a planned trial
NO_METRICS = (*CELL, "evals", *TEXTS, *MEASURES, *FAULTS)
Cell = tuple[str, int, str]
SIZES = {"params": "parameters", "flops": "FLOPs an image"}


@dataclass(frozen=True)
class StudyResults:
    """A study's plan and the results of its trials.

    columns: name -> values, one per planned (arm, seed) in the plan's order. The columns are arm, seed, id, status,
    reason (why a trial is absent or damaged), metrics, measures and FAULTS (NaN if absent), provenance, weights_sha256,
    config (JSON text, or "") and evals (name -> metrics and notes). evaluations: the training histories as columns:
    arm, seed, id, AXES and all numbers that a trial measured at an evaluation. correct: trial id -> image indices
    (images,) and whether each image was classified correctly (images,). metrics: the columns of metrics in results,
    without those of evals.
    """

    plan: Plan
    columns: dict[str, list[Any]]
    evaluations: dict[str, list[Any]]
    correct: dict[str, Correct]
    metrics: tuple[str, ...] = ()

    @cached_property
    def trials(self) -> "pd.DataFrame":
        """The trials as a data frame, one row per planned trial, for figures, reports and exports."""
        import pandas as pd  # late: takes over half a second, and tables do without

        return pd.DataFrame(self.columns)

    @cached_property
    def history(self) -> "pd.DataFrame":
        import pandas as pd  # late: as above

        return pd.DataFrame(self.evaluations)

    def trials_with_history(self) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
        """Yield (column -> value, the trial's evaluations as column -> value) for each planned trial."""
        histories: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
        for line in rows_of(self.evaluations):
            histories[line["arm"], line["seed"]].append(line)
        for trial in rows_of(self.columns):
            yield trial, histories[trial["arm"], trial["seed"]]

    @property
    def curves(self) -> list[str]:
        """The names of the numbers that trials measured at evaluations, besides CELL and AXES."""
        return [name for name in self.evaluations if name not in (*CELL, *AXES)]

    @property
    def numbers(self) -> list[str]:
        """The names of the numeric columns in which at least one trial has a value."""
        own = (name for name in self.columns if name not in (*CELL, "evals", *TEXTS))
        return [name for name in own if not all(map(math.isnan, self.columns[name]))]

    @property
    def first_finished(self) -> dict[str, tuple[int, str]]:
        """The first finished trial of each arm that has one: arm -> (seed, trial id)."""
        rows = zip(*(self.columns[name] for name in ("arm", "seed", "id", "status")), strict=True)
        found: dict[str, tuple[int, str]] = {}
        for arm, seed, trial_id, status in rows:
            if status == "finished":
                found.setdefault(arm, (seed, trial_id))
        return found

    @property
    def name(self) -> str:
        """The full name of the study: study@recipe, or study@recipe+<hash of the overrides> if there are any."""
        return self.plan.name


def rows_of(columns: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


def load_plans(source: Path, plans: Sequence[Plan], parts: Collection[str] = PARTS) -> list[StudyResults]:
    """Return the results of the given plans in a run directory, with the declarations of its ledger.

    parts: which of PARTS to read besides the results. Raises NewerSchema if a newer version wrote the results, and the
    errors of `ledger.read_declarations`.
    """
    declarations = ledger.read_declarations(source)
    ids = {trial.id for plan in plans for arm in plan.arms for trial in arm.trials}
    records = record.read_many(source, sorted(ids), parts)
    known = [ledger.with_declarations(with_stage_seconds(plan, source), declarations) for plan in plans]
    return [assemble(plan, records | records_of_started(source, plan, records)) for plan in known]


def with_stage_seconds(plan: Plan, runs: Path) -> Plan:
    def took(trial: PlannedTrial) -> PlannedTrial:
        result = store.trial(runs, trial.id).state().result
        seconds = result and result.train_seconds
        return trial if seconds is None else trial.model_copy(update={"train_seconds": seconds})

    stages = [one.model_copy(update={"trials": [*map(took, one.trials)]}) for one in plan.stages]
    return plan.model_copy(update={"stages": stages}) if stages else plan


def records_of_started(runs: Path, plan: Plan, records: Mapping[str, Record]) -> dict[str, Record]:
    """Return trial id -> record for the arms' trials that have parents, with two additions.

    A missing trial gets the reason why it cannot start yet. An eval named `start` has the metrics of the nearest
    parent's evals, as start_<metric>.
    """
    found = {}
    standings = Standings(runs)

    @cache
    def start_metrics(parent: str) -> dict[str, float | None]:
        trial = store.trial(runs, parent)
        result = trial.state().result
        known = eval_files.summaries(trial, result) if result else {}
        return {f"start_{name}": value for one in known.values() for name, value in one.metrics.items()}

    for trial_id, parents in plan.trials_with_parents.items():
        if trial_id not in records:  # the trial belongs to a stage
            continue
        values = dict(records[trial_id].values)
        evals = dict(records[trial_id].evals)
        if values["status"] == "missing":
            values["reason"] = standings.read(trial_id, parents=parents).start.why or values["reason"]
        metrics = start_metrics(next(iter(parents)))
        if metrics:
            evals["start"] = EvalSummary(metrics=metrics)
        found[trial_id] = replace(records[trial_id], values=values, evals=evals)
    return found


def assemble(plan: Plan, records: Mapping[str, Record]) -> StudyResults:
    """Return the results of a study. records: trial id -> record, at least for the trials of the plan.

    The plan of the results has the parameters and FLOPs that the trials recorded.
    """
    plan = with_recorded_sizes(plan, records)
    cells = [(arm.name, trial.seed, trial.id) for arm in plan.arms for trial in arm.trials]
    planned = {trial_id: within_ranges(records[trial_id], plan) for _, _, trial_id in cells}
    evals = {trial_id: eval_metrics(record) for trial_id, record in planned.items()}
    metrics = tuple(dict.fromkeys([*plan.trial_metrics, *(name for one in planned.values() for name in one.values)]))
    metrics = tuple(name for name in metrics if name not in NO_METRICS)
    of_evals = {name for found in evals.values() for name in found} | {plan.metric}
    numbers = [*metrics, *MEASURES, *FAULTS, *sorted(of_evals.difference(metrics, NO_METRICS))]
    defaults = dict.fromkeys(TEXTS, "") | dict.fromkeys(numbers, math.nan)
    known = {trial_id: {**evals[trial_id], **record.values} for trial_id, record in planned.items()}
    columns: dict[str, list[Any]] = {name: [cell[at] for cell in cells] for at, name in enumerate(CELL)}
    columns["evals"] = [planned[trial_id].evals for trial_id in columns["id"]]
    for name, default in defaults.items():
        column = [known[trial_id].get(name, default) for trial_id in columns["id"]]
        columns[name] = column if name in TEXTS else [as_float(value) for value in column]
    correct = {trial_id: record.correct for trial_id, record in planned.items() if record.correct is not None}
    return StudyResults(plan, columns, evaluation_columns(cells, planned), correct, metrics)


def within_ranges(record: Record, plan: Plan) -> Record:
    """Return the record, or a broken one if a metric is outside the range that the plan declares."""
    for name, value in {**eval_metrics(record), **record.values}.items():
        if name in NO_METRICS or not isinstance(value, int | float):
            continue
        fault = plan.metric_named(name).range_fault(value)
        if fault:
            return Record({"status": "broken", "reason": fault})
    return record


def evaluation_columns(cells: Sequence[Cell], records: Mapping[str, Record]) -> dict[str, list[Any]]:
    """Return the columns of all training histories. cells: arm, seed and id of each planned trial."""
    lines = [(cell, line) for cell in cells for line in records[cell[2]].history]
    columns: dict[str, list[Any]] = {name: [cell[at] for cell, _ in lines] for at, name in enumerate(CELL)}
    names = dict.fromkeys(AXES)
    for _, line in lines:
        names |= dict.fromkeys(name for name, value in line.items() if isinstance(value, int | float))
    for name in (name for name in names if name not in CELL):
        columns[name] = [as_float(line.get(name)) for _, line in lines]
    return columns


def eval_metrics(record: Record) -> dict[str, float | None]:
    """Return the metrics of all evals of a trial: name -> value."""
    return {name: value for one in record.evals.values() for name, value in one.metrics.items()}


def as_float(value: Any) -> float:
    """Return a number as a float, or NaN if the value is not a number."""
    return float(value) if isinstance(value, int | float) else math.nan


# -- the parameters and FLOPs that trials recorded, which are shown even if the plan has others -----------------------


def with_recorded_sizes(plan: Plan, records: Mapping[str, Record]) -> Plan:
    """Return the plan with the sizes that the trials of each arm recorded. records: trial id -> record.

    A size that an arm's trials do not share becomes None. A note of the arm says where plan and trials differ.
    """
    return plan.model_copy(update={"arms": [with_recorded(arm, records) for arm in plan.arms]})


def with_recorded(arm: Arm, records: Mapping[str, Record]) -> Arm:
    changes: dict[str, Any] = {}
    notes = []
    for name, label in SIZES.items():
        planned = getattr(arm, name)
        sizes = recorded_sizes(arm, records, name)
        if planned is None or not sizes - {planned}:
            continue
        changes[name] = min(sizes) if len(sizes) == 1 else None
        text = " or ".join(f"{size:,}" for size in sorted(sizes))
        notes.append(f"trained with {text} {label}, not the {planned:,} of the plan: the code has changed since")
    if "flops" in changes:
        changes["train_flops"] = None  # the plan's follow from its FLOPs an image
    return arm.model_copy(update={**changes, "notes": [*arm.notes, *notes]}) if changes else arm


def recorded_sizes(arm: Arm, records: Mapping[str, Record], name: str) -> set[int]:
    """Return the distinct values of a size that the arm's trials recorded."""
    values = [records[trial.id].values.get(name) for trial in arm.trials]
    return {int(value) for value in values if isinstance(value, int | float) and not math.isnan(value)}


OTHERS = 0.5  # share of the median of the arm's other trials below which a trial collapsed
Z95 = 1.645  # normal quantile of a one-sided 5% test
RARE, FEW = 1 / 8, 10  # rate of a failure that fewer seeds than FEW often miss


def collapsed_seeds(accuracies: Mapping[int, float], plan: Plan) -> list[int]:
    """Return the seeds of an arm whose trials collapsed. accuracies: seed -> accuracy. Other metrics never collapse.

    A trial collapsed if its accuracy is below half of the median of the arm's others, or not above chance at 5%
    (one-sided, by the normal approximation for the number of test images). Chance is 1 / classes.
    """
    if not plan.primary_metric.is_accuracy:
        return []
    chance = plan.chance
    if chance and plan.split is not None:
        chance += Z95 * math.sqrt(chance * (1 - chance) / plan.split.images_per_test)
    return fallen_seeds(accuracies, chance)


def fallen_seeds(accuracies: Mapping[int, float], limit: float) -> list[int]:
    """Return the seeds whose accuracies are at most `limit`, unless it is 0, or below half of the others' median."""
    found = []
    for seed, accuracy in accuracies.items():
        others = [one for other, one in accuracies.items() if other != seed]
        if (limit and accuracy <= limit) or (others and accuracy < OTHERS * median(others)):
            found.append(seed)
    return found


def unseen_failures(seeds: int) -> str:
    """Return how often few seeds miss a rare failure, as text, or "" for a single seed or many."""
    if not 1 < seeds < FEW:
        return ""
    missed = (1 - RARE) ** seeds
    rare = f"An arm that fails in 1 of {1 / RARE:.0f} trials"
    return f"{rare} shows no failure in {missed:.0%} of studies with {seeds} seeds."
