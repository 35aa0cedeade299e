"""Results of runs that this suite did not train, as a study: tables of runs in CSV, Parquet or JSON lines.

A long table has a row per run, as Weights & Biases and MLflow save it. A wide one has a column per arm, a row per seed.
"""

import ast
import difflib
import hashlib
import itertools
import json
import math
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from commonfloor.files import LARGEST, read_bytes
from commonfloor.messages import reason, spelling_hint, usual_name
from commonfloor.metrics import ACCURACY
from results.store.record import Record
from results.store.schemas.metrics import Margin, Metric, is_lower_better
from results.store.schemas.plans import Arm, Plan, PlannedTrial
from results.study_results import NOT_NUMBERS, StudyResults, assemble

RECIPE = "imported"
SEED = "seed"  # the usual column of seeds
SIMILAR = 0.75  # by difflib: `sed` and `sede` are similar to SEED, `step` is not
UNNAMED = "Unnamed: "  # so pandas begins the name of a column without one
STATES = ("state", "status")  # columns of Weights & Biases and of MLflow
# Of runs of those two without a final value.
UNFINISHED = ("crashed", "failed", "killed", "pending", "preempted", "preempting", "running", "scheduled")
FEWEST = 2  # arms
LARGEST_SEED = 2**31 - 1
LARGEST_NUMBER = 1e70  # its fourth power, which degrees of freedom take, is finite


@dataclass(frozen=True)
class Columns:
    """What the columns of a table mean.

    arms: the columns whose values name an arm; none in a wide table. seed: "" for `seed` if there is one. metrics: the
    first is compared. lower: the metrics of which less is better. unpaired: whether equal seeds pair nothing.
    """

    study: str
    arms: Sequence[str]
    seed: str
    metrics: Sequence[str]
    baseline: str
    margin: Margin | None = None
    lower: Sequence[str] = ()
    unpaired: bool = False


@dataclass(frozen=True)
class ImportedRun:
    """A row of a table. metrics: name -> value, NaN if it has none. state: how the run ended, or ""."""

    settings: Mapping[str, Any]
    seed: int
    metrics: Mapping[str, float]
    state: str = ""

    @property
    def arm(self) -> str:
        return arm_name(self.settings)

    @property
    def id(self) -> str:
        return hashed([self.settings, self.seed, {name: repr(value) for name, value in self.metrics.items()}])

    def record(self, metric: str, source: str) -> Record:
        if math.isnan(self.metrics[metric]):
            return Record({"status": "failed", "reason": f"no {metric} in {source}{self.state and f' ({self.state})'}"})
        if self.state in UNFINISHED:
            return Record({"status": "failed", "reason": f"{self.state} in {source}"})
        return Record({"status": "finished", "reason": "", **self.metrics})


def arm_name(settings: Mapping[str, Any]) -> str:
    return ",".join(f"{name}={value}" for name, value in settings.items())


def read_study(path: Path, request: Columns) -> StudyResults:
    """Return the study that a table of runs holds. Raises ValueError if the table lacks what the request names."""
    content = read_bytes(path, LARGEST)
    table = unpacked(read_table(path, request.arms))
    origin = f"{path.name} (SHA-256 {hashlib.sha256(content).hexdigest()[:12]})"
    try:
        seed = seed_column(table, request)
        if request.arms:
            runs = list(long_runs(table, request, seed))
            arms = {run.arm: run.settings for run in runs}
        else:
            columns = arm_columns(table, seed)
            runs = list(wide_runs(table, request, seed, columns))
            arms = {arm_name({"arm": name}): {"arm": name} for name in columns}
        check_arms(arms, runs)
        plan = new_plan(arms, runs, origin, request, is_numbered=not seed)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return assemble(plan, {run.id: run.record(request.metrics[0], path.name) for run in runs})


# -- reading a table ---------------------------------------------------------------------------------------------------


