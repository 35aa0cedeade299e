"""Notes on trials: those without the metric, or with a result in doubt, and provenance that differs among them."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from results import units
from results.statistics import intervals
from results.statistics.arms import ArmResults, TrialOutcome
from results.store import eval_files
from results.store.record import THEN
from results.store.schemas import Plan
from results.study_results import StudyResults
from results.style import current_style
from results.tables.sentences import seeds_text

NAMED = 3  # the most arms that a note names individually
COMPARABLE = ("device", "threads", "python", "torch", "numpy", "compile", "attention")

Columns = Mapping[str, Sequence[Any]]  # name -> the value in each trial
Trial = tuple[str, int]  # arm, seed


def absence_notes(arm: ArmResults, plan: Plan) -> list[str]:
    """Return notes on trials that lack the metric, collapsed, have damaged files, or ran on suspect hardware.

    If a trial diverged or collapsed, a note has the rate among trials that diverged or have the metric.
    """
    seeds_by_absence: dict[str, list[int]] = defaultdict(list)
    for trial in arm.outcomes:
        text = absence_text(trial, plan)
        if text:
            seeds_by_absence[text].append(trial.seed)
    notes = [f"{seeds_text(seeds)} {text}" for text, seeds in seeds_by_absence.items()]
    if arm.collapsed:
        metric = plan.primary_metric
        reached = ", ".join(f"{metric.value_text(trial.value)}{metric.unit}" for trial in arm.collapsed)
        notes.append(f"{seeds_text([trial.seed for trial in arm.collapsed])} collapsed: {reached}")
    over = len(arm.over)
    for count, what in ((arm.count("diverged"), "diverged"), (len(arm.collapsed), "collapsed")):
        if count:
            low, high = intervals.clopper_pearson(count, over)
            notes.append(f"{count} of {over} {what} (95% interval {low:.0%} to {high:.0%})")
    return notes


def absence_text(trial: TrialOutcome, plan: Plan) -> str:
    """Return the state of a trial with its reason, such as "failed: ...", or "" for one that needs no note."""
    state = trial.status
    reason = trial.reason
    if state == "finished" and not trial.has_metric:
        state = "missing"
        reason = eval_files.absence_reason(plan, trial.evals)
    elif state == "finished":
        if not reason and not math.isnan(trial.suspect_hardware):
            fault = f"loss was NaN at step {trial.suspect_hardware:.0f} but finite when recomputed"
            reason = f"{fault}: suspect hardware ({trial.host or 'host unknown'})"
        if not reason:
            return ""
    elif state == "diverged" and not math.isnan(trial.diverged_at_step):
        reason = "; ".join(filter(None, [f"at step {trial.diverged_at_step:.0f}", reason]))
    elif state not in ("diverged", "failed"):
        state = "missing"
    return f"{state}: {reason}" if reason else state


def retry_warnings(study: StudyResults) -> list[str]:
    """Return a warning that names the trials that were trained again after they had diverged, or []."""
    seeds: dict[str, list[int]] = defaultdict(list)
    for arm, seed, count in zip(*map(study.columns.__getitem__, ("arm", "seed", "retried_diverged")), strict=True):
        if not math.isnan(count):
            seeds[arm].append(seed)
    if not seeds:
        return []
    named = ", ".join(f"{current_style().label(arm)} {seeds_text(retried)}" for arm, retried in seeds.items())
    trials = units.amount_text(sum(map(len, seeds.values())), "trial")
    return [f"{trials} diverged and may have been trained again, by ablate retry --diverged: {named}"]


# -- provenance --------------------------------------------------------------------------------------------------------


def provenance_notes(trials: Columns) -> list[str]:
    """Return a note for each field whose known value differs between ended trials, or between a trial's attempts."""
    ended = [at for at, status in enumerate(trials["status"]) if status in ("finished", "diverged")]
    of_ended = {name: [values[at] for at in ended] for name, values in trials.items()}
    cells = list(zip(of_ended["arm"], of_ended["seed"], strict=True))
    notes = []
    for name, texts in comparable_columns(of_ended):
        if len({*texts} - {""}) > 1 or any(THEN in text for text in texts):
            notes.append(difference_note(name, cells, texts))
    return notes


def import_notes(trials: Columns) -> list[str]:
    """Return a note for each file from which trials were merged: how many, and its name and hash."""
    counted = Counter(text for text in trials["imported"] if text)
    total = len(trials["imported"])
    return [f"{number} of {total} trials were imported from {origin}" for origin, number in counted.items()]


def comparable_columns(trials: Columns) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield (name, value in each trial) for each field that should be equal in all trials.

    The value "" means unknown. A trial that did not load a plug-in has "" too, as a shared baseline may be trained
    without it.
    """
    yield "code", [source_digest(text) for text in trials["code"]]
    for name in COMPARABLE:
        yield name, trials[name]
    yield "ranks", [text or "1" for text in trials["ranks"]]
    yield "micro-batch", [text or "the whole batch" for text in trials["micro_batch"]]
    yield "trained", ["as one" if text else "alone" for text in trials["fused"]]
    yield "precision of float32 products", trials["matmul_precision"]
    yield "TF32", trials["tf32"]
    loaded = [json.loads(text or "{}") for text in trials["plugins"]]
    for plugin in dict.fromkeys(name for plugins in loaded for name in plugins):
        yield f"plugin {plugin}", [plugins.get(plugin, "") for plugins in loaded]


def source_digest(code: str) -> str:
    """Return the digests of the suite's sources in a trial's attempts, joined by THEN. Plug-ins are left out."""
    return THEN.join(dict.fromkeys(part.partition("+")[0] for part in code.split(THEN)))


def difference_note(name: str, trials: Sequence[Trial], texts: Sequence[str]) -> str:
    """Return the note on a field, such as "code differs between trials: a1b2 (18), c3d4 (position=none seed 3)"."""
    groups: dict[str, list[Trial]] = defaultdict(list)
    for trial, text in zip(trials, texts, strict=True):
        if text:
            groups[text].append(trial)
    most, *rest = sorted(groups, key=lambda text: (-len(groups[text]), text))
    whole = Counter(arm for arm, _ in trials)
    parts = [f"{most} ({len(groups[most])})", *(f"{text} ({trials_text(groups[text], whole)})" for text in rest)]
    return f"{name} differs {'between' if rest else 'within'} trials: {', '.join(parts)}"


def trials_text(trials: Iterable[Trial], whole: Mapping[str, int]) -> str:
    """Return trials as text, such as "position=none seed 3; all of position=2d". whole: arm -> number of trials."""
    seeds: dict[str, list[int]] = defaultdict(list)
    for arm, seed in trials:
        seeds[arm].append(seed)
    count = sum(map(len, seeds.values()))
    texts = []
    is_partial = False
    for arm, listed in seeds.items():
        if len(listed) < whole[arm]:
            is_partial = True
            texts.append(f"{arm} {seeds_text(listed)}")
        else:
            texts.append(f"all of {arm}")
    if len(seeds) <= NAMED:
        return "; ".join(texts)
    return f"{count} trials of {len(seeds)} arms" if is_partial else f"{count}: all of {len(seeds)} arms"
