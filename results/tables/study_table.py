"""The table of a study: a row for each planned arm, its difference from the baseline and the verdict."""

import itertools
import json
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from results import units
from results.statistics import claims, contrast, inference, interaction, tuned_pairs, tuning, verdict
from results.statistics import interim as looks
from results.statistics.contrast import Sample
from results.statistics.inference import Interval
from results.statistics.tuned_pairs import Pair
from results.store import evals
from results.store.planned import objective
from results.study_results import StudyResults
from results.style import current
from results.tables import layout, provenance, sentences

Row = dict[str, Any]
Table = dict[str, Any]
Cell = Mapping[Any, Any]

FEW = 5
INTERIM = "no verdict before all planned trials are over"
START = "start_fewshot5_accuracy"
OF_A_CELL = ("seed", "status", "reason", "evals", "diverged_at_step", "suspect_hardware", "host")


@dataclass(frozen=True)
class Tested:
    """An arm against its baseline: p of no difference, the same and that of equivalence after Holm."""

    pair: Pair
    p: float | None
    p_holm: float | None
    p_margin: float | None


def table(study: StudyResults, besides: Sequence[str] = (), interim: bool = False, simultaneous: bool = False) -> Table:
    """Everything that `ablate table` prints, in plain JSON values; fractions, not percents.

    besides: other numbers of the trials, of which a row has the mean and its interval too, under their names.
    interim: verdicts even where planned trials are not over. simultaneous: intervals that hold all differences at once.
    Raises ValueError for a number that the study does not have.
    """
    whole, choices = tuning.with_tuned(study)
    plan = whole.plan
    samples, cells = contrast.samples_by_arm(whole, plan["metric"]), cells_by_arm(whole)
    gone = {point for choice in choices.values() for point in choice.diverged}
    contrasts = {
        arm["name"]: tuned_pairs.pair(arm["name"], arm["baseline"], plan, samples, gone)
        for arm in plan["arms"]
        if arm["baseline"] != arm["name"]
    }
    unjudged = {arm["name"] for arm in plan["arms"] if any(edged(arm[of], choices) for of in ("name", "baseline"))}
    rows = [arm_row(cells[arm["name"]], arm, samples[arm["name"]], plan["metric"]) for arm in plan["arms"]]
    of = {row["arm"]: row for row in rows}
    for name in besides:
        add_mean(rows, name, whole)
    own = {note for row in rows for note in row["notes"]}
    tested, unfinished = tests(contrasts, of, plan, unjudged), is_unfinished(study)
    judged = interim or not unfinished
    for name, test in tested.items():
        add_contrast(of[name], of[of[name]["baseline"]], test, plan, judged)
    add_outliers(of, contrasts, units.unit(plan["metric"]))
    if simultaneous:
        add_simultaneous(of, contrasts, plan)
    for arm in plan["arms"]:
        of[arm["name"]]["notes"] += verdict.speed_notes(arm, of[arm["name"]], units.unit(plan["metric"]))
    noted = dict.fromkeys(note for row in rows for note in row["notes"])
    rows.sort(key=lambda row: (row["arm"] not in choices, current().rank(row["arm"])))  # as planned, but for a style
    return {
        "study": plan["study"],
        "recipe": plan["recipe"],
        "metric": plan["metric"],
        "baseline": plan["baseline"],
        "rows": rows,
        "name": plan["name"],
        "besides": list(besides),
        "objective": objective(plan),
        "overrides": plan["overrides"],
        "data": plan.get("data"),  # not in plans of before
        "question": plan["question"],
        "source": plan["source"],
        "published_of": plan.get("published_of", plan["source"]),  # not in plans of before
        "seeds": plan["seeds"],
        "split": plan["split"],
        "family": plan["family"],
        "points_family": plan.get("points_family", 0),
        "margin": plan["margin"],
        "interim": unfinished,
        "judged": judged,
        "budget": plan.get("budget", "steps"),
        "varied": varied(plan),
        "departures": departures(plan),
        "tuned": list(plan.get("tune", {})),
        "interactions": [shown(one, judged) for one in interaction.judge_interactions(whole, samples, unjudged)],
        "claims": [
            shown(one, judged)
            for one in claims.judge_claims(
                plan, rows, samples, {n: t.p_margin for n, t in tested.items()}, unjudged, gone
            )
        ],
        "notes": study_notes(study)
        + wide_margin(plan, of[plan["baseline"]]["mean"] if plan["baseline"] in of else None),
        "caveats": plan["caveats"],
        "notes_of": {
            "arms": list(dict.fromkeys(note for arm in plan["arms"] for note in arm["notes"])),
            "differences": [note for note in noted if note not in own],
            "columns": {note: column for arm in plan["arms"] for note, column in arm.get("notes_about", {}).items()},
        },
    }


