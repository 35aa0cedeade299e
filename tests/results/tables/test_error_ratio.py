"""Beside a difference: the ratio of errors with its interval, and where the variance comes from."""

import json

import numpy as np
import pytest
import scipy.stats
import synthetic
from synthetic import row_of_arm

from results.tables import layout
from results.tables.study_table import table

ARMS = synthetic.ACCURACIES


def test_the_ratio_of_errors_has_the_interval_that_paired_tests_do_not_reject() -> None:
    plan = synthetic.position()
    found = table(synthetic.results(plan, synthetic.from_accuracies(plan, ARMS)))
    base = 1 - np.array(ARMS["position=1d"])
    for name in ("position=none", "position=2d", "position=relative"):
        row, arm = row_of_arm(found, name), 1 - np.array(ARMS[name])
        assert row.error_ratio == pytest.approx(arm.mean() / base.mean())
        for end in row.error_ratio_ci95:
            assert scipy.stats.ttest_1samp(arm - end * base, 0).pvalue == pytest.approx(0.05)
    assert row_of_arm(found, "position=1d").error_ratio is None


def test_the_interval_of_a_ratio_covers_the_truth() -> None:
    """Arms err in 3% and 2% of 400 images per seed, with an effect that seeds share: the ratio is 1.5."""
    rng = np.random.default_rng(2)
    plan = synthetic.make_plan("s", {"stem": ["a", "b"]}, {"stem": "a"}, split=synthetic.DIGITS)
    covered = []
    for _ in range(300):
        hard = rng.normal(1, 0.15, 5).clip(0.2)
        wrong = [rng.binomial(400, share * hard) / 400 for share in (0.02, 0.03)]
        values = {f"stem={name}": (1 - errors).tolist() for name, errors in zip("ab", wrong, strict=True)}
        row = table(synthetic.results(plan, synthetic.from_accuracies(plan, values))).rows[1]
        low, high = row.error_ratio_ci95 or (0.0, np.inf)
        covered.append(low <= 1.5 <= high)
    assert np.mean(covered) == pytest.approx(0.95, abs=0.04)


def test_an_unclear_baseline_error_and_other_metrics_have_no_interval_or_ratio() -> None:
    rare = {"position=1d": [1.0, 1.0, 0.99, 1.0, 1.0], "position=2d": [0.99, 1.0, 0.98, 1.0, 0.97]}
    plan = synthetic.position()
    row = row_of_arm(table(synthetic.results(plan, synthetic.from_accuracies(plan, ARMS | rare))), "position=2d")
    assert row.error_ratio == pytest.approx(6)
    assert row.error_ratio_ci95 is None
    losses = synthetic.position(metric="test_loss", margin=None)
    assert row_of_arm(table(synthetic.results(losses)), "position=2d").error_ratio is None


def test_the_ratio_is_in_json_csv_and_html_and_elsewhere_where_asked() -> None:
    plan = synthetic.position()
    found = table(synthetic.results(plan, synthetic.from_accuracies(plan, ARMS)))
    row = json.loads(layout.render(found, "json"))["rows"][0]
    assert row["error_ratio"] == pytest.approx(0.24 / 0.056)
    assert len(row["error_ratio_ci95"]) == 2
    assert "error_ratio_ci95_low" in layout.render(found, "csv")
    assert "error ratio" in layout.render(found, "html")
    assert "error ratio" not in layout.render(found, "md")
    text = layout.render(found, "md", ["arm", "error_ratio"])
    assert "| 4.29 [" in text
    assert "Error ratio: the arm's error / the baseline's with its 95% interval (Fieller)" in text


def test_a_line_gives_the_shares_of_variance_of_seeds_and_images() -> None:
    """They are those of SE^2 = s^2/n + the variance of the images; folds have no separate share."""
    found = table(synthetic.results(synthetic.position(split={"kind": "official", "images": 500})))
    shares = []
    for row in found.rows:
        if row.delta is not None:
            inner, outer = (np.ptp(ends) for ends in (row.delta_ci95, row.delta_ci95_images))
            assert row.images_share == pytest.approx(1 - (inner / outer) ** 2)
            shares.append(row.images_share)
    share = float(np.median(shares))
    line = f"Variance of a difference (the median): {1 - share:.0%} from 5 seeds, {share:.0%} from the choice of 500"
    assert line in layout.render(found, "md")
    assert "Variance of a difference" not in layout.render(table(synthetic.results(synthetic.position())), "md")
