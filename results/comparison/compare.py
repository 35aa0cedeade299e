"""The comparison of two sets of results, A and B, arm by arm.

Arms are matched by their resolved config and metric. Arms without such a match are matched by name and study, and then
shown side by side without a test.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from results import units
from results.comparison import testing
from results.comparison.records import ChangedContrast, ComparedRow, Comparison, Contents
from results.comparison.testing import ArmPair, Side, Test
from results.records import NO_VERDICT, Reached, Row, study_fields
from results.store.schemas.metrics import Metric
from results.study_results import StudyResults, rows_of
from results.tables import cell_text, notes, sentences, trial_notes
from results.tables.declared_first import changes_text

USUAL = "test accuracy"  # the metric that a row's notes do not name


def compare(a: Sequence[StudyResults], b: Sequence[StudyResults], interim: bool = False) -> Comparison:
    """Return the comparison of B with A, with a row for each pair of arms.

    The tests of all arms form one Holm family, in which equal tests count once; those of equivalence and of changed
    contrasts are families too. Without `interim`, unfinished sides count but get no p values and verdicts. Raises
    ValueError if a study's claim cannot be parsed.
    """
    pairs = testing.matched_pairs(testing.sides(a, interim), testing.sides(b, interim))
    tests = testing.adjusted(list(map(testing.arm_test, pairs)))
    changes = testing.adjusted(list(map(testing.contrast_test, pairs)))
    family = len({test.key for test in tests if test and test.p is not None})
    resolvable = testing.resolvable_differences(tests, family)
    first = tests
    if any(pair.late for pair in pairs):
        first = testing.adjusted([testing.arm_test(pair.as_first_declared) for pair in pairs])
    if not interim:
        tests, changes, first = (testing.withheld(some, pairs) for some in (tests, changes, first))
    rows = []
    for pair, test, size, change, earlier in zip(pairs, tests, resolvable, changes, first, strict=True):
        row = compared_row(pair, test, change, family)
        if test:
            row = with_test(row, test, size)
        if earlier and pair.late:
            row = replace(row, first_declared=earlier.verdict or NO_VERDICT)
        rows.append(row)
    return Comparison(
        a=contents(a),
        b=contents(b),
        rows=rows,
        provenance=provenance(a, b) | differing_recipes(pairs),
        family=family,
        judged=interim or not any(row.interim for row in rows),
        verdicts=dict(Counter(row.verdict for row in rows if row.verdict)),
    )


def compared_row(pair: ArmPair, test: Test | None, change: Test | None, family: int) -> ComparedRow:
    """Return the row of a pair without the numbers of its test. change: the test of B's contrast against A's."""
    plan = pair.first.plan
    reached = {name: arm_results(side.row) for name, side in pair.sides.items()}
    return ComparedRow(
        **study_fields(plan),
        objective=plan.objective,
        arm=pair.first.arm.name,
        a=reached.get("A"),
        b=reached.get("B"),
        untested=untested_reason(pair, test),
        contrast=changed_contrast(change),
        notes=[*metric_notes(plan.primary_metric), *row_notes(pair, test, family), *change_notes(change)],
    )


def with_test(row: ComparedRow, test: Test, resolvable: float | None) -> ComparedRow:
    difference = test.difference
    return replace(
        row,
        delta=difference.estimate.value,
        delta_ci95=difference.estimate.interval(),
        delta_ci95_images=difference.images_interval,
        p=test.p,
        p_holm=test.p_holm,
        verdict=test.verdict,
        worse_by_at_most=test.deficit_bound,
        worse_share_at_most=test.deficit_share_bound,
        resolvable_difference=resolvable,
        method=difference.method,
        interim=test.a.interim or test.b.interim,
        n_pairs=difference.pairs or None,
        identical=test.identical,
    )


def changed_contrast(change: Test | None) -> ChangedContrast | None:
    if change is None:
        return None
    difference = change.difference.estimate
    return ChangedContrast(
        a=change.a.row.verdict,
        b=change.b.row.verdict,
        delta=difference.value,
        delta_ci95=difference.interval(),
        p_holm=change.p_holm,
    )


def untested_reason(pair: ArmPair, test: Test | None) -> str | None:
    """Return why a row has no verdict, such as "other recipe", or None if the row has a verdict."""
    if test is not None:
        if test.is_of_identical or test.p is not None:
            return None
        if test.difference.estimate.why or not pair.unfinished:
            return test.difference.estimate.why or None
        return f"{' and '.join(pair.unfinished)} unfinished"
    if pair.a is None or pair.b is None:
        return f"only in {', '.join(pair.sides)}"
    a = pair.a.plan
    b = pair.b.plan
    if a.metric != b.metric:
        return "other metric"
    keys = [key for key, _, _ in testing.differing_settings(pair.a, pair.b)]
    if not keys:
        return "other version"
    if "data" in keys:
        return "other data"
    return "other settings" if a.recipe == b.recipe else "other recipe"


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
    right = provenance_values(b)
    common = {name: values for name, values in provenance_values(a).items() if name in right}
    return differing_values(common, right)


def provenance_values(studies: Sequence[StudyResults]) -> dict[str, set[str]]:
    """Return field -> known values in the trials of all studies, fields for which trials are not compared included."""
    values_by_field = defaultdict[str, set[str]](set)
    for study in studies:
        for trial in rows_of(study.columns):
            for name, text in trial_notes.comparable_fields(trial).items():
                values_by_field[name].add(text)
        for name in ("revision", "host"):
            values_by_field[name].update(study.columns[name])
    for values in values_by_field.values():
        values.discard("")
    return values_by_field


def differing_values(a: Mapping[str, set[str]], b: Mapping[str, set[str]]) -> dict[str, dict[str, list[str]]]:
    """Return name -> values in A and B, for the names of A whose values differ."""
    differing = {}
    for name, values in a.items():
        others = b.get(name, set())
        if values != others:
            differing[name] = {"a": sorted(values), "b": sorted(others)}
    return differing


def differing_recipes(pairs: Sequence[ArmPair]) -> dict[str, dict[str, list[str]]]:
    """Return name -> values in A and B where matched arms differ. A name is "recipe" or a setting."""
    in_a = defaultdict[str, set[str]](set)
    in_b = defaultdict[str, set[str]](set)
    for pair in pairs:
        if pair.a is None or pair.b is None:
            continue
        values = [("recipe", pair.a.plan.recipe, pair.b.plan.recipe)]
        if not pair.comparable:
            values += testing.differing_settings(pair.a, pair.b)
        for name, left, right in values:
            in_a[name].add(str(left))
            in_b[name].add(str(right))
    return differing_values(in_a, in_b)


# -- notes on a row ----------------------------------------------------------------------------------------------------


def metric_notes(metric: Metric) -> list[str]:
    return [] if metric.title == USUAL else [metric.title]


def row_notes(pair: ArmPair, test: Test | None, family: int) -> list[str]:
    """Return notes on absent trials, on the verdict and on an unusual or missing test. family: the number of tests."""
    a = pair.a
    b = pair.b
    if a is None or b is None:
        return [f"only in {', '.join(pair.sides)}"]
    texts = []
    for name, side in pair.sides.items():
        texts += [f"{name}: {note}" for note in trial_notes.absence_notes(side.arm, side.plan)]
    for name, side in pair.sides.items():
        if side is not pair.first and not a.is_namesake(b):
            texts.append(f"{side.arm.name} of {side.plan.name} in {name}")
    for name, late in pair.late.items():
        texts.append(f"{name}: {changes_text(late, pair.sides[name].plan)}")
    if test is None:
        return [*texts, f"shown side by side, not compared: {settings_difference(a, b)}"]
    limits = notes.verdict_notes(
        test.verdict,
        test.difference.estimate,
        test.difference.tested,
        test.p_holm,
        family=family,
        looks=len(test.looks),
        tie=test.tie,
        unstable=test.unstable,
    )
    return texts + test_notes(test) + limits


def test_notes(test: Test) -> list[str]:
    difference = test.difference
    texts = []
    if test.is_of_identical:
        if test.a.arm.sample.seeds != test.b.arm.sample.seeds:
            texts.append("identical where both sides have the trial; one side has more seeds")
    else:
        if difference.estimate.se is None:
            texts.append(notes.no_interval_note(difference.estimate, test.p))
        elif not (test.a.plan.is_paired and test.b.plan.is_paired):
            texts.append("not paired (Welch), as declared")
        elif difference.method == "welch":
            texts.append("not paired (Welch): fewer than 2 common seeds, or another split")
        elif difference.method == "overlapping":
            others = "the other seeds on one side only"
            texts.append(f"{difference.pairs} pairs, {others}: partially overlapping samples (Derrick)")
        if test.identical:
            seeds = units.seeds_text(test.identical)
            texts.append(f"{seeds}: the same weights on both sides, left out of the test")
        if len(test.looks) > 1:
            texts.append(notes.correction_text(test.looks, "comparisons of A and B"))
    if test.repeated:
        texts.append(f"{units.seeds_text(test.repeated)}: the same trial gave another number")
    return texts


def change_notes(change: Test | None) -> list[str]:
    """Return a note if the verdict on an arm against its baseline differs between A and B: alone it proves nothing."""
    if change is None or change.a.row.verdict == change.b.row.verdict:
        return []
    before = sentences.verdict_text(change.a.row.verdict, "without verdict")
    after = sentences.verdict_text(change.b.row.verdict, "without verdict")
    metric = change.metric
    difference = change.difference.estimate
    tested = "that its difference from the baseline moved is not tested"
    if difference.value is not None and change.p_holm is not None:
        by = cell_text.difference_text(difference.value, difference.interval(), metric)
        p = units.probability_text(change.p_holm)
        moved = f"its difference from the baseline moved by {by}{metric.unit_of_difference}"
        tested = f"{moved}, p {p if p[0] == '<' else f'= {p}'}"
    return [f"against its baseline {before} in A, {after} in B: descriptive; {tested}"]


def settings_difference(a: Side, b: Side) -> str:
    if a.plan.metric != b.plan.metric:
        return f"metric {a.plan.metric} and {b.plan.metric}"
    differences = [f"{key} {left} and {right}" for key, left, right in testing.differing_settings(a, b)]
    more = f", and {len(differences) - 3} more" if len(differences) > 3 else ""
    return ", ".join(differences[:3]) + more or "another version of a part"
