"""The comparison of two sets of results, A and B, arm by arm.

Arms are matched by their resolved config and metric. Arms without such a match are matched by name and study, and then
shown side by side without a test.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from results import units
from results.comparison.matching import (
    ArmPair,
    Side,
    are_comparable,
    are_namesakes,
    differing_settings,
    matched_pairs,
    sides,
)
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
from results.store.schemas import Metric
from results.study_results import StudyResults
from results.tables import layout, notes, sentences
from results.tables import provenance as mixed
from results.tables.declared_first import changes_text
from results.tables.outcomes import absence_notes

USUAL = "test accuracy"  # the metric that a row's notes do not name


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
    pair: ArmPair, test: Test | None, resolvable: float | None, change: Test | None, first: Test | None, family: int
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


def untested_reason(pair: ArmPair, test: Test | None) -> str | None:
    """Return why a row has no verdict, such as "other recipe", or None if the row has a verdict."""
    if pair.a is None or pair.b is None:
        return f"only in {'B' if pair.a is None else 'A'}"
    if test is not None:
        lacks_verdict = test.method != "none" and test.p is None
        unfinished = f"{' and '.join(pair.unfinished)} unfinished" if pair.unfinished else None
        return (test.difference.why or unfinished) if lacks_verdict else None
    a = pair.a
    b = pair.b
    if a.study.plan.metric != b.study.plan.metric:
        return "other metric"
    keys = [key for key, _, _ in differing_settings(a, b)]
    if not keys:
        return "other version"
    if "data" in keys:
        return "other data"
    return "other settings" if a.study.plan.recipe == b.study.plan.recipe else "other recipe"


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
    left = provenance_values(a)
    right = provenance_values(b)
    both = {name: {"a": left[name], "b": right[name]} for name in left if name in right}
    return {name: values for name, values in both.items() if values["a"] != values["b"]}


def provenance_values(studies: Sequence[StudyResults]) -> dict[str, list[str]]:
    values_by_name: dict[str, set[str]] = defaultdict(set)
    for study in studies:
        not_compared = ((name, study.columns[name]) for name in ("revision", "host"))
        for name, values in (*mixed.comparable_columns(study.columns), *not_compared):
            values_by_name[name].update(values)
    return {name: sorted(values - {""}) for name, values in values_by_name.items()}


def differing_recipes(pairs: Sequence[ArmPair]) -> dict[str, dict[str, list[str]]]:
    """Return name -> values in A and B where matched arms differ. A name is "recipe" or a setting."""
    in_a = defaultdict[str, set[str]](set)
    in_b = defaultdict[str, set[str]](set)
    for pair in pairs:
        if pair.a is None or pair.b is None:
            continue
        values = [("recipe", pair.a.study.plan.recipe, pair.b.study.plan.recipe)]
        if not are_comparable(pair.a, pair.b):
            values += differing_settings(pair.a, pair.b)
        for name, left, right in values:
            in_a[name].add(str(left))
            in_b[name].add(str(right))
    return {name: {"a": sorted(in_a[name]), "b": sorted(in_b[name])} for name in in_a if in_a[name] != in_b[name]}


# -- notes on a row ----------------------------------------------------------------------------------------------------


def metric_notes(metric: Metric) -> list[str]:
    """Return a note with the metric's name, or [] for the test accuracy on class labels."""
    return [] if metric.title == USUAL else [metric.title]


def row_notes(pair: ArmPair, test: Test | None, family: int) -> list[str]:
    """Return notes on absent trials, on the verdict and on an unusual or missing test. family: the number of tests."""
    a = pair.a
    b = pair.b
    if a is None or b is None:
        return [f"only in {'B' if a is None else 'A'}"]
    notes_found = [
        f"{name}: {note}"
        for name, side in (("A", a), ("B", b))
        for note in absence_notes(side.outcomes, side.study.plan)
    ]
    if not are_namesakes(a, b):
        other, name = (b, "B") if pair.first is a else (a, "A")
        notes_found.append(f"{other.arm.name} of {other.study.name} in {name}")
    for name, side in pair.late:
        assert side.late is not None
        notes_found.append(f"{name}: {changes_text(side.late, side.study.plan)}")
    if test is None:
        return [*notes_found, f"shown side by side, not compared: {settings_difference(a, b)}"]
    limits = notes.verdict_notes(
        test_verdict(test),
        test.difference,
        test.tested,
        test.p_holm,
        family=family,
        looks=len(test.looks),
        tie=test.tie,
        unstable=(b.row.unstable, a.row.unstable),
    )
    return notes_found + test_notes(test) + limits


def test_notes(test: Test) -> list[str]:
    texts = []
    if test.method == "none" and test.a.trials.seeds != test.b.trials.seeds:
        texts.append("identical where both sides have the trial; one side has more seeds")
    if test.method != "none" and test.difference.se is None:
        texts.append(notes.no_interval_note(test.difference, test.p))
    elif test.method == "welch":
        texts.append("not paired (Welch): fewer than 2 common seeds, or another split")
    elif test.method == "overlapping":
        texts.append(f"{test.pairs} pairs, the other seeds on one side only: partially overlapping samples (Derrick)")
    if test.identical and test.method != "none":
        texts.append(f"{sentences.seeds_text(test.identical)}: the same weights on both sides, left out of the test")
    if test.method != "none" and len(test.looks) > 1:
        texts.append(notes.correction_text(test.looks, "comparisons of A and B"))
    if test.repeated:
        texts.append(f"{sentences.seeds_text(test.repeated)}: the same trial gave another number")
    return texts


def change_notes(change: Test | None) -> list[str]:
    """Return a note if the verdict on an arm against its baseline differs between A and B, else [].

    A changed verdict alone proves nothing, so the note gives the size and p value of the contrast's change.
    """
    if change is None or change.a.row.verdict == change.b.row.verdict:
        return []
    before = sentences.verdict_text(change.a.row.verdict, "without verdict")
    after = sentences.verdict_text(change.b.row.verdict, "without verdict")
    metric = change.a.study.plan.primary_metric
    difference = change.difference
    if difference.value is None or change.p_holm is None:
        tested = "that its difference from the baseline moved is not tested"
    else:
        by = layout.difference_text(difference.value, difference.interval(), metric)
        p = units.probability_text(change.p_holm)
        moved = f"its difference from the baseline moved by {by}{metric.unit_of_difference}"
        tested = f"{moved}, p {p if p[0] == '<' else f'= {p}'}"
    return [f"against its baseline {before} in A, {after} in B: descriptive; {tested}"]


def settings_difference(a: Side, b: Side) -> str:
    """Return text that names the arms' metrics if they differ, or else at most three differing settings."""
    if a.study.plan.metric != b.study.plan.metric:
        return f"metric {a.study.plan.metric} and {b.study.plan.metric}"
    differences = [f"{key} {left} and {right}" for key, left, right in differing_settings(a, b)]
    more = f", and {len(differences) - 3} more" if len(differences) > 3 else ""
    return ", ".join(differences[:3]) + more or "another version of a part"
