"""Repeated looks: p values of contrasts that were tested before with other numbers of seeds.

A look at a contrast is a set of seeds with which a plan declared it, whatever the plan's name, unless no result was
there when the same plan declared other seeds. Every look counts, as a table could have been made at each. The p value
of the i-th look is multiplied by i(i + 1), and the smallest product is the p value of the contrast. As 1 / (i(i + 1))
sums to 1 over any number of looks, this errs in at most 5%. The first look of a study that did not declare that it
grows is left uncorrected, because nobody knows yet whether more follow. With it, all looks err in at most 7.5%.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from results.statistics.contrast import Sample
from results.store.schemas import Declaration, Plan

Trials = frozenset[str]  # the trials of one seed of a contrast, by id


@dataclass(frozen=True)
class Look:
    """The seeds of a look, the factor of its p value, and whether the plan still has all of its seeds."""

    seeds: frozenset[int]
    factor: int
    is_whole: bool


def p_value(pairs: Sample, plan: Plan) -> float | None:
    """Return the p value of a contrast, corrected for its looks, or None if no test is possible.

    pairs: the per-seed differences arm - baseline. A look without a test counts as p = 1, and so does a look whose
    difference has the opposite sign: the verdict is about the difference over all seeds.
    """
    whole = pairs.tested
    if whole.p_value is None:
        return None

    def p_at(seeds: frozenset[int]) -> float | None:
        some = pairs.only_seeds(seeds).tested
        return some.p_value if (some.value or 0.0) * (whole.value or 0.0) > 0 else None

    return smallest_p(looks_at(pairs, plan), p_at)


def smallest_p(looks: Sequence[Look], p_at: Callable[[frozenset[int]], float | None]) -> float:
    """Return the smallest product of a look's p value and its factor, at most 1.

    p_at: returns the p value over the given seeds, or None, which counts as 1.
    """
    smallest = 1.0
    for look in looks:
        p = p_at(look.seeds) if look.is_whole else None
        if p is not None:
            smallest = min(smallest, look.factor * p)
    return smallest


def looks_at(pairs: Sample, plan: Plan) -> list[Look]:
    """Return the looks at a sample of differences."""
    return looks(trials_by_seed(pairs), plan)


def declared_at(sample: Sample, plan: Plan) -> list[Declaration]:
    """Return the declarations that are looks at a sample, by time."""
    return declarations_with_tables(trials_by_seed(sample), plan.declarations)


def trials_by_seed(sample: Sample) -> list[Trials]:
    """Return the trials behind each value of a sample."""
    return [frozenset(sample.ids[seed].split("-")) for seed in sample.seeds]


def looks(contrast: Sequence[Trials], plan: Plan) -> list[Look]:
    """Return the looks at a contrast by time. The last is the plan's, unless an earlier look had the same seeds.

    contrast: the trials of each seed.
    """
    declared = declarations_with_tables(contrast, plan.declarations)
    sets = dict.fromkeys([*(one.seed_set for one in declared), frozenset(plan.seeds)])
    grows = declares_growth(contrast, declared, plan)
    return [
        Look(seeds, factor_of_look(number, grows), seeds.issubset(plan.seeds)) for number, seeds in enumerate(sets, 1)
    ]


def declares_growth(contrast: Sequence[Trials], declared: Sequence[Declaration], plan: Plan) -> bool:
    """Return whether a declaration says, before a seed of the contrast had results, that its study grows.

    Without declarations, the plan decides.
    """
    early = [one for one in declared if not has_results(contrast, one)]
    return any(one.grows for one in early) if declared else plan.grows


def has_results(contrast: Sequence[Trials], at: Declaration) -> bool:
    """Return whether all trials of a seed of the contrast had results when `at` was declared."""
    return any(trials <= at.ended_ids for trials in contrast)


def factor_of_look(number: int, grows: bool) -> int:
    """Return the factor of the p value of a look. number: 1 for the first. grows: whether growth was declared."""
    return 1 if number == 1 and not grows else number * (number + 1)


def declarations_with_tables(contrast: Sequence[Trials], declarations: Iterable[Declaration]) -> list[Declaration]:
    """Return the declarations of a contrast, without those that the same plan replaced before there was a result."""
    following = dict[str, Declaration]()  # plan -> its next declaration
    found = []
    for one in reversed([one for one in declarations if any(trials <= one.ids for trials in contrast)]):
        replaced = following.get(one.plan)
        if replaced is None or has_results(contrast, replaced):
            found.append(one)
        following[one.plan] = one
    return found[::-1]


def planned_factor(plan: Plan, new: Declaration) -> int:
    """Return the largest factor of any contrast's p value in a table that a plan would make with its seeds.

    new: the plan's declaration, made now.
    """
    factors = [1]
    for contrast in planned_contrasts(plan).values():
        taken = declarations_with_tables(contrast, [*plan.declarations, new])[:-1]
        earlier = list(dict.fromkeys(one.seed_set for one in taken))
        seeds = frozenset(new.seeds)
        number = earlier.index(seeds) + 1 if seeds in earlier else len(earlier) + 1
        factors.append(factor_of_look(number, declares_growth(contrast, [*taken, new], plan)))
    return max(factors)


def planned_contrasts(plan: Plan) -> dict[str, list[Trials]]:
    """Return arm -> the trials of each seed of its contrast, for all arms but baselines."""
    arms = {arm.name: arm.ids for arm in plan.arms}
    found = {}
    for arm in plan.arms:
        if arm.name != arm.baseline:
            own, other = arms[arm.name], arms[arm.baseline]
            found[arm.name] = [frozenset((own[seed], other[seed])) for seed in own if seed in other]
    return found


def look_notes(plan: Plan) -> list[str]:
    """Return a note on the looks and how p is corrected for them, or [] if each contrast has had one look."""
    found = [looks(contrast, plan) for contrast in planned_contrasts(plan).values()]
    most = max(found, key=len, default=[])
    if len(most) < 2:
        return []
    counted = ", ".join(f"{look.factor} x that of {seeds_text(look)}" for look in most)
    rate = "2.7 to 3.6%, at most 5%" if most[0].factor > 1 else "5.1 to 6.1%, at most 7.5%"
    fewer = "" if min(map(len, found)) == len(most) else " (fewer looks for arms that were added later)"
    gone = " ('gone' seeds count as p = 1)" if not all(look.is_whole for look in most) else ""
    return [
        f"tables were made, or could have been, with {len(most)} numbers of seeds{fewer}: p is the smallest of "
        f"{counted}{gone}; a verdict at any of them errs in {rate} of null studies (simulated)"
    ]


def seeds_text(look: Look) -> str:
    return f"{len(look.seeds)} seeds{'' if look.is_whole else ', gone'}"
