"""Results of an export, a bundle or another run directory, written into a run directory."""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ablations.execution.compute_eval import winner_weights
from ablations.jobs import Job, unfinished
from ablations.planning import bundle_files
from ablations.planning.saved_plans import check_same_table, save_plan, saved_plan
from ablations.trainables.trainable import LINKS, VIT, find, hashed
from commonfloor.files import read_bytes
from results import export, store
from results.store import eval_files, lease, ledger, record, seals
from results.store.record import NAMED, Correct, Record
from results.store.schemas.base import Settings
from results.store.schemas.declarations import Declaration
from results.store.schemas.metrics import MEASURES
from results.store.schemas.plans import Plan
from results.store.schemas.seals import Seal
from results.store.schemas.trials import EvalSummary
from results.study_results import NO_METRICS, TEXTS, StudyResults
from results.units import amount_text

ENDED = ("finished", "diverged")
WHOLE = ("threads", "ranks", "micro_batch")  # facts of env.json that are whole numbers
PLACES = ("data", *LINKS)  # settings that may name a path, which differs between machines


@dataclass(frozen=True)
class Merged:
    """How many trials of a file were written, had results in the run directory before, and had no whole result."""

    studies: list[str]
    written: int = 0
    present: int = 0
    unfinished: int = 0

    def text(self) -> str:
        parts = [f"{amount_text(self.written, 'trial')} written"]
        if self.present:
            parts.append(f"{self.present} with results here, which stay")
        if self.unfinished:
            parts.append(f"{self.unfinished} left out, which had not ended or are damaged")
        return ", ".join(parts)


