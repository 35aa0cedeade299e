"""The arithmetic of intervals, verdicts and power, against SciPy, statsmodels, closed forms and simulations."""

import itertools
import math

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint
from statsmodels.stats.weightstats import ttost_paired

from results.statistics import intervals
from results.statistics.intervals import Estimate, Ratio
from results.statistics.power import PlannedTest
from results.statistics.verdict import Tie, fisher_p, holm, verdict
from results.tables.notes import verdict_notes

RNG = np.random.default_rng(20111)
TABLES = [(RNG.normal(0.9, 0.02, n), RNG.normal(0.89, 0.05, n)) for n in (2, 3, 5, 10, 40) for _ in range(4)]


def estimate(value: float, se: float) -> Estimate:
    return Estimate(5, value, se, 4)


def tie(difference: Estimate, margin: float, on_these_images: Estimate | None = None) -> Tie:
    ratios = [Ratio.of_mean(one) for one in (difference, on_these_images or difference)]
    return Tie(f"{100 * margin:.2f} points", margin, *ratios)


def test_differences_are_those_of_scipy() -> None:
    for a, b in TABLES:
        longer = np.append(b, [0.9, 0.91])
        for ours, theirs in (
            (intervals.mean(a - b), scipy.stats.ttest_rel(a, b)),
            (intervals.welch(a, longer), scipy.stats.ttest_ind(longer, a, equal_var=False)),
        ):
            assert ours.p_value == pytest.approx(theirs.pvalue, rel=1e-9)
            assert ours.interval() == pytest.approx(tuple(theirs.confidence_interval(0.95)), rel=1e-9)


def test_too_few_or_identical_values_have_no_interval() -> None:
    """Values that agree to rounding have no p, where SciPy would claim p = 0, but a reason."""
    for values in ([], [0.9], [0.9, 0.9, 0.9], [0.7 - 0.6, 0.8 - 0.7, 0.9 - 0.8]):
        found = intervals.mean(np.array(values))
        assert (found.interval(), found.p_value) == (None, None)
        assert found.why in ("n = 0", "n = 1", "all 3 are identical")
    one, same, spread = np.array([0.9]), np.array([0.9, 0.9]), np.array([0.9, 0.8])
    assert intervals.welch(one, spread).p_value is None
    assert intervals.welch(same, same).p_value is None
    assert intervals.welch(np.array([]), spread).value is None
    assert intervals.welch(same, spread).p_value == pytest.approx(scipy.stats.ttest_1samp(spread, 0.9).pvalue)
    assert intervals.overlapping_samples(spread, spread + 0.1, 2).p_value is None
    assert intervals.overlapping_samples(np.full(3, 0.9), np.full(4, 0.9), 2).p_value is None


@pytest.mark.parametrize("values", [[np.inf, -np.inf, 1.0], [1e308, 1.5e308, 1e308], [1e200, -1e200, 0.0]])
def test_means_and_variances_that_overflow_are_numpys(values: list[float]) -> None:
    numbers = np.array(values)
    with np.errstate(all="ignore"):
        mean, variance = numbers.mean(), numbers.var(ddof=1)
    assert intervals.mean(numbers).value == pytest.approx(mean, nan_ok=True)
    assert intervals.variance(numbers) == pytest.approx(variance, nan_ok=True)


def test_holm_counts_missing_contrasts_as_p_of_1() -> None:
    expected = multipletests([0.01, 1, 0.03, 1, 1], method="holm")[1]
    assert holm([0.01, None, 0.03], 5) == [pytest.approx(expected[0]), None, pytest.approx(expected[2])]


def test_equivalence_is_that_of_statsmodels() -> None:
    for (a, b), margin in itertools.product(TABLES, (0.005, 0.02, 0.05, 0.2)):
        p, *_ = ttost_paired(a, b, -margin, margin)
        assert tie(intervals.mean(a - b), margin).p_value == pytest.approx(p)
        assert tie(intervals.mean(a - b), margin).is_within(0.90) == (p < 0.05)