def read_table(path: Path, arms: Sequence[str]) -> pd.DataFrame:
    readers: dict[str, Callable[[Path], pd.DataFrame]] = {
        ".csv": lambda file: read_csv(file, ",", arms),
        ".tsv": lambda file: read_csv(file, "\t", arms),
        ".parquet": pd.read_parquet,
        ".json": pd.read_json,
        ".jsonl": lambda file: pd.read_json(file, lines=True),
    }
    if path.suffix not in readers:
        raise ValueError(f"{path}: a table of runs is named {', '.join(readers)}")
    try:
        table = readers[path.suffix](path)
    except Exception as error:  # each reader raises errors of its own
        raise ValueError(f"{path}: cannot be read as {path.suffix} ({reason(error)})") from None
    if any(str(name).endswith("__MIN") for name in table.columns):
        raise ValueError(f"{path}: the export of a chart, without settings and seeds: export the table of runs")
    return table


def read_csv(path: Path, separator: str, arms: Sequence[str]) -> pd.DataFrame:
    """Return a table in which texts such as None and NA are missing numbers, but values of arms."""
    table = pd.read_csv(path, sep=separator)
    texts = pd.read_csv(path, sep=separator, dtype=str, keep_default_na=False, na_values=[""])
    for name in itertools.chain.from_iterable(columns_like(table, arm) for arm in arms):
        table[name] = table[name].astype(object).where(table[name].notna(), texts[name])
    return table


