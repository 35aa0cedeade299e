"""Repeated looks: p values of contrasts that were tested before with other numbers of seeds.

A look at a contrast is a set of seeds with which a plan declared it, whatever the plan's name, unless no result was
there when the same plan declared other seeds. Every look counts, as a table could have been made at each. The p value
of the i-th look is multiplied by i(i + 1), and the smallest product is the p value of the contrast. As 1 / (i(i + 1))
sums to 1 over any number of looks, this errs in at most 5%. The first look of a study that did not declare that it
grows is left uncorrected, because nobody knows yet whether more follow. With it, all looks err in at most 7.5%.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from results.statistics.contrast import Measured
from results.statistics.intervals import Estimate
from results.store.schemas.declarations import Declaration
from results.store.schemas.plans import Arm, Plan

Trials = frozenset[str]  # the trials of one seed of a contrast, by id
Seeds = frozenset[int]


@dataclass(frozen=True)
class Look:
    """The seeds of a look, one set for a table and two for a comparison, and the factor of its p value.

    is_whole: whether the plans still have all of these seeds. is_last: whether they have no others.
    """

    seeds: tuple[Seeds, ...]
    factor: int
    is_whole: bool
    is_last: bool


def p_value(difference: Measured, plan: Plan) -> float | None:
    """Return the p value of a difference arm - baseline, corrected for its looks, or None if no test is possible."""
    if difference.tested.p_value is None:
        return None
    products = [1.0]
    for look in looks_at(difference, plan):
        at_look = difference.only_seeds(*look.seeds).tested
        products.append(look.factor * p_of_same_sign(at_look, difference.tested))
    return min(products)


def p_of_same_sign(at_look: Estimate, whole: Estimate) -> float:
    """Return the p value at a look, or 1 if the difference over all seeds has the other sign: verdicts are about it."""
    is_same = (at_look.value or 0.0) * (whole.value or 0.0) > 0
    if at_look.p_value is None or not is_same:
        return 1.0
    return at_look.p_value


def looks_at(difference: Measured, plan: Plan) -> list[Look]:
    return whole_looks(looks((trials_by_seed(difference), plan)))


def whole_looks(looks: Iterable[Look]) -> list[Look]:
    return [look for look in looks if look.is_whole]


def last_factor(looks: Iterable[Look]) -> int:
    return next(look.factor for look in looks if look.is_last)


def looks(*sides: tuple[Sequence[Trials], Plan]) -> list[Look]:
    """Return the looks at a contrast by time. The last is the plans' own, unless an earlier look had the same seeds.

    sides: the trials of each seed of the contrast, and its plan; for a comparison, those of A and those of B.
    """
    declared = []
    grows = False
    for contrast, plan in sides:
        declarations = declarations_with_tables(contrast, plan.declarations)
        declared.append(declarations)
        grows = grows or declares_growth(contrast, plan, declarations)
    planned = tuple(frozenset(plan.seeds) for _, plan in sides)
    counted = []
    for number, seeds in enumerate(dict.fromkeys([*seeds_by_time(declared), planned]), 1):
        is_whole = all(map(Seeds.issubset, seeds, planned))
        factor = number * (number + 1) if number > 1 or grows else 1
        counted.append(Look(seeds, factor, is_whole, is_last=seeds == planned))
    return counted


def seeds_by_time(declared: Sequence[Sequence[Declaration]]) -> Iterator[tuple[Seeds, ...]]:
    """Yield the seeds of each side after each declaration, from when all sides have one. declared: those of a side."""
    dated = []
    for side, declarations in enumerate(declared):
        for declaration in declarations:
            dated.append((declaration.time, side, declaration.seed_set))
    now = dict[int, Seeds]()
    for _, side, seeds in sorted(dated, key=lambda entry: entry[0]):
        now[side] = seeds
        if len(now) == len(declared):
            yield tuple(now[side] for side in sorted(now))


def trials_by_seed(measured: Measured) -> list[Trials]:
    return [frozenset(measured.ids_of(seed).split("-")) for seed in measured.seeds]


def declares_growth(contrast: Sequence[Trials], plan: Plan, declared: Sequence[Declaration]) -> bool:
    """Return whether the study, or a declaration of it before a seed had results, says that it grows."""
    if not declared:
        return plan.grows
    return any(declaration.grows and not has_results(contrast, declaration) for declaration in declared)


def declares_race(contrast: Sequence[Trials], plan: Plan) -> bool:
    """Return whether the study, or a declaration of it before a seed had results, says that its arms race."""
    declared = declarations_with_tables(contrast, plan.declarations)
    if not declared:
        return plan.race
    return any(declaration.race and not has_results(contrast, declaration) for declaration in declared)


def concerns(declaration: Declaration, contrast: Sequence[Trials]) -> bool:
    return any(map(declaration.ids.issuperset, contrast))


def has_results(contrast: Sequence[Trials], at: Declaration) -> bool:
    """Return whether all trials of a seed of the contrast had results when `at` was declared."""
    return any(map(at.ended_ids.issuperset, contrast))


def declarations_with_tables(contrast: Sequence[Trials], declarations: Iterable[Declaration]) -> list[Declaration]:
    """Return the declarations of a contrast, without those that the same plan replaced before there was a result."""
    following = dict[str, Declaration]()  # plan -> its next declaration
    counted = []
    for declaration in reversed(list(declarations)):
        if not concerns(declaration, contrast):
            continue
        replaced = following.get(declaration.plan)
        if replaced is None or has_results(contrast, replaced):
            counted.append(declaration)
        following[declaration.plan] = declaration
    return counted[::-1]


def planned_factor(plan: Plan, new: Declaration) -> int:
    """Return the largest factor of any p value in a table after a plan's declaration `new`, made now."""
    later = plan.model_copy(update={"seeds": new.seeds, "declarations": [*plan.declarations, new]})
    largest = 1
    for contrast in planned_contrasts(plan).values():
        largest = max(largest, last_factor(looks((contrast, later))))
    return largest


def planned_contrasts(plan: Plan) -> dict[str, list[Trials]]:
    """Return arm -> the trials of each seed of its contrast, for all arms but baselines."""
    arms = plan.arms_by_name
    contrasts = {}
    for name, arm in arms.items():
        if name != arm.baseline:
            contrasts[name] = paired_trials(arm, arms[arm.baseline])
    return contrasts


def paired_trials(a: Arm, b: Arm) -> list[Trials]:
    ids = a.ids
    others = b.ids
    return [frozenset((ids[seed], others[seed])) for seed in ids if seed in others]
