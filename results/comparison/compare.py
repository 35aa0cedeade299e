"""The comparison of two sets of results, A and B, arm by arm.

Arms are matched by their resolved config and metric. Arms without such a match are matched by name and study, and then
shown side by side without a test.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from results.comparison.matching import Pair, are_comparable, differing_settings, matched_pairs, sides
from results.comparison.notes import change_notes, metric_notes, row_notes
from results.comparison.testing import (
    Test,
    adjusted,
    deficit_bound,
    deficit_share_bound,
    pair_test,
    resolvable_differences,
    test_verdict,
    withheld,
)
from results.records import NO_VERDICT, ChangedContrast, ComparedRow, Comparison, Contents, Reached, Row, study_fields
from results.study_results import StudyResults
from results.tables import provenance as mixed


def compare(a: Sequence[StudyResults], b: Sequence[StudyResults], interim: bool = False) -> Comparison:
    """Return the comparison of B with A, with a row for each pair of arms.

    The tests of all arms form one Holm family, in which equal tests count once. The tests of equivalence form a second
    family, and the tests of changed contrasts a third. Tests of unfinished sides belong to these families, but without
    `interim` they give no p values and verdicts. Raises ValueError if a study's claim cannot be parsed.
    """
    pairs = matched_pairs(sides(a, interim), sides(b, interim))
    tests = adjusted([pair_test(pair, lambda side: side.trials) for pair in pairs])
    changes = adjusted([pair_test(pair, lambda side: side.contrast) for pair in pairs])
    family = len({test.trials for test in tests if test and test.p is not None})
    resolvable = resolvable_differences(tests, family)
    first = tests
    if any(pair.late for pair in pairs):
        first = adjusted([pair_test(pair.as_first_declared, lambda side: side.trials) for pair in pairs])
    if not interim:
        tests, changes, first = (withheld(some, pairs) for some in (tests, changes, first))
    rows = []
    for pair, test, size, change, earlier in zip(pairs, tests, resolvable, changes, first, strict=True):
        rows.append(compared_row(pair, test, size, change, earlier, family))
    return Comparison(
        a=contents(a),
        b=contents(b),
        rows=rows,
        provenance=provenance(a, b) | differing_recipes(pairs),
        family=family,
        judged=interim or not any(row.interim for row in rows),
        verdicts=dict(Counter(row.verdict for row in rows if row.verdict)),
    )


def compared_row(
    pair: Pair, test: Test | None, resolvable: float | None, change: Test | None, first: Test | None, family: int
) -> ComparedRow:
    """Return the row of a pair.

    change: the test of B's contrast against A's. first: the test within the margins that were declared first. family:
    the number of distinct tests.
    """
    plan = pair.first.study.plan
    row = ComparedRow(
        **study_fields(plan),
        objective=plan.objective,
        arm=pair.first.arm.name,
        a=arm_results(pair.a.row) if pair.a else None,
        b=arm_results(pair.b.row) if pair.b else None,
        untested=untested_reason(pair, test),
        contrast=changed_contrast(change) if change else None,
        notes=metric_notes(plan.primary_metric) + row_notes(pair, test, family) + change_notes(change),
    )
    if test is None:
        return row
    return replace(
        row,
        delta=test.difference.value,
        delta_ci95=test.difference.interval(),
        delta_ci95_images=test.tested.interval() if test.tested != test.difference else None,
        p=test.p,
        p_holm=test.p_holm,
        verdict=test_verdict(test),
        first_declared=(test_verdict(first) or NO_VERDICT) if first and pair.late else None,
        worse_by_at_most=deficit_bound(test),
        worse_share_at_most=deficit_share_bound(test),
        resolvable_difference=resolvable,
        method=test.method,
        interim=bool(pair.unfinished),
        n_pairs=test.pairs or None,
        identical=test.identical,
    )


def changed_contrast(change: Test) -> ChangedContrast:
    return ChangedContrast(
        a=change.a.row.verdict,
        b=change.b.row.verdict,
        delta=change.difference.value,
        delta_ci95=change.difference.interval(),
        p_holm=change.p_holm,
    )


def untested_reason(pair: Pair, test: Test | None) -> str | None:
    """Return why a row has no verdict, such as "other recipe", or None if the row has a verdict."""
    if pair.a is None or pair.b is None:
        return f"only in {'B' if pair.a is None else 'A'}"
    if test is not None:
        lacks_verdict = test.method != "none" and test.p is None
        unfinished = f"{' and '.join(pair.unfinished)} unfinished" if pair.unfinished else None
        return (test.difference.why or unfinished) if lacks_verdict else None
    a, b = pair.a, pair.b
    if a.study.plan.metric != b.study.plan.metric:
        return "other metric"
    keys = [key for key, _, _ in differing_settings(a, b)]
    if not keys:
        return "other version"
    same_recipe = a.study.plan.recipe == b.study.plan.recipe
    return "other data" if "data" in keys else "other settings" if same_recipe else "other recipe"


def arm_results(row: Row) -> Reached:
    return Reached(row.mean, row.n, row.ci95, row.planned, row.diverged, row.failed, row.missing, row.collapsed)


def contents(studies: Sequence[StudyResults]) -> Contents:
    states: dict[str, str] = {}
    for study in studies:
        states |= zip(study.columns["id"], study.columns["status"], strict=True)
    over = sum(status in ("finished", "diverged") for status in states.values())
    return Contents([study.name for study in studies], len(states), over)


def provenance(a: Sequence[StudyResults], b: Sequence[StudyResults]) -> dict[str, dict[str, list[str]]]:
    """Return field -> values in A and B, for provenance that differs. A plug-in counts only if A and B loaded it."""
    left, right = provenance_values(a), provenance_values(b)
    both = {name: {"a": left[name], "b": right[name]} for name in left if name in right}
    return {name: values for name, values in both.items() if values["a"] != values["b"]}


def provenance_values(studies: Sequence[StudyResults]) -> dict[str, list[str]]:
    values_by_name: dict[str, set[str]] = defaultdict(set)
    for study in studies:
        not_compared = ((name, study.columns[name]) for name in ("revision", "host"))
        for name, values in (*mixed.comparable_columns(study.columns), *not_compared):
            values_by_name[name].update(values)
    return {name: sorted(values - {""}) for name, values in values_by_name.items()}


def differing_recipes(pairs: Sequence[Pair]) -> dict[str, dict[str, list[str]]]:
    """Return name -> values in A and B where matched arms differ. A name is "recipe" or a setting."""
    pairs_by_name: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for a, b in ((pair.a, pair.b) for pair in pairs if pair.a and pair.b):
        pairs_by_name["recipe"].add((a.study.plan.recipe, b.study.plan.recipe))
        for name, *values in [] if are_comparable(a, b) else differing_settings(a, b):
            pairs_by_name[name].add((str(values[0]), str(values[1])))
    sides = {name: [set(side) for side in zip(*values, strict=True)] for name, values in pairs_by_name.items()}
    return {name: {"a": sorted(a), "b": sorted(b)} for name, (a, b) in sides.items() if a != b}