@dataclass(frozen=True)
class ForeignTrial:
    """A trial of an export, or of another run directory `runs`, which may have its weights. row: as in an export."""

    trainable: str
    row: Mapping[str, Any]
    history: Sequence[Mapping[str, Any]]
    correct: Correct | None
    runs: Path | None = None

    @property
    def id(self) -> str:
        return str(self.row["id"])

    @property
    def config(self) -> Settings:
        return dict(json.loads(self.row["config"]))

    @property
    def has_ended(self) -> bool:
        """Whether it has a result, of which no file is damaged."""
        return self.row["status"] in ENDED and not self.row["reason"]

    @property
    def train_seconds(self) -> float | None:
        """How long it was trained, or None if it did not finish or this is unknown."""
        seconds = self.row.get("train_seconds")
        return seconds if self.row["status"] == "finished" and is_number(seconds) else None

    def check_id(self, places: Mapping[str, Any] = {}) -> Settings:
        """Return the resolved settings, with paths of this machine. Raises ValueError if their id is another here."""
        trainable = find(self.trainable)
        settings = trainable.resolve({**self.config, **places})
        id_here = hashed(trainable.identity(settings))
        if id_here != self.id:
            raise ValueError(f"trial {self.id}: its settings are trial {id_here} here: other code, plug-ins or data")
        return settings

    def environment(self, origin: str) -> dict[str, Any]:
        facts: dict[str, Any] = {name: self.row[name] for name in NAMED if self.row.get(name)}
        for name in WHOLE:
            text = str(facts.pop(name, ""))
            if text.isdecimal():
                facts[name] = int(text)
        plugins = json.loads(self.row["plugins"] or "{}")
        facts["imported"] = origin
        if plugins:
            facts["plugins"] = plugins
        return facts

    def result(self) -> dict[str, Any]:
        """Return the fields of result.json that training knows."""
        numbers = {name: value for name, value in self.row.items() if is_number(value)}
        others = set(NO_METRICS)
        for summary in self.row["evals"].values():
            others.update(summary.metrics)
        metrics = {name: value for name, value in numbers.items() if name not in others}
        facts = {name: whole(numbers[name]) for name in (*MEASURES, "suspect_hardware") if name in numbers}
        return {"status": self.row["status"], "metrics": metrics, **facts}

    def weights(self) -> bytes | None:
        """Return the final weights, or None if they are not there or damaged."""
        if self.runs is None or self.row["status"] != "finished":
            return None
        try:
            return winner_weights(store.trial(self.runs, self.id))
        except ValueError:
            return None

    def write(self, runs: Path, origin: str, settings: Settings) -> bool:
        """Write the trial as an attempt of its own. Returns False if it has a result, or is being trained."""
        trial = store.trial(runs, self.id)
        attempt = store.claim(trial, lease.Watch())
        if attempt is None:
            return False
        with attempt:
            trial.create({"config": settings})
            attempt.write_env(self.environment(origin))
            for line in self.history:
                attempt.log(known_numbers(line))
            if self.correct is not None:
                attempt.save_correct(*self.correct)
            weights = self.weights()
            if weights is None:
                attempt.weights_sha256 = self.row["weights_sha256"] or None
            else:
                attempt.save_weights(weights)
            evals: dict[str, EvalSummary] = self.row["evals"]
            for name, summary in evals.items():
                content = {"metrics": summary.metrics, "notes": summary.notes, "data_sha256": summary.data_sha256}
                eval_files.write(trial, name, self.row["weights_sha256"], content)
            attempt.publish(self.result())  # last: a trial with a result is not taken again
        return True


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def known_numbers(line: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a line of metrics.jsonl that are known, with the steps and images as whole numbers."""
    numbers = {name: value for name, value in line.items() if is_number(value)}
    for name in ("step", "images"):
        if name in numbers:
            numbers[name] = int(numbers[name])
    return numbers


def whole(number: float) -> float | int:
    return int(number) if float(number).is_integer() else number


# -- a whole export ----------------------------------------------------------------------------------------------------


def merge_export(path: Path, runs: Path) -> Merged:
    """Write the ended trials, plans, declarations and seals of an export. What the run directory has stays as it is.

    Raises ValueError, before anything is written, if the file is damaged, or if a trial's id or a plan's table differs.
    """
    studies = export.read(path)
    trials: dict[str, ForeignTrial] = {}
    for study in studies:
        refuse_table(path, study.plan)
    try:
        for study in studies:
            saved = saved_plan(runs, study.name)
            refuse_code(study.plan, saved)
            if saved is not None:
                check_same_table(saved, study.plan)
            for trial in exported_trials(study, (saved or study.plan).trainable):
                trials[trial.id] = trial
        ended = [trial for trial in trials.values() if trial.has_ended]
        for trial in ended:
            trial.check_id()
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    origin = source_name(path)
    written = 0
    for trial in ended:
        if store.trial(runs, trial.id).state().result is None:
            written += trial.write(runs, origin, trial.config)
    for study in studies:
        if saved_plan(runs, study.name) is None:
            save_plan(runs, study.plan.model_copy(update={"extends": ""}))
        write_declared(runs, study.plan.declarations, study.plan.seals)
    names = [study.name for study in studies]
    return Merged(names, written, len(ended) - written, len(trials) - len(ended))


def write_declared(runs: Path, declarations: Iterable[Declaration], sealed: Iterable[Seal]) -> None:
    for declared in declarations:
        ledger.write(runs, declared)
    for seal in sealed:
        seals.write(runs, seal)


def refuse_table(path: Path, plan: Plan) -> None:
    if plan.recipe == "imported" and plan.description.startswith("Imported from "):  # as results.imported writes them
        raise ValueError(
            f"{path}: {plan.name} was a table of runs, which says nothing of code: read it by --runs {path}"
        )


def refuse_code(plan: Plan, saved: Plan | None) -> None:
    """Raise ValueError if code of the plan's would be imported to check ids. saved: this run directory's plan."""
    kind = plan.trainable.partition(" ")[0]
    known = saved.trainable.partition(" ")[0] if saved else ""
    if kind not in ("", VIT, "command", known):
        raise ValueError(
            f"{plan.name} trains code of its authors: read it, and plan it here first "
            "(ablate run STUDY --recipe FILE --plan-only)"
        )


def exported_trials(study: StudyResults, trainable: str) -> Iterator[ForeignTrial]:
    for row, history in study.trials_with_history():
        lines = []
        for line in history:
            lines.append({name: value for name, value in line.items() if name not in ("arm", "seed", "id")})
        yield ForeignTrial(trainable, row, lines, study.correct.get(row["id"]))


def source_name(source: Path) -> str:
    if source.is_dir() and bundle_files.is_bundle(source):
        sums = source.absolute() / bundle_files.SUMS
        return f"the bundle {sums.parent.name} (SHA-256 of {sums.name} {short_digest(sums)})"
    if source.is_dir():
        return f"the run directory {source.absolute().name}"
    return f"{source.name} (SHA-256 {short_digest(source)})"


def short_digest(path: Path) -> str:
    return hashlib.sha256(read_bytes(path, export.MOST_BYTES)).hexdigest()[:12]


# -- the trials of a command -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Offer:
    """What a source has for the trials of a command. settings: trial id -> settings, as they are here.

    declarations, seals: what plans over these trials declared, and when. unusable: how many of them had ended, but are
    damaged or lack an eval.
    """

    source: Path
    trials: Sequence[ForeignTrial]
    settings: Mapping[str, Settings]
    declarations: Sequence[Declaration]
    seals: Sequence[Seal]
    unusable: int

    @property
    def text(self) -> str:
        text = f"{self.source}: {amount_text(len(self.trials), 'trial')} taken"
        if self.unusable:
            text += f", {self.unusable} left out, which are damaged or lack an eval"
        devices = dict.fromkeys(str(trial.row["device"]) for trial in self.trials if trial.row["device"])
        if devices:
            text += f"; trained by {', '.join(devices)}"
        return text


def offers(sources: Iterable[Path], jobs: Iterable[Job], runs: Path) -> list[Offer]:
    """Return what each source has for jobs without a result in the run directory. The first source of a trial counts.

    Raises ValueError if a source is neither an export nor another run directory, or if it is damaged or too new.
    """
    wanted = unfinished(jobs, runs)
    offered_by_source = []
    for source in sources:
        offer = offered(source, wanted, runs)
        wanted = {trial_id: job for trial_id, job in wanted.items() if trial_id not in offer.settings}
        offered_by_source.append(offer)
    return offered_by_source


def offered(source: Path, wanted: Mapping[str, Job], runs: Path) -> Offer:
    read, declarations, sealed = read_source(source, wanted, runs)
    usable: list[ForeignTrial] = []
    settings: dict[str, Settings] = {}
    unusable = 0
    for trial in read:
        job = wanted[trial.id]
        has_evals = trial.row["status"] == "diverged" or trial.row["evals"].keys() >= {*job.evals}
        if not trial.has_ended or not (has_evals or trial.weights() is not None):  # weights allow to compute evals
            unusable += trial.row["status"] in (*ENDED, "broken")
            continue
        try:
            settings[trial.id] = trial.check_id({key: job.config[key] for key in PLACES if key in job.config})
        except ValueError as error:
            raise ValueError(f"{source}: {error}") from None
        usable.append(trial)
    shared = [declared for declared in declarations if not declared.ids.isdisjoint(settings)]
    shared_seals = [seal for seal in sealed if not seal.declaration.ids.isdisjoint(settings)]
    return Offer(source, usable, settings, shared, shared_seals, unusable)


def read_source(
    source: Path, wanted: Mapping[str, Job], runs: Path
) -> tuple[list[ForeignTrial], Sequence[Declaration], Sequence[Seal]]:
    """Return (the wanted trials of a source, as trials of the jobs' trainables; all declarations; all seals there)."""
    if not source.exists():
        raise ValueError(f"--from {source}: no such export, bundle or run directory")
    if source.is_dir() and not bundle_files.is_bundle(source):
        if source.resolve() == runs.resolve():
            raise ValueError(f"--from {source}: is the run directory itself")
        if not (source / "trials").is_dir():
            raise ValueError(f"--from {source}: no run directory: it has no folder `trials`")
        records = record.read_many(source, list(wanted), record.PARTS)
        trials = [recorded_trial(source, wanted[trial_id], read) for trial_id, read in records.items()]
        return trials, ledger.read_declarations(source), seals.read_seals(source)
    by_id: dict[str, ForeignTrial] = {}
    declarations: list[Declaration] = []
    sealed: list[Seal] = []
    for study in exported_studies(source):
        declarations += study.plan.declarations
        sealed += study.plan.seals
        for trial in exported_trials(study, ""):
            if trial.id in wanted:
                by_id[trial.id] = replace(trial, trainable=wanted[trial.id].trainable)
    return list(by_id.values()), declarations, sealed


def exported_studies(source: Path) -> list[StudyResults]:
    """Return the studies of an export or a bundle, whose hashes are checked."""
    if not bundle_files.is_bundle(source):
        return export.read(source)
    with bundle_files.temporary_results(bundle_files.read_bundle(source)) as path:
        return export.read(path)


def recorded_trial(source: Path, job: Job, read: Record) -> ForeignTrial:
    row = {**dict.fromkeys(TEXTS, ""), **read.values, "id": job.id, "evals": read.evals}
    return ForeignTrial(job.trainable, row, read.history, read.correct, source)


def take(offer: Offer, runs: Path) -> None:
    origin = source_name(offer.source)
    write_declared(runs, offer.declarations, offer.seals)  # first: the next run takes no trial that has a result
    for trial in offer.trials:
        trial.write(runs, origin, offer.settings[trial.id])
