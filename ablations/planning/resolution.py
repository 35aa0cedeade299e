"""What a plan's seeds can tell: the smallest difference they resolve, whether the margin is within reach, and the
seeds that a finer answer takes (statistics of planning: results/statistics/power.py)."""

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ablations.planning.jobs import read
from results import units
from results.load import load_studies
from results.statistics import inference, interim, power, tuning
from results.statistics.contrast import Sample, samples_by_arm
from results.study_results import StudyResults

Json = dict[str, Any]
POINTS = (0.01, 0.005)  # of an accuracy: 1 and 0.5 points


@dataclass(frozen=True)
class Spread:
    """The standard deviation of a per-seed difference between two arms, from `freedom` degrees of freedom."""

    sd: float
    freedom: int
    source: str

    @property
    def bound(self) -> float:
        """What it is below with 80% confidence."""
        return inference.sd_bound(self.sd, self.freedom)


def resolution(plan: Json, runs: Path) -> Json:
    """As `ablate plan --json` has it; what depends on a spread is None where none is known."""
    seeds, family = len(plan["seeds"]), max(plan["family"], 1)
    tests = family * interim.correction_factor(plan)
    found = spread(plan, runs)
    known: Json = dict.fromkeys(("spread", "difference", "smallest_margin", "margin_reachable", "margin_seeds"))
    known |= {"seeds": seeds, "contrasts": family, "margin": plan["margin"], "seeds_for": {}, "note": note(plan)}
    if found is None:
        return known
    sd, margin = found.bound, plan["margin"]
    smallest = finite(power.smallest_margin(seeds, sd, tests))
    points = POINTS if units.is_accuracy(plan["metric"]) else ()
    return known | {
        "spread": {"sd": found.sd, "bound": sd, "freedom": found.freedom, "source": found.source},
        "difference": finite(inference.resolvable_difference(seeds, sd, tests)),
        "smallest_margin": smallest,
        "margin_reachable": None if margin is None else smallest is not None and smallest <= margin,
        "margin_seeds": None if margin is None else power.seeds_to_show_equivalent(margin, sd, tests),
        "seeds_for": {str(difference): power.seeds_to_resolve(difference, sd, tests) for difference in points},
    }


def spread(plan: Json, runs: Path) -> Spread | None:
    """Of the study's own differences so far, pooled over its arms; else what the recipe states; else unknown."""
    if read(runs, plan["name"]) is not None:
        (study,) = load_studies(runs, [plan["name"]], parts=())
        groups = differences(tuning.tuned_arms_only(study))  # what the table tests
        if any(pairs.mean.se is not None for group in groups for pairs in group):
            numbers = [[pairs.numbers for pairs in group] for group in groups]
            sd, _ = inference.pooled_sd(list(itertools.chain(*numbers)))
            return Spread(sd, inference.pooled_df(numbers), "the differences of this study so far")
    stated = plan.get("spread")
    if stated and stated["metric"] == plan["metric"]:
        return Spread(stated["sd"], stated["freedom"], f"the recipe ({stated['how']}: {stated['source']})")
    return None


def differences(study: StudyResults) -> list[list[Sample]]:
    """Of each arm from its baseline, per seed that both finished; those of one baseline together."""
    found = samples_by_arm(study, study.plan["metric"])
    groups: dict[str, list[Sample]] = {}
    for arm in study.plan["arms"]:
        if arm["name"] != arm["baseline"]:
            groups.setdefault(arm["baseline"], []).append(found[arm["name"]] - found[arm["baseline"]])
    return list(groups.values())


def note(plan: Json) -> str:
    """What the figures leave out where seeds test folds of the same images."""
    folds = plan["split"].get("folds")
    if not folds:
        return ""
    return f"beyond {folds} seeds every image is tested again, so that more seeds gain less than this says"


def finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def told(found: Json, metric: str, objective: str = "") -> list[str]:
    """For a person: a line each."""
    unit = units.unit(metric)
    if found["spread"] is None:
        return ["unknown: no differences in this run directory yet, and the recipe states none for these settings"]
    spread = found["spread"]
    contrasts = "1 contrast" if found["contrasts"] == 1 else f"{found['contrasts']} contrasts"
    lines = [
        f"{size(found['difference'], unit)} in {units.name(metric, objective)} with {found['seeds']} seeds "
        f"(80% power, {contrasts})",
        f"differences spread by {unit.size(spread['sd'])} ({spread['freedom']} degrees of freedom, from "
        f"{spread['source']}); reckoned with its upper 80% bound, {unit.size(spread['bound'])}",
    ]
    if found["margin"] is not None:
        lines.append(margin_text(found, unit))
    if found["seeds_for"]:
        wanted = [f"{unit.size(float(one))} {count(seeds)}" for one, seeds in found["seeds_for"].items()]
        beyond = any(seeds is None or seeds > found["seeds"] for seeds in found["seeds_for"].values())
        lines.append("to resolve " + ", ".join(wanted) + (f" ({found['note']})" if found["note"] and beyond else ""))
    return lines


def margin_text(found: Json, unit: units.Unit) -> str:
    """Whether arms that are equal can be shown to be."""
    margin = f"the margin of {unit.size(found['margin'])}"
    if found["margin_reachable"]:
        return f"{margin} can be reached: equal arms show within {size(found['smallest_margin'], unit)}"
    return f"{margin} cannot be reached with {found['seeds']} seeds: it takes {count(found['margin_seeds'])}"


def size(value: float | None, unit: units.Unit) -> str:
    return "nothing" if value is None else unit.size(value)


def count(seeds: int | None) -> str:
    return f"{seeds} seeds" if seeds is not None else f"more than {power.MOST_SEEDS} seeds"
