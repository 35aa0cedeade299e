"""A study's plan together with the results of its trials, from which every table and figure is made."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from results import store
from results.store import ledger, record, seals
from results.store.record import FAULTS, PARTS, PROVENANCE, Correct, Record
from results.store.schemas.metrics import AXES, MEASURES
from results.store.schemas.plans import Arm, Entry, Plan
from results.store.schemas.trials import EvalSummary
from results.store.standing import Standings

if TYPE_CHECKING:
    import pandas as pd

TEXTS = ("status", "reason", *PROVENANCE, "weights_sha256", "config")
CELL = ("arm", "seed", "id")  # the columns that name a planned trial
NOT_NUMBERS = (*CELL, "evals", *TEXTS)
NO_METRICS = (*NOT_NUMBERS, *MEASURES, *FAULTS)
Cell = tuple[str, int, str]
SIZES = {"params": "parameters", "flops": "FLOPs an image"}


@dataclass(frozen=True)
class StudyResults:
    """A study's plan and the results of its trials.

    columns: name -> values, one per planned (arm, seed) in the plan's order. The columns are arm, seed, id, status,
    reason (why a trial is absent or damaged), metrics, measures and faults (NaN if absent), provenance, weights_sha256,
    config (JSON text, or "") and evals (name -> metrics and notes). evaluations: the training histories as columns:
    arm, seed, id, step, epoch, images, seconds and all numbers that a trial measured at an evaluation. correct: trial
    id -> image indices (images,) and whether each image was classified correctly (images,). metrics: the columns of
    metrics in results, except those of evals.
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
        numbers = [name for name in self.columns if name not in NOT_NUMBERS]
        return [name for name in numbers if not all(map(math.isnan, self.columns[name]))]

    @property
    def first_finished(self) -> dict[str, tuple[int, str]]:
        """The first finished trial of each arm that has one: arm -> (seed, trial id)."""
        first: dict[str, tuple[int, str]] = {}
        for trial in rows_of({name: self.columns[name] for name in (*CELL, "status")}):
            if trial["status"] == "finished":
                first.setdefault(trial["arm"], (trial["seed"], trial["id"]))
        return first

    @property
    def name(self) -> str:
        """The full name of the study: study@recipe, or study@recipe+<hash of the overrides> if there are any."""
        return self.plan.name


