"""Sentences about a table, which claim no more than its verdicts."""

import re
from dataclasses import replace

import synthetic
from synthetic import ACCURACIES, make_table, row_of_arm, table_with_divergence

from results.records import Table
from results.tables import sentences
from results.tables.study_table import table
from vitcore.config import Config
from vitcore.settings import HOW_IT_RUNS


def test_answer_names_arms_that_sometimes_diverge_among_others() -> None:
    rows = [
        replace(one, p=0.5, verdict="not-resolved") for one in table_with_divergence(1).rows if one.arm != "position=1d"
    ]
    assert "position=2d (1 of 5 trials diverged), " in sentences.arm_list(rows)
    assert " at ," not in sentences.arm_list(rows)


def unresolved(found: Table) -> Table:
    rows = [row if row.delta is None else replace(row, verdict="not-resolved") for row in found.rows]
    return replace(found, rows=rows)


def test_sentences_say_what_the_verdict_allows() -> None:
    found = make_table(relative=[0.90, 0.99, 0.91, 0.99, 0.90])
    worse, baseline, equivalent, unknown = (sentences.sentence(row, found) for row in found.rows)
    assert re.fullmatch(r"worse than position=1d by 18\.40 points \(95% CI 1\d\.\d\d to \d\d\.\d\d\)", worse)
    assert (baseline, equivalent) == ("the baseline", "equivalent to position=1d within 2.50 points")
    bound = 100 * max(map(abs, row_of_arm(found, "position=relative").delta_ci95))
    assert unknown == f"not resolved against position=1d: any difference is at most {bound:.2f} points (95% CI)"


def test_sentences_are_bounded_by_the_wider_interval_where_it_bounds_something() -> None:
    """Accuracies differ by less than 100 points, so a wider interval bounds nothing; a loss has no limit."""
    found = make_table()
    row = row_of_arm(found, "position=none")
    open_row = replace(row, verdict="not-resolved", delta_ci95=(-1.3707, 1.01))
    nothing = "not resolved against position=1d: too few trials to bound the difference"
    for changed, about, end in (
        (replace(row, verdict="not-resolved", delta_ci95_images=(-0.3, 0.9)), found, "at most 90.00 points (95% CI)"),
        (open_row, found, nothing),
        (replace(open_row, n=4, diverged=1), found, f"{nothing}, and 1 of 5 trials diverged"),
        (replace(open_row, delta_ci95=(-0.9999, 0.9)), found, "is at most 99.99 points (95% CI)"),
        (
            open_row,
            replace(found, plan=found.plan.model_copy(update={"metric": "test_loss"})),
            "any difference is at most 1.3707 (95% CI)",
        ),
    ):
        assert sentences.sentence(changed, about).endswith(end)


def test_the_answer_states_every_arm_and_its_setting() -> None:
    text = sentences.answer(make_table())
    assert text.startswith("On digits, n = 5 seeds per arm: worse than position=1d: position=none by 18.40 points")
    assert text.endswith("All at the baseline's learning rate.")
    assert all(name in text for name in ACCURACIES)
    assert "learning rate" not in sentences.answer(table(synthetic.results(synthetic.pooling())))


def test_a_setting_is_named_by_what_affects_the_results_and_not_by_how_trials_run() -> None:
    known = {*Config.model_fields, *(f"pretrain.{key}" for key in Config.model_fields)}
    plan, named = make_table().plan, set()
    for key in known:
        changed = plan.model_copy(update={"overrides": {key: 1}})
        if sentences.setting_parts(changed)[1:]:
            named.add(key)
    assert named == known - HOW_IT_RUNS - {f"pretrain.{key}" for key in HOW_IT_RUNS}


def test_the_answer_puts_arms_of_one_verdict_together() -> None:
    found = make_table(relative=[0.90, 0.91, 0.92, 0.90, 0.91])
    text = sentences.answer(found)
    worse = [row_of_arm(found, name) for name in ("position=none", "position=relative")]
    told = [f"{row.arm} by {-100 * row.delta:.2f} points (95% CI " for row in worse]
    assert text.index("worse than position=1d: ") < text.index(told[0]) < text.index(told[1])
    assert "; position=2d is equivalent to position=1d within 2.50 points." in text
    found = unresolved(found)
    largest = max(abs(end) for row in found.rows for end in row.delta_ci95 or [])
    bound = f"any difference is at most {100 * largest:.2f} points, by the 95% CI of each"
    listed = "position=none, position=2d, position=relative. "
    assert f"not resolved against position=1d ({bound}): {listed}" in sentences.answer(found)


def test_the_answer_states_points_of_a_curve_once() -> None:
    found = unresolved(table(synthetic.results(synthetic.dataset_scale())))
    text = sentences.answer(found)
    assert "): stem=conv at data_fraction=0.1, data_fraction=0.3 and data_fraction=1.0." in text
    row = next(row for row in found.rows if row.delta is not None)
    looked = replace(row, verdict="better", delta=0.01, delta_ci95=(-0.002, 0.022))
    text = sentences.answer(replace(found, rows=[looked]))
    why = "at an earlier look; over all seeds the difference is +1.00 points (95% CI -0.20 to +2.20)"
    assert f"better than stem=patch: stem=conv at data_fraction=0.1 {why}" in text