def varied(plan: Mapping[str, Any]) -> list[str]:
    """The settings that are not the same for all arms by what the study says: factors, curves, joint changes."""
    declared = [key for arm in plan["arms"] for key in arm.get("declared", [])]
    return list(dict.fromkeys([*plan["factors"], *plan["curves"], *declared]))


def departures(plan: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Where the main baseline and each stage are not as the recipe says; none in plans of before this was written."""
    found = {"the baseline": plan.get("departures", {})}
    found |= {f"the stage {stage['name']}": stage.get("departures", {}) for stage in plan.get("stages", [])}
    return {who: settings for who, settings in found.items() if settings}


def edged(name: str, choices: Mapping[str, tuning.Choice]) -> bool:
    """Whether the best value of a tuned arm lies at the edge of its grid, so that a better one may lie outside."""
    return name in choices and bool(choices[name].edge)


def is_unfinished(study: StudyResults) -> bool:
    """Whether some planned trial has neither its number nor diverged: a verdict now would be one look of several."""
    over = zip(study.columns["status"], study.columns[study.plan["metric"]], strict=True)
    return any(status != "diverged" and (status != "finished" or math.isnan(value)) for status, value in over)


def shown(judgement: Mapping[str, Any], judged: bool) -> dict[str, Any]:
    """A claim or an interaction, without p and verdict where the table has none."""
    if judged or judgement["verdict"] is None:
        return dict(judgement)
    withheld: dict[str, Any] = dict.fromkeys(judgement.keys() & {"p", "p_holm", "verdict"})
    return {**judgement, **withheld, **({"note": INTERIM} if "note" in judgement else {"notes": [INTERIM]})}


def tests(
    contrasts: Mapping[str, Pair], of: Mapping[str, Row], plan: Mapping[str, Any], unjudged: Collection[str]
) -> dict[str, Tested]:
    """What is tested of each contrast; nothing after Holm of those that are not to be judged."""
    p = {
        name: verdict.p_with_divergence(
            tuned_pairs.p_value(pair, plan), of[name], of[of[name]["baseline"]], looks.correction_factor(plan)
        )
        for name, pair in contrasts.items()
    }
    there = {name: pair for name, pair in contrasts.items() if name not in unjudged}
    p_holm = adjusted({name: p[name] if name in there else None for name in contrasts}, plan)
    within = {name: tuned_pairs.p_equivalence(pair, plan["margin"], plan) for name, pair in there.items()}
    p_margin = adjusted({name: within.get(name) for name in contrasts}, plan)
    return {name: Tested(pair, p[name], p_holm[name], p_margin[name]) for name, pair in contrasts.items()}


def adjusted(p: Mapping[str, float | None], plan: Mapping[str, Any]) -> dict[str, float | None]:
    """Holm's p of every contrast in its family: the tuned arms are the table's, all points of the grid another."""
    families: dict[tuple[str, int], list[str]] = defaultdict(list)
    for name in p:
        families[family_of(name, plan)].append(name)
    found: dict[str, float | None] = {}
    for (_, size), members in families.items():
        found |= dict(zip(members, inference.holm([p[name] for name in members], size), strict=True))
    return found


def family_of(name: str, plan: Mapping[str, Any]) -> tuple[str, int]:
    """What an arm's contrast is corrected with, and how many there are."""
    tuned = {entry["name"] for entry in plan.get("tuned", [])}
    return ("points", plan["points_family"]) if tuned and name not in tuned else ("table", plan["family"])


def render(table: Table, format: str, columns: Sequence[str] | None = None, notes: str | None = None) -> str:
    """The table as md, latex, csv, json or html; columns: which of a row's keys, and in what order.

    notes: how much is said below it, one of layout.NOTES. Raises ValueError for a column or a format that is not there.
    """
    return layout.render(table, format, columns, notes)


def cells_by_arm(study: StudyResults) -> dict[str, list[Cell]]:
    """What a table says of each planned trial, arm by arm."""
    names = list(dict.fromkeys(["arm", *OF_A_CELL, study.plan["metric"]]))
    found: dict[str, list[Cell]] = {arm["name"]: [] for arm in study.plan["arms"]}
    for cell in zip(*(study.columns[name] for name in names), strict=True):
        found[cell[0]].append(dict(zip(names, cell, strict=True)))
    return found


def arm_row(cells: Sequence[Cell], arm: Mapping[str, Any], finished: Sample, metric: str) -> Row:
    """What the arm itself reached, of its trials; a baseline's row stays like this."""
    count = Counter(cell["status"] for cell in cells)
    mean = finished.mean
    notes = [*arm["notes"], *holes(cells, metric)]
    if mean.n > 1 and mean.se is None:
        notes.append(f"no interval of the mean: {mean.why}")
    return {
        "arm": arm["name"],
        "n": mean.n,
        "planned": len(cells),
        "mean": mean.value,
        "sd": math.sqrt(inference.variance(finished.numbers)) if mean.n > 1 else None,
        "ci95": listed(mean.interval()),
        "delta": None,
        "delta_ci95": None,
        "p": None,
        "p_holm": None,
        "verdict": None,
        "margin_met": None,
        "published": arm["published"],
        "params": arm["params"],
        "flops": arm["flops"],
        "baseline": arm["baseline"],
        "n_pairs": None,
        "delta_ci95_images": None,
        "delta_ci95_simultaneous": None,
        "diverged": count["diverged"],
        "failed": count["failed"],
        "missing": len(cells) - mean.n - count["diverged"] - count["failed"],
        "notes": notes,
    }


def add_mean(rows: Sequence[Row], name: str, study: StudyResults) -> None:
    """To the row of each arm, of another number. Raises ValueError for what is none of the study."""
    if name not in study.numbers:
        raise ValueError(f"{study.name}: {layout.unknown(name, study.numbers)}")
    reached = contrast.samples_by_arm(study, name)
    for row in rows:
        mean = reached[row["arm"]].mean
        row |= {name: mean.value, name + layout.INTERVAL: listed(mean.interval())}


def add_contrast(row: Row, baseline: Row, test: Tested, plan: Mapping[str, Any], judged: bool) -> None:
    """Completes the row of an arm with its difference from `baseline`; judged: whether with a verdict."""
    pairs = test.pair.own
    difference, images = pairs.mean, contrast.mean_over_images(pairs)
    diverged = row["diverged"], baseline["diverged"]
    word = verdict.verdict(
        difference,
        test.p_holm if judged else None,
        tie=test.p_margin is not None and test.p_margin < verdict.ALPHA,
        higher_is_better=units.higher_is_better(plan["metric"]),
        diverged=diverged,
    )
    row |= {
        "delta": difference.value,
        "delta_ci95": listed(difference.interval()),
        "p": test.p if judged else None,
        "p_holm": test.p_holm if judged else None,
        "verdict": word,
        "margin_met": None if any(diverged) or test.p_holm is None else tuned_pairs.margin_met(test.pair, plan),
        "n_pairs": difference.n,
        "delta_ci95_images": listed(images.interval()) if images else None,
    }
    if difference.n < max(row["n"], baseline["n"]):
        common = f"the difference is over {sentences.named(pairs.seeds)}: what both arms finished"
        row["notes"].append(common if pairs.seeds else "no seed that both arms finished")
    if difference.se is None:
        lacking = "interval, p or verdict" if test.p is None else "interval"
        row["notes"].append(f"no {lacking} of the difference: {difference.why}")
    if unknown := contrast.interval_caveat(pairs):
        row["notes"].append(unknown)
    row["notes"] += verdict.verdict_notes(
        word,
        difference,
        images,
        test.p_holm,
        family=family_of(row["arm"], plan)[1],
        margin=plan["margin"],
        unit=units.unit(plan["metric"]),
        looks=looks.correction_factor(plan),
        grid=bool(test.pair.ahead),
        diverged=any(diverged),
    )


def add_outliers(of: Mapping[str, Row], contrasts: Mapping[str, Pair], unit: units.Unit) -> None:
    """A note where one seed's difference lies apart, by its arm's spread and by that of the arms between them."""
    pairs = {name: pair.own for name, pair in contrasts.items() if pair.own.values}
    usual = float(np.median([inference.robust_deviation(own.numbers) for own in pairs.values()] or [0.0]))
    for name, own in pairs.items():
        if (far := inference.outlier(own.numbers, max(usual, own.image))) is not None:
            value, median = (unit.signed(one) for one in (own.numbers[far], float(np.median(own.numbers))))
            told = f"{sentences.named([own.seeds[far]])} lies apart: {value}, the median is {median}"
            of[name]["notes"].append(f"{told}{unit.of_difference}")


def add_simultaneous(of: Mapping[str, Row], contrasts: Mapping[str, Pair], plan: Mapping[str, Any]) -> None:
    """To each row the interval that holds its difference while those of its family hold theirs."""
    families: dict[tuple[str, int], dict[tuple[int, ...], list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, pair in contrasts.items():
        if pair.own.mean.se is not None:
            families[family_of(name, plan)][tuple(pair.own.seeds)].append(name)
    for groups in families.values():
        level = inference.simultaneous_level(
            [np.column_stack([contrasts[name].own.numbers for name in names]) for names in groups.values()]
        )
        for name in itertools.chain(*groups.values()):
            of[name]["delta_ci95_simultaneous"] = listed(contrasts[name].own.mean.interval(level))


def listed(interval: Interval | None) -> list[float] | None:
    return None if interval is None else list(interval)


def holes(cells: Sequence[Cell], metric: str) -> list[str]:
    """Every planned trial without a number, by name and reason; what of a finished one is damaged."""
    found: dict[tuple[str, str], list[int]] = {}
    for cell in cells:
        if described := hole(cell, metric):
            found.setdefault(described, []).append(cell["seed"])
    notes = [f"{sentences.named(seeds)} {state}{reason and f': {reason}'}" for (state, reason), seeds in found.items()]
    diverged = sum(cell["status"] == "diverged" for cell in cells)
    if diverged:
        low, high = inference.clopper_pearson(diverged, len(cells))
        notes.append(f"{diverged} of {len(cells)} diverged (95% interval {low:.0%} to {high:.0%})")
    return notes


def hole(cell: Cell, metric: str) -> tuple[str, str] | None:
    """The state in a table's words and the reason; None for a trial with its number and files."""
    status, reason = cell["status"], cell["reason"]
    if status == "finished" and math.isnan(cell[metric]):
        return "missing", evals.absent(metric, json.loads(cell["evals"] or "{}"))
    if status == "finished":
        return ("finished", reason or suspicion(cell)) if reason or suspicion(cell) else None
    if status == "diverged":
        step = cell["diverged_at_step"]
        return "diverged", "" if math.isnan(step) else f"at step {step:.0f}"
    if status == "failed":
        return "failed", reason
    return "missing", reason


def suspicion(cell: Cell) -> str:
    """What a finished trial's hardware did once."""
    step = cell["suspect_hardware"]
    fault = f"after a loss at step {step:.0f} that was no number and, computed again, was one"
    return "" if math.isnan(step) else f"{fault}: suspect hardware ({cell['host'] or 'host unknown'})"


def wide_margin(plan: Mapping[str, Any], baseline: float | None) -> list[str]:
    """A note where the margin is larger than all that is left to gain over the baseline."""
    margin, metric = plan["margin"], plan["metric"]
    if margin is None or baseline is None or not units.is_accuracy(metric) or 1 - baseline >= margin:
        return []
    unit = units.unit(metric)
    return [f"the margin of {unit.size(margin)} is wider than the baseline's error of {unit.size(1 - baseline)}"]


def study_notes(study: StudyResults) -> list[str]:
    """What a reader of the whole table must know: code or machines that differ, seeds that are few or were raised."""
    notes = [*provenance.notes(study.columns), *study.plan.get("notes", [])]
    seeds = len(study.plan["seeds"])
    if seeds < FEW:
        notes.append(f"{seeds} seeds resolve only very large differences: {FEW} is the default")
    return notes + starts(study) + looks.notes(study.plan)


def starts(study: StudyResults) -> list[str]:
    """What the weights that arms start from were found to be worth when few shots probe them."""
    if START not in study.columns:
        return []
    stage = {arm["name"]: arm.get("parent", "") for arm in study.plan["arms"]}
    probed: dict[str, dict[int, float]] = defaultdict(dict)  # of each stage, by seed: its arms start from one trial
    for arm, seed, value in zip(*(study.columns[name] for name in ("arm", "seed", START)), strict=True):
        if not math.isnan(value):
            probed[stage[arm]][seed] = value
    said = [f"{name} {fmean(found.values()):.1%} (n = {len(found)})" for name, found in probed.items()]
    return [f"5-shot accuracy of what arms start from: {', '.join(said)}"] if said else []