def test_proportion_is_the_exact_interval_of_statsmodels() -> None:
    for k, n in ((0, 5), (1, 5), (3, 5), (5, 5), (2, 40), (0, 1)):
        assert intervals.clopper_pearson(k, n) == pytest.approx(proportion_confint(k, n, method="beta"), abs=1e-12)


def test_a_pooled_spread_of_differences_from_one_baseline_has_fewer_degrees_of_freedom() -> None:
    """Three differences of five seeds have 12 / 1.5 from one baseline, 12 from three; Satterthwaite adds groups."""
    samples = [np.array([1.0, 2.0, 3.0]), np.array([5.0]), np.array([]), np.array([10.0, 14.0])]
    assert intervals.pooled_sd(samples) == (pytest.approx(math.sqrt((2 + 8) / 3)), 3)
    assert intervals.pooled_sd([np.array([1.0])])[1] == 0
    five = np.arange(5.0)
    assert intervals.pooled_df([[five] * 3]) == 8
    assert intervals.pooled_df([[five]] * 3) == 12
    assert intervals.pooled_df([[five] * 2, [five]]) == math.floor(12**2 / (8 * 1.25 + 4))
    assert intervals.pooled_df([[five[:1]], []]) == 0
    assert intervals.pooled_df([[five[:2], *[five[:1]] * 10]]) == 1  # arms with a single seed so far do not count


def test_the_variance_of_shared_images_is_never_negative() -> None:
    """A covariance below 0 is noise, as images can only add to the variance."""
    half = np.array([1.0, -1.0, 1.0, -1.0])
    rows = np.array([[1, -1, np.nan, np.nan], [np.nan, np.nan, 1, -1], -half])
    assert intervals.shared_images_variance(rows, np.array([0, 0, 1])) == 0.0


def crossed_mean(rows: np.ndarray) -> Estimate:
    return intervals.mean(rows.mean(axis=1)).with_extra_variance(intervals.images_variance(rows))


def test_crossed_interval_is_the_two_way_random_model_and_contains_that_of_the_seeds() -> None:
    """SE^2 = s_seed^2/n + s_image^2/m - MSE/(nm); a negative share of the images counts as none."""
    rng = np.random.default_rng(3)
    rows = rng.normal(0, 0.3, (5, 80)) + rng.normal(0, 0.3, 80) + rng.normal(0, 0.1, (5, 1))
    n, m = rows.shape
    grand = rows.mean()
    between_seeds = m * ((rows.mean(axis=1) - grand) ** 2).sum() / (n - 1)
    between_images = n * ((rows.mean(axis=0) - grand) ** 2).sum() / (m - 1)
    within = ((rows - grand) ** 2).sum() - (n - 1) * between_seeds - (m - 1) * between_images
    expected = (between_seeds + between_images - within / ((n - 1) * (m - 1))) / (n * m)
    assert crossed_mean(rows).se == pytest.approx(math.sqrt(expected))
    for scale in (0.0, 0.3):
        rows = rng.normal(0, 0.3, (5, 50)) + rng.normal(0, scale, 50) + rng.normal(0, 0.05, (5, 1))
        outer, inner = crossed_mean(rows).interval(), intervals.mean(rows.mean(axis=1)).interval()
        assert outer[0] <= inner[0] <= inner[1] <= outer[1]


def test_verdict() -> None:
    """A difference is resolved in the metric's direction, else equivalent, else not resolved; divergence limits it."""
    for difference, p_holm, margin, higher, diverged, expected in (
        (estimate(-0.2, 0.01), 0.001, 0.03, True, (0, 0), "worse"),
        (estimate(-0.2, 0.01), 0.001, 0.03, False, (0, 0), "better"),
        (estimate(+0.2, 0.01), 0.001, None, True, (0, 0), "better"),
        (estimate(0.001, 0.005), 0.9, 0.03, True, (0, 0), "equivalent"),
        (estimate(0.001, 0.005), 0.9, None, True, (0, 0), "not-resolved"),
        (estimate(0.02, 0.02), 0.9, 0.03, True, (0, 0), "not-resolved"),
        (estimate(0.2, 0.01), 0.05, None, True, (0, 0), "not-resolved"),
        (Estimate(1, 0.2), None, 0.03, True, (0, 0), None),
        (estimate(-0.2, 0.01), 0.001, 0.03, True, (2, 0), "worse"),
        (estimate(+0.2, 0.01), 0.001, 0.03, True, (2, 0), "not-resolved"),
        (estimate(0.001, 0.005), 0.9, 0.03, True, (1, 0), "not-resolved"),
        (estimate(+0.2, 0.01), 0.001, 0.03, True, (0, 1), "better"),
        (estimate(-0.2, 0.01), 0.001, 0.03, True, (0, 1), "not-resolved"),
        (estimate(-0.2, 0.01), 0.001, 0.03, True, (1, 1), "not-resolved"),
    ):
        p_margin = None if margin is None else tie(difference, margin).p_value
        found = verdict(difference, p_holm, p_margin, higher_is_better=higher, unstable=diverged)
        assert found == expected, (difference, diverged)