def rows_of(columns: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


def load_plans(source: Path, plans: Sequence[Plan], parts: Collection[str] = PARTS) -> list[StudyResults]:
    """Return the results of the given plans in a run directory, with its declarations and seals.

    parts: which of PARTS to read besides the results. Raises NewerSchema if a newer version wrote them.
    """
    declarations = ledger.read_declarations(source)
    sealed = seals.read_seals(source)
    ids: set[str] = set()
    for plan in plans:
        ids.update(plan.arm_trials)
    records = record.read_many(source, sorted(ids), parts)
    studies = []
    for plan in plans:
        plan = ledger.with_declarations(with_stage_seconds(plan, source), declarations)
        plan = seals.with_seals(plan, sealed)
        studies.append(assemble(plan, records | records_of_started(source, plan, records)))
    return studies


def with_stage_seconds(plan: Plan, runs: Path) -> Plan:
    stages = []
    for stage in plan.stages:
        trials = []
        for trial in stage.trials:
            result = store.trial(runs, trial.id).state().result
            if result and result.train_seconds is not None:
                trial = trial.model_copy(update={"train_seconds": result.train_seconds})
            trials.append(trial)
        stages.append(stage.model_copy(update={"trials": trials}))
    if not stages:
        return plan
    return plan.model_copy(update={"stages": stages})


def records_of_started(runs: Path, plan: Plan, records: Mapping[str, Record]) -> dict[str, Record]:
    """Return the records of the arms' trials that have parents, by trial id.

    A missing trial gets the reason why it cannot start yet. An eval `start` has the metrics of the nearest parent's
    evals.
    """
    started = {}
    standings = Standings(runs)
    read_parent = cache(partial(record.read, runs, parts=()))
    for trial_id, parents in plan.trials_with_parents.items():
        if trial_id not in records:  # the trial belongs to a stage
            continue
        values = dict(records[trial_id].values)
        evals = dict(records[trial_id].evals)
        if values["status"] == "missing":
            values["reason"] = standings.read(trial_id, parents=parents).start.why or values["reason"]
        metrics = read_parent(next(iter(parents))).eval_metrics
        if metrics:
            evals["start"] = EvalSummary(metrics={f"start_{name}": value for name, value in metrics.items()})
        started[trial_id] = replace(records[trial_id], values=values, evals=evals)
    return started


def assemble(plan: Plan, records: Mapping[str, Record]) -> StudyResults:
    """Return the results of a study, with the parameters and FLOPs that its trials recorded, by trial id."""
    plan = plan.model_copy(update={"arms": [with_recorded_sizes(arm, records) for arm in plan.arms]})
    cells = [(arm.name, trial.seed, trial.id) for arm in plan.arms for trial in arm.trials]
    planned: dict[str, Record] = {}
    correct: dict[str, Correct] = {}
    measured = dict.fromkeys(plan.trial_metrics)
    of_evals = {*plan.compared_metrics}
    rows = []
    columns = columns_of_cells(cells)
    columns["evals"] = []
    for _, _, trial_id in cells:
        trial_record = within_ranges(records[trial_id], plan)
        planned[trial_id] = trial_record
        if trial_record.correct is not None:
            correct[trial_id] = trial_record.correct
        measured |= dict.fromkeys(trial_record.values)
        of_evals |= trial_record.eval_metrics.keys()
        rows.append(trial_record.eval_metrics | trial_record.values)
        columns["evals"].append(trial_record.evals)
    metrics = tuple(name for name in measured if name not in NO_METRICS)
    numbers = [*metrics, *MEASURES, *FAULTS, *sorted(of_evals.difference(metrics, NO_METRICS))]
    for name in TEXTS:
        columns[name] = [values.get(name, "") for values in rows]
    for name in numbers:
        columns[name] = [as_float(values.get(name)) for values in rows]
    return StudyResults(plan, columns, evaluation_columns(cells, planned), correct, metrics)


def within_ranges(record: Record, plan: Plan) -> Record:
    """Return the record, or a broken one if a metric is outside the range that the plan declares."""
    for name, value in (record.eval_metrics | record.values).items():
        if name in NO_METRICS or not isinstance(value, int | float):
            continue
        fault = plan.metric_named(name).range_fault(value)
        if fault:
            return Record({"status": "broken", "reason": fault})
    return record


def columns_of_cells(cells: Sequence[Cell]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {}
    for position, name in enumerate(CELL):
        columns[name] = [cell[position] for cell in cells]
    return columns


def evaluation_columns(cells: Sequence[Cell], records: Mapping[str, Record]) -> dict[str, list[Any]]:
    rows = []
    lines = []
    names = dict.fromkeys(AXES)
    for cell in cells:
        for line in records[cell[2]].history:
            rows.append(cell)
            lines.append(line)
            for name, value in line.items():
                if isinstance(value, int | float):
                    names[name] = None
    columns = columns_of_cells(rows)
    for name in filter(lambda name: name not in CELL, names):
        columns[name] = [as_float(line.get(name)) for line in lines]
    return columns


def as_float(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


# -- the parameters and FLOPs that trials recorded, which are shown even if the plan has others -----------------------


def with_recorded_sizes(arm: Arm, records: Mapping[str, Record]) -> Arm:
    """Return the arm with the sizes that its trials recorded, None where they differ. A note tells the plan's."""
    changes: dict[str, Any] = {}
    notes = []
    for name, label in SIZES.items():
        planned = getattr(arm, name)
        values = [as_float(records[trial.id].values.get(name)) for trial in arm.trials]
        sizes = {int(value) for value in values if value.is_integer()}
        if sizes <= {planned}:
            continue
        changes[name] = None
        if len(sizes) == 1:
            changes[name] = min(sizes)
        text = " or ".join(f"{size:,}" for size in sorted(sizes))
        if planned is not None:
            notes.append(f"trained with {text} {label}, not the {planned:,} of the plan: the code has changed since")
        elif len(sizes) > 1:
            notes.append(f"its seeds have {text} {label}: no single number")
    if not changes:
        return arm
    if "flops" in changes:
        changes["train_flops"] = None  # the plan's follow from its FLOPs an image
    return arm.model_copy(update={**changes, "notes": [*arm.notes, *notes]})


OTHERS = 0.5  # share of the median of the arm's other trials below which a trial collapsed
Z95 = 1.645  # normal quantile of a one-sided 5% test
RARE, FEW = 1 / 8, 10  # rate of a failure that fewer seeds than FEW often miss


def collapsed_seeds(accuracies: Mapping[int, float], plan: Plan, arm: Entry) -> list[int]:
    """Return the seeds of an arm whose trials collapsed, by accuracy. Other metrics never collapse.

    A trial collapsed if its accuracy is below half of the median of the arm's others, or not above chance at 5%
    (one-sided, by the normal approximation for the number of test images).
    """
    if not plan.primary_metric.is_accuracy:
        return []
    chance = plan.chance_of(arm)
    split = plan.split_of(arm)
    if chance and split is not None:
        chance += Z95 * math.sqrt(chance * (1 - chance) / split.images_per_test)
    return fallen_seeds(accuracies, chance)


def fallen_seeds(accuracies: Mapping[int, float], limit: float) -> list[int]:
    """Return the seeds whose accuracies are at most `limit`, unless it is 0, or below half of the others' median."""
    fallen = []
    for seed, accuracy in accuracies.items():
        others = [*accuracies.values()]
        others.remove(accuracy)
        if (limit and accuracy <= limit) or (others and accuracy < OTHERS * median(others)):
            fallen.append(seed)
    return fallen


def unseen_failures(seeds: int) -> str:
    """Return how often few seeds miss a rare failure, as text, or "" for a single seed or many."""
    if not 1 < seeds < FEW:
        return ""
    missed = (1 - RARE) ** seeds
    rare = f"An arm that fails in 1 of {1 / RARE:.0f} trials"
    return f"{rare} shows no failure in {missed:.0%} of studies with {seeds} seeds."
