"""The notes on a row of a comparison."""

from results import units
from results.comparison.matching import Pair, Side, are_namesakes, differing_settings
from results.comparison.testing import Test, test_verdict
from results.store.schemas import Metric
from results.tables import layout, notes, sentences
from results.tables.declared_first import changes_text
from results.tables.outcomes import absence_notes

USUAL = "test accuracy"  # the metric that a row's notes do not name


def metric_notes(metric: Metric) -> list[str]:
    """Return a note with the metric's name, or [] for the test accuracy on class labels."""
    return [] if metric.title == USUAL else [metric.title]


def row_notes(pair: Pair, test: Test | None, family: int) -> list[str]:
    """Return notes on absent trials, on the verdict and on an unusual or missing test. family: the number of tests."""
    a, b = pair.a, pair.b
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
    metric, difference = change.a.study.plan.primary_metric, change.difference
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