def test_a_note_says_why_interval_and_verdict_disagree() -> None:
    """There is a note only where the marginal interval suggests another verdict."""
    for word, difference, over_images, p_holm, expected in (
        ("worse", estimate(-0.2, 0.01), None, 0.001, None),
        ("not-resolved", estimate(0.01, 0.01), None, 0.9, None),
        ("not-resolved", estimate(0.2, 0.06), None, 0.09, "excludes 0"),
        ("not-resolved", estimate(0.2, 0.01), None, 0.001, "diverged"),
        ("equivalent", estimate(0.01, 0.008), None, 0.9, "90% interval"),
        ("better", estimate(0.01, 0.001), None, 0.001, "within the margin of 3.00 points"),
        ("not-resolved", estimate(0.2, 0.01), estimate(0.2, 0.1), 0.2, "on these test images only"),
    ):
        tested = over_images or difference
        notes = verdict_notes(word, difference, tested, p_holm, family=3, tie=tie(tested, 0.03, difference))
        assert [str(expected) in note for note in notes] == ([] if expected is None else [True])


def test_fishers_test_is_that_of_scipy() -> None:
    for k, n, others, of in ((5, 5, 0, 5), (1, 5, 0, 5), (3, 5, 2, 4), (0, 5, 3, 5)):
        expected = scipy.stats.fisher_exact([[k, n - k], [others, of - others]], alternative="greater").pvalue
        assert fisher_p(k, n, others, of) == pytest.approx(expected)
    assert fisher_p(2, 2, 0, 0) == pytest.approx(1.0)


def test_simultaneous_level_is_dunnetts_where_that_applies() -> None:
    """With many seeds, equal spreads and one baseline, the quantile is SciPy's. Equal contrasts count as one."""
    arms, n, rng = 4, 100, np.random.default_rng(4)
    arm = rng.normal(size=(n, arms + 1))
    arm = np.linalg.qr(arm - arm.mean(axis=0))[0]  # uncorrelated: any two contrasts correlate by just 1/2
    level = intervals.simultaneous_level([arm[:, 1:] - arm[:, :1]])
    control, *groups = rng.normal(size=(arms + 1, n))
    theirs = scipy.stats.dunnett(*groups, control=control, rng=np.random.default_rng(0))
    interval = theirs.confidence_interval(0.95)
    pooled = math.sqrt(np.mean([group.var(ddof=1) for group in (control, *groups)]) * 2 / n)
    half = (interval.high - interval.low)[0] / 2
    assert scipy.stats.norm.ppf((1 + level) / 2) == pytest.approx(half / pooled, rel=0.02)
    for contrasts in (1, 4):
        equal = np.repeat(arm[:5, :1], contrasts, axis=1)
        assert intervals.simultaneous_level([equal]) == pytest.approx(0.95, abs=0.01)
        assert intervals.simultaneous_level([equal]) >= 0.95
    assert intervals.simultaneous_level([np.random.default_rng(1).normal(size=(3, 1))]) == 0.95


