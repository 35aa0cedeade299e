"""Trials of an exported file, written into a run directory, so that studies go on where their results are."""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablations.planning.saved_plans import check_same_table, save_plan, saved_plan
from ablations.trainables.trainable import find, hashed
from commonfloor.files import read_bytes
from results import export, store
from results.store import eval_files, lease, ledger
from results.store.record import NAMED
from results.store.schemas import EvalSummary
from results.store.schemas.metrics import MEASURES
from results.study_results import NO_METRICS, StudyResults
from results.units import amount_text

ENDED = ("finished", "diverged")
WHOLE = ("threads", "ranks", "micro_batch")  # facts of env.json that are whole numbers


@dataclass(frozen=True)
class Merged:
    """How many trials of a file were written, had results in the run directory before, and had not ended."""

    studies: list[str]
    written: int = 0
    present: int = 0
    unfinished: int = 0

    def text(self) -> str:
        parts = [f"{amount_text(self.written, 'trial')} written"]
        if self.present:
            parts.append(f"{self.present} with results here, which stay")
        if self.unfinished:
            parts.append(f"{self.unfinished} left out, which had not ended")
        return ", ".join(parts)


@dataclass(frozen=True)
class ExportedTrial:
    """A trial of an export. trainable: the name of what it trains."""

    trainable: str
    row: dict[str, Any]
    history: list[dict[str, Any]]
    correct: Any

    @property
    def id(self) -> str:
        return str(self.row["id"])

    @property
    def config(self) -> dict[str, Any]:
        return dict(json.loads(self.row["config"]))

    def check_id(self) -> None:
        """Raise ValueError if this machine gives the trial's settings another id, as for other code or data."""
        trainable = find(self.trainable)
        own = hashed(trainable.identity(trainable.resolve(self.config)))
        if own != self.id:
            raise ValueError(f"trial {self.id}: its settings are trial {own} here: other code, plug-ins or data")

    def environment(self, origin: str) -> dict[str, Any]:
        facts: dict[str, Any] = {name: self.row[name] for name in NAMED if self.row.get(name)}
        for name in WHOLE:
            text = str(facts.pop(name, ""))
            if text.isdecimal():
                facts[name] = int(text)
        plugins = json.loads(self.row["plugins"] or "{}")
        return {**facts, "imported": origin, **({"plugins": plugins} if plugins else {})}

    def result(self) -> dict[str, Any]:
        """Return the fields of result.json that training knows."""
        numbers = {
            name: value for name, value in self.row.items() if isinstance(value, float) and not math.isnan(value)
        }
        of_evals = {name for summary in self.row["evals"].values() for name in summary.metrics}
        metrics = {name: value for name, value in numbers.items() if name not in {*NO_METRICS, *of_evals}}
        measures = {name: whole(numbers[name]) for name in MEASURES if name in numbers}
        return {"status": self.row["status"], "metrics": metrics, **measures}

    def write(self, trial: store.Trial, origin: str) -> bool:
        """Write the trial as an attempt of its own. Returns False if it has a result, or is being trained."""
        trial.create({"config": self.config})
        attempt = store.claim(trial, lease.Watch())
        if attempt is None:
            return False
        with attempt:
            attempt.write_env(self.environment(origin))
            for line in self.history:
                attempt.log(known_numbers(line))
            if self.correct is not None:
                attempt.save_correct(*self.correct)
            attempt.weights_sha256 = self.row["weights_sha256"] or None
            attempt.publish(self.result())
        self.write_evals(trial)
        return True

    def write_evals(self, trial: store.Trial) -> None:
        evals: dict[str, EvalSummary] = self.row["evals"]
        for name, summary in evals.items():
            content = {"metrics": summary.metrics, "notes": summary.notes}
            eval_files.write(trial, name, self.row["weights_sha256"], content)


def known_numbers(line: Mapping[str, float]) -> dict[str, float]:
    """Return the numbers of a line of metrics.jsonl that are not NaN, with the steps and images as whole numbers."""
    known = {name: value for name, value in line.items() if not math.isnan(value)}
    return {**known, **{name: int(known[name]) for name in ("step", "images") if name in known}}


def whole(number: float) -> float | int:
    return int(number) if number.is_integer() else number


def merge_export(path: Path, runs: Path) -> Merged:
    """Write the ended trials, the plans and the declarations of an export into a run directory.

    What the run directory has stays as it is. Nothing is written if the file is refused. Raises ValueError if the file
    is damaged, if a trial has another id here, or if a plan in the run directory has another baseline or metric.
    """
    studies = export.read(path)
    origin = f"{path.name} (SHA-256 {hashlib.sha256(read_bytes(path, export.MOST_BYTES)).hexdigest()[:12]})"
    trials = {trial.id: trial for study in studies for trial in exported_trials(study)}
    ended = [trial for trial in trials.values() if trial.row["status"] in ENDED]
    try:
        for trial in ended:
            trial.check_id()
        for study in studies:
            check_plan(runs, study)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    written = sum(write_all(ended, runs, origin))
    for study in studies:
        if saved_plan(runs, study.name) is None:
            save_plan(runs, study.plan.model_copy(update={"extends": ""}))
        for declared in study.plan.declarations:
            ledger.write(runs, declared)
    names = [study.name for study in studies]
    return Merged(names, written, len(ended) - written, len(trials) - len(ended))


def exported_trials(study: StudyResults) -> Iterator[ExportedTrial]:
    for row, history in study.trials_with_history():
        lines = [{name: value for name, value in line.items() if name not in ("arm", "seed", "id")} for line in history]
        yield ExportedTrial(study.plan.trainable, row, lines, study.correct.get(row["id"]))


def check_plan(runs: Path, study: StudyResults) -> None:
    there = saved_plan(runs, study.name)
    if there is not None:
        check_same_table(there, study.plan)


def write_all(trials: Iterable[ExportedTrial], runs: Path, origin: str) -> Iterator[bool]:
    """Write trials without a result in the run directory. Yield for each whether it was written."""
    for trial in trials:
        own = store.trial(runs, trial.id)
        yield own.state().result is None and trial.write(own, origin)
