"""Notes on trials: those without the metric, or with a result in doubt, and provenance that differs among them."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from results import units
from results.statistics import intervals
from results.statistics.arms import ArmResults, TrialOutcome
from results.store import eval_files
from results.store.record import THEN
from results.store.schemas.plans import Plan
from results.study_results import StudyResults, rows_of
from results.style import current_style

NAMED = 3  # the most arms that a note names individually
COMPARABLE = ("device", "threads", "python", "torch", "numpy", "compile", "attention")

Trial = tuple[str, int]  # arm, seed


def absence_notes(arm: ArmResults, plan: Plan) -> list[str]:
    """Return notes on trials without the metric, collapsed, or with a result in doubt, and their rate."""
    seeds_by_absence: dict[str, list[int]] = defaultdict(list)
    for trial in arm.outcomes:
        text = absence_text(trial, plan)
        if text:
            seeds_by_absence[text].append(trial.seed)
    notes = [f"{units.seeds_text(seeds)} {text}" for text, seeds in seeds_by_absence.items()]
    if arm.collapsed:
        metric = plan.primary_metric
        reached = ", ".join(f"{metric.value_text(trial.value)}{metric.unit}" for trial in arm.collapsed)
        notes.append(f"{units.seeds_text([trial.seed for trial in arm.collapsed])} collapsed: {reached}")
    over = len(arm.over)
    for count, what in ((arm.count("diverged"), "diverged"), (len(arm.collapsed), "collapsed")):
        if count:
            low, high = intervals.clopper_pearson(count, over)
            notes.append(f"{count} of {over} {what} (95% interval {low:.0%} to {high:.0%})")
    return notes


def absence_text(trial: TrialOutcome, plan: Plan) -> str:
    """Return the state of a trial with its reason, such as "failed: ...", or "" if it needs no note."""
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
    elif state not in ("diverged", "failed", "stopped"):
        state = "missing"
    return f"{state}: {reason}" if reason else state


def retry_warnings(study: StudyResults) -> list[str]:
    seeds: dict[str, list[int]] = defaultdict(list)
    for arm, seed, count in zip(*map(study.columns.__getitem__, ("arm", "seed", "retried_diverged")), strict=True):
        if not math.isnan(count):
            seeds[arm].append(seed)
    if not seeds:
        return []
    named = ", ".join(f"{current_style().label(arm)} {units.seeds_text(retried)}" for arm, retried in seeds.items())
    trials = units.amount_text(sum(map(len, seeds.values())), "trial")
    return [f"{trials} diverged and may have been trained again, by ablate retry --diverged: {named}"]


def provenance_notes(columns: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return a note for each field whose known value differs between ended trials or attempts."""
    whole = Counter[str]()
    groups: dict[str, dict[str, list[Trial]]] = {}  # field -> known value -> trials
    for trial in rows_of(columns):
        if trial["status"] not in ("finished", "diverged"):
            continue
        whole[trial["arm"]] += 1
        for name, text in comparable_fields(trial).items():
            trials_by_text = groups.setdefault(name, defaultdict(list))
            if text:
                trials_by_text[text].append((trial["arm"], trial["seed"]))
    notes = []
    for name, trials_by_text in groups.items():
        if len(trials_by_text) > 1 or THEN in "".join(trials_by_text):
            notes.append(difference_note(name, trials_by_text, whole))
    return notes


def import_notes(trials: Mapping[str, Sequence[Any]]) -> list[str]:
    counted = Counter(text for text in trials["imported"] if text)
    total = len(trials["imported"])
    return [f"{number} of {total} trials were imported from {origin}" for origin, number in counted.items()]


def comparable_fields(trial: Mapping[str, Any]) -> dict[str, str]:
    """Return field -> value for what should be equal in all trials; "" means unknown.

    Plug-ins and data of evals count only where a trial has them, as a shared baseline may be trained without.
    """
    fields = {"code": source_digest(trial["code"])}
    for name in COMPARABLE:
        fields[name] = trial[name]
    fields["ranks"] = trial["ranks"] or "1"
    fields["micro-batch"] = trial["micro_batch"] or "the whole batch"
    fields["trained"] = "as one" if trial["fused"] else "alone"
    fields["precision of float32 products"] = trial["matmul_precision"]
    fields["TF32"] = trial["tf32"]
    for plugin, digest in json.loads(trial["plugins"] or "{}").items():
        fields[f"plugin {plugin}"] = digest
    for name, summary in trial["evals"].items():
        if summary.data_sha256:
            fields[f"data of {name}"] = summary.data_sha256[:12]
    return fields


def source_digest(code: str) -> str:
    """Return the digests of the suite's sources in a trial's attempts, joined by THEN. Plug-ins are left out."""
    return THEN.join(dict.fromkeys(part.partition("+")[0] for part in code.split(THEN)))


def difference_note(name: str, trials_by_text: Mapping[str, Sequence[Trial]], whole: Mapping[str, int]) -> str:
    most, *rest = sorted(trials_by_text, key=lambda text: (-len(trials_by_text[text]), text))
    parts = [f"{most} ({len(trials_by_text[most])})"]
    for text in rest:
        parts.append(f"{text} ({trials_text(trials_by_text[text], whole)})")
    return f"{name} differs {'between' if rest else 'within'} trials: {', '.join(parts)}"


def trials_text(trials: Iterable[Trial], whole: Mapping[str, int]) -> str:
    """Return trials as text, such as "position=none seed 3; all of position=2d". whole: arm -> number."""
    seeds: dict[str, list[int]] = defaultdict(list)
    for arm, seed in trials:
        seeds[arm].append(seed)
    count = sum(map(len, seeds.values()))
    texts = []
    is_partial = False
    for arm, listed in seeds.items():
        if len(listed) < whole[arm]:
            is_partial = True
            texts.append(f"{arm} {units.seeds_text(listed)}")
        else:
            texts.append(f"all of {arm}")
    if len(seeds) <= NAMED:
        return "; ".join(texts)
    return f"{count} trials of {len(seeds)} arms" if is_partial else f"{count}: all of {len(seeds)} arms"