def unpacked(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with columns of dictionaries, such as `config`, as a column per entry: `config.lr`."""
    parts = []
    for name in table.columns:
        entries = table[name].map(as_dict)
        if entries.notna().any():
            filled = [entry or {} for entry in entries]
            parts.append(pd.json_normalize(filled).add_prefix(f"{name}.").set_axis(table.index))
        else:
            parts.append(table[[name]].rename(columns=str))
    return pd.concat(parts, axis=1)


def as_dict(value: object) -> dict[str, Any] | None:
    """Return a dictionary, also from its text as pandas writes it to CSV, or None for another value."""
    if isinstance(value, str) and value.startswith("{"):
        try:
            value = ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
    if isinstance(value, dict):
        return value
    return None


def column(table: pd.DataFrame, option: str, name: str) -> str:
    """Return a column by its name or the end of its name, such as `lr` for `params.lr`."""
    matching = columns_like(table, name)
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise ValueError(f"{option}={name}: several columns end so: {', '.join(matching)}")
    names = list(map(str, table.columns))
    raise ValueError(f"{option}={name}: no such column{spelling_hint(name, names)} (there: {', '.join(names[:20])})")


def columns_like(table: pd.DataFrame, name: str) -> list[str]:
    names = list(map(str, table.columns))
    if name in names:
        return [name]
    return [longer for longer in names if longer.endswith((f".{name}", f"/{name}"))]


def seed_column(table: pd.DataFrame, request: Columns) -> str:
    """Return the column of seeds, or "" if there is none.

    Raises ValueError if another column seems to hold seeds, unless unpaired runs are asked for.
    """
    if request.seed or columns_like(table, SEED):
        return column(table, "--seed", request.seed or SEED)
    otherwise = "or rename it if it is an arm"
    if request.arms:
        if request.unpaired:
            return ""
        otherwise = "or --unpaired"
    named = {*request.arms, *request.metrics}
    for name in table.columns:
        if named.isdisjoint((name, last_name(name))) and resembles_seeds(name, table[name]):
            given = shlex.quote(name)
            raise ValueError(f"no column {SEED}, but '{name}' seems to hold seeds: give --seed {given}, {otherwise}")
    return ""


def last_name(name: str) -> str:
    return re.split("[./]", name)[-1]


def resembles_seeds(name: str, values: pd.Series) -> bool:
    """Return whether a column has the name SEED in other letters, or a similar one and whole numbers."""
    plain = last_name(name).strip().lower()
    if plain == SEED:
        return True
    is_similar = SEED in plain or usual_name(plain) == SEED or difflib.get_close_matches(plain, [SEED], cutoff=SIMILAR)
    return bool(is_similar) and all(str(setting(value)).isdecimal() for value in values)


# -- the runs of a table -----------------------------------------------------------------------------------------------


def long_runs(table: pd.DataFrame, request: Columns, seed: str) -> Iterator[ImportedRun]:
    arms = {name: table[column(table, "--arm", name)] for name in request.arms}
    metrics = {name: table[column(table, "--metric", name)] for name in request.metrics}
    states = [table[name] for name in table.columns if name.lower() in STATES]
    repeats = Counter[str]()
    for row, label in enumerate(table.index):
        settings = {name: setting(values[label]) for name, values in arms.items()}
        arm = arm_name(settings)
        number = repeats[arm]
        repeats[arm] += 1
        if seed:
            number = as_seed(table[seed][label], row)
        numbers = {name: as_number(name, values[label], row) for name, values in metrics.items()}
        state = ""
        if states:
            state = str(states[0][label]).lower()
        yield ImportedRun(settings, number, numbers, state)


def arm_columns(table: pd.DataFrame, seed: str) -> list[str]:
    arms = []
    for number, name in enumerate(table.columns, 1):
        if name == seed or is_nameless_filler(table[name]):
            continue
        if name.startswith(UNNAMED):
            raise ValueError(f"column {number} has no name: an arm needs one")
        arms.append(name)
    return arms


def is_nameless_filler(values: pd.Series) -> bool:
    if not str(values.name).startswith(UNNAMED):
        return False
    return bool(values.isna().all()) or list(map(setting, values)) == list(range(len(values)))


def wide_runs(table: pd.DataFrame, request: Columns, seed: str, arms: Sequence[str]) -> Iterator[ImportedRun]:
    """Yield a run for each arm, which is a column, and each seed, or each row down to the arm's last number."""
    metric = request.metrics[0]
    if len(request.metrics) > 1 or metric in table.columns:
        raise ValueError(f"--metric={','.join(request.metrics)}: without --arm, each column is an arm of one metric")
    for name in arms:
        labels = table.index
        if not seed:
            labels = labels[: table[name].notna().to_numpy().nonzero()[0].max(initial=-1) + 1]
        for row, label in enumerate(labels):
            number = row
            if seed:
                number = as_seed(table[seed][label], row)
            yield ImportedRun({"arm": name}, number, {metric: as_number(name, table[name][label], row)})


def setting(value: Any) -> Any:
    """Return a cell as plain JSON, with 2 for 2.0, to which pandas turns a column with empty cells."""
    if hasattr(value, "tolist"):  # a number or an array of NumPy
        value = value.tolist()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, float) and math.isnan(value):
        return ""
    return value


def as_seed(value: Any, row: int) -> int:
    text = str(setting(value))
    if not text.isdecimal() or int(text) > LARGEST_SEED:
        raise ValueError(f"run {row + 1}: seed={value}: a whole number from 0 to {LARGEST_SEED}")
    return int(text)


def as_number(name: str, value: Any, row: int) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"run {row + 1}: {name}={value}: a number") from None
    if abs(number) > LARGEST_NUMBER:
        raise ValueError(f"run {row + 1}: {name}={value}: a finite number, at most {LARGEST_NUMBER:.0e} in size")
    return number


def check_arms(arms: Collection[str], runs: Sequence[ImportedRun]) -> None:
    """Raise ValueError unless there are two arms, and at most one run for each arm and seed."""
    rows: dict[tuple[str, int], int] = {}
    for row, run in enumerate(runs):
        earlier = rows.setdefault((run.arm, run.seed), row)
        if earlier != row:
            raise ValueError(f"runs {earlier + 1} and {row + 1} are both {run.arm} with seed {run.seed}: keep one")
    if len(arms) < FEWEST:
        raise ValueError(f"{len(arms)} arms: nothing to compare")