def test_one_value_far_from_four_or_more_others_is_an_outlier() -> None:
    values = np.array([0.001, 0.002, 0.0, -0.001, -0.1])
    assert intervals.outlier(values) == 4
    assert intervals.outlier(values, usual=0.05) is None
    assert intervals.outlier(values[1:]) is None
    assert intervals.outlier(np.array([0.001, 0.002, 0.0, 0.001, 0.0015, 0.1, -0.1])) is None


def test_partially_overlapping_samples_are_t_new2_of_derrick_et_al_2017() -> None:
    a, b, pairs = RNG.normal(0.9, 0.01, 7), RNG.normal(0.91, 0.02, 5), 4
    s, t = a.std(ddof=1), b.std(ddof=1)
    r = scipy.stats.pearsonr(a[:pairs], b[:pairs]).statistic
    se = math.sqrt(s**2 / 7 + t**2 / 5 - 2 * r * s * t * pairs / (7 * 5))
    gamma = (s**2 / 7 + t**2 / 5) ** 2 / ((s**2 / 7) ** 2 / 6 + (t**2 / 5) ** 2 / 4)
    df = pairs - 1 + (gamma - pairs + 1) / (3 + 1 + 2 * pairs) * (3 + 1)
    found = intervals.overlapping_samples(a, b, pairs)
    assert found.value == pytest.approx(b.mean() - a.mean())
    assert (found.se, found.df) == (pytest.approx(se), pytest.approx(df))


@pytest.mark.parametrize("family", [1, 2, 7, 11, 30])
def test_power_is_scipys_also_where_it_is_nearly_one(family: int) -> None:
    """The power is a number even in the thin tail, where the distribution function gives NaN."""
    for n in (2, 3, 5, 8, 40, 1000):
        critical = scipy.stats.t.isf(0.025 / family, n - 1)
        for sd in (0.05, 0.28, 0.42, 0.58, 0.83, 0.85, 0.86, 1.3, 3.0):
            expected = scipy.stats.nct.sf(critical, n - 1, math.sqrt(n) / sd)
            assert PlannedTest(sd, family).power_to_resolve(n, 1.0) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("difference", "sd", "family"), [(0.01, 0.01, 1), (0.005, 0.01, 3), (0.01, 0.03, 7)])
def test_seeds_to_resolve_are_the_first_that_have_the_power(difference: float, sd: float, family: int) -> None:
    n = 2
    while True:
        critical = scipy.stats.t.isf(0.025 / family, n - 1)
        if scipy.stats.nct.sf(critical, n - 1, difference * math.sqrt(n) / sd) >= 0.8:
            break
        n += 1
    assert PlannedTest(sd, family).seeds_to_resolve(difference) == n


@pytest.mark.parametrize(("n", "margin"), [(2, 8.0), (3, 4.0), (5, 1.6), (10, 1.0), (40, 0.4)])
def test_power_of_equivalence_is_the_integral_over_the_spread(n: int, margin: float) -> None:
    """SciPy integrates P(|D| < margin - t S / sqrt(n), |D| < t' S / sqrt(n)) over the chi-square density of S."""
    t, resolved = scipy.stats.t.ppf(0.95, n - 1), scipy.stats.t.ppf(0.975, n - 1)

    def given(chi2: float) -> float:
        spread = math.sqrt(chi2 / (n - 1))
        room = min(margin * math.sqrt(n) - t * spread, resolved * spread)
        inside = 2 * scipy.stats.norm.cdf(room) - 1 if room > 0 else 0.0
        return float(inside * scipy.stats.chi2.pdf(chi2, n - 1))

    end = (n - 1) * (margin * math.sqrt(n) / t) ** 2
    expected, _ = scipy.integrate.quad(given, 0, end, limit=200)
    assert PlannedTest(1.0).equivalence_power(n, margin) == pytest.approx(expected, abs=2e-3)


def test_seeds_to_show_equivalent_are_the_first_whose_margin_is_small_enough() -> None:
    """A difference of a fiftieth of its spread takes too many seeds."""
    design = PlannedTest(0.01)
    assert design.seeds_to_resolve(0.0002) is design.seeds_to_show_equivalent(0.0002) is None
    n = design.seeds_to_show_equivalent(0.01)
    assert design.smallest_margin(n) <= 0.01 < design.smallest_margin(n - 1)