def baseline_name(arms: Mapping[str, Mapping[str, Any]], request: Columns) -> str:
    """Return the name of the arm that the request names, by its value alone if one column tells the arms apart."""
    values: dict[str, str] = {}
    for name, settings in arms.items():
        if len(settings) == 1:
            (value,) = settings.values()
            values[str(value)] = name
    if request.baseline not in (*arms, *values):
        names = list(values or arms)
        raise ValueError(f"--baseline={request.baseline}: no arm (there: {', '.join(names[:20])})")
    return values.get(request.baseline, request.baseline)


# -- the study ---------------------------------------------------------------------------------------------------------


def new_plan(
    arms: Mapping[str, Mapping[str, Any]],
    runs: Sequence[ImportedRun],
    origin: str,
    request: Columns,
    is_numbered: bool,
) -> Plan:
    """Return the plan of the runs that the table has. is_numbered: whether it has no seeds."""
    pairing = "paired by seed number: whether equal seeds share data order or initial weights is unknown"
    if is_numbered:
        pairing = f"unpaired: no column {SEED}, so that the repeats of an arm are numbered in the order of rows"
    elif request.unpaired:
        pairing = "unpaired, as asked for: equal seeds pair nothing"
    baseline = baseline_name(arms, request)
    runs_by_arm: dict[str, list[ImportedRun]] = defaultdict(list)
    for run in runs:
        runs_by_arm[run.arm].append(run)
    factors: dict[str, list[Any]] = defaultdict(list)
    for settings in arms.values():
        for name, value in settings.items():
            if value not in factors[name]:
                factors[name].append(value)
    return Plan(
        name=f"{request.study}@{RECIPE}",
        study=request.study,
        recipe=RECIPE,
        paired="no" if is_numbered or request.unpaired else "by-seed",
        overrides={},
        question=f"Which {' and '.join(factors)}?",
        source="",
        description=f"Imported from {origin}.",
        metric=request.metrics[0],
        metrics=[declared(name, runs, request) for name in request.metrics],
        selection_metric=request.metrics[0],
        margin=request.margin,
        claims=[],
        caveats=[],
        notes=[
            f"imported from {origin}: none of its runs was trained or checked here",
            "metric, baseline and margin were chosen when the results existed",
            pairing,
        ],
        figure="intervals",
        factors=factors,
        curves={},
        baseline=baseline,
        seeds=sorted({run.seed for run in runs}),
        arms=[planned_arm(settings, runs_by_arm[name], baseline) for name, settings in arms.items()],
        family=len(arms) - 1,
    )


def declared(name: str, runs: Sequence[ImportedRun], request: Columns) -> Metric:
    if name in NOT_NUMBERS:
        raise ValueError(f"--metric={name}: is what every trial has: give the column another name")
    numbers = [run.metrics[name] for run in runs if not math.isnan(run.metrics[name])]
    if not numbers:
        raise ValueError(f"--metric={name}: no run has a value")
    if "acc" in name.lower() and name not in request.lower and min(numbers) >= 0 and max(numbers) <= 1:
        return Metric(name=name, **ACCURACY)
    higher = name not in request.lower and not is_lower_better(name)
    decimals = 4
    if max(map(abs, numbers)) >= 10:
        decimals = 2
    return Metric(name=name, higher_is_better=higher, decimals=decimals)


def planned_arm(settings: Mapping[str, Any], runs: Sequence[ImportedRun], baseline: str) -> Arm:
    name = arm_name(settings)
    notes = []
    if not runs:
        notes = ["no run: its column is empty"]
    return Arm(
        name=name,
        baseline=baseline,
        change=name,
        values=dict(settings),
        key=hashed(settings),
        config=dict(settings),
        notes=notes,
        trials=[PlannedTrial(seed=run.seed, id=run.id) for run in runs],
    )


def hashed(content: object) -> str:
    text = json.dumps(["imported", content], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
