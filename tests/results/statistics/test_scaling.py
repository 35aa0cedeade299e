"""Fits over compute: as SciPy fits them, within their bounds, and honest about what few seeds and sizes cannot say."""

import json
from dataclasses import replace

import numpy as np
import pytest
import synthetic
from figure_studies import at_equal_compute, complete, draw_figure
from scipy import stats
from scipy.optimize import curve_fit

from results.statistics import best_sizes, scaling
from results.statistics.best_sizes import Growth, Profile
from results.statistics.scaling import Law, SeedErrors
from results.store.schemas.plans import Arm
from results.tables import layout, study_table

COMPUTE = np.geomspace(1e12, 1e15, 6)


def noisy(a: float, b: float, c: float, spread: float = 0.05, seeds: int = 5) -> SeedErrors:
    """Draw errors of the law a (C / 1e12)^-b + c."""
    errors = a * (COMPUTE / 1e12) ** -b + c
    return SeedErrors(COMPUTE, errors * np.exp(spread * np.random.default_rng(0).standard_normal((seeds, len(errors)))))


@pytest.mark.parametrize(("b", "c"), [(0.3, 0.1), (0.6, 0.02), (0.2, 0.0), (1.5, 0.2)])
def test_a_law_is_the_one_that_scipy_finds(b: float, c: float) -> None:
    measured = noisy(0.4, b, c)
    law = scaling.fit(measured)
    means = measured.means
    bounds = ([0, 0, 0], [np.inf, 4, means.min()])
    found, _ = curve_fit(
        lambda logs, a, b, c: a * np.exp(-b * logs) + c,
        np.log(COMPUTE / 1e12),
        means,
        p0=[0.4, b, means.min() / 2],
        sigma=means,
        bounds=bounds,
        ftol=1e-13,
        xtol=1e-13,
    )
    assert isinstance(law, Law)
    assert [law.a * 1e12**-law.b, law.b, law.c] == pytest.approx(found, rel=1e-4, abs=1e-5)
    slopes = [-stats.linregress(np.log(COMPUTE), np.log(draw)).slope for draw in (means, measured.drawn[3])]
    assert law.slope[0] == pytest.approx(slopes[0])
    assert law.slope[1][0] < slopes[1] < law.slope[1][1]


def test_a_law_without_noise_is_recovered_and_its_band_is_narrow() -> None:
    law = scaling.fit(noisy(0.5, 0.35, 0.08, spread=1e-6))
    assert isinstance(law, Law)
    assert (law.b, law.c, law.misses) == pytest.approx((0.35, 0.08, 0), abs=1e-4)
    assert law.b_interval == pytest.approx((0.35, 0.35), abs=1e-3)
    for error in law.errors(np.array([1e13, 4e15])):
        assert error == pytest.approx(0.5 * np.array([10, 4000]) ** -0.35 + 0.08, rel=1e-3)


def test_what_few_seeds_leave_open_is_left_open() -> None:
    """With c = 0, the interval of c begins at 0, and b is known better without c."""
    law = scaling.fit(noisy(0.4, 0.25, 0.0, spread=0.1))
    assert isinstance(law, Law)
    assert law.c_interval[0] == 0 < law.c_interval[1]
    low, high = law.slope[1]
    assert low < 0.25 < high
    assert high - low < 0.5 * np.diff(law.b_interval)[0]
    assert 0 <= law.failed < scaling.DRAWS


def test_no_law_is_fitted_to_few_sizes_or_seeds_or_to_an_error_that_rises() -> None:
    measured = noisy(0.4, 0.3, 0.1)
    few = "fewer than 3 seeds with 4 sizes"
    assert scaling.fit(SeedErrors(COMPUTE[:3], measured.errors[:, :3])) == few
    assert scaling.fit(SeedErrors(COMPUTE, measured.errors[:2])) == few
    assert scaling.fit(SeedErrors(np.repeat(COMPUTE[:3], 2), measured.errors)) == few
    assert "does not fall" in str(scaling.fit(SeedErrors(COMPUTE, measured.errors[:, ::-1])))


def test_no_law_is_fitted_to_an_error_of_0_in_the_seeds_that_all_sizes_have() -> None:
    """Another seed of that size may have errors, so that its mean is above 0."""
    measured = noisy(0.4, 0.3, 0.1)
    measured.errors[:, -1] = 0.0
    assert scaling.fit(measured) == scaling.NO_LOGARITHM
    profile = Profile([], COMPUTE, measured)
    assert best_sizes.power_of([profile] * 3, measured) == scaling.NO_LOGARITHM


def test_seeds_are_drawn_whole_and_an_interval_of_a_mean_is_its_t_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "DRAWS", 50_000)
    seed = np.array([0.97, 1.01, 1.0, 1.03, 0.99])
    drawn = SeedErrors(COMPUTE[:2], seed[:, None] * [[0.2, 0.4]]).drawn
    assert drawn[:, 1] == pytest.approx(2 * drawn[:, 0])  # what is common to all sizes stays common
    expected = stats.ttest_1samp(0.2 * seed, 0).confidence_interval()
    assert np.quantile(drawn[:, 0], scaling.TAILS) == pytest.approx(list(expected), rel=4e-3)


# -- the best size at each budget -------------------------------------------------------------------------------------


def test_best_sizes_are_those_of_numpys_parabolas_with_fiellers_interval() -> None:
    """An end of the interval is a size at which the slope of the parabola just differs from 0."""
    (profiles,) = best_sizes.profiles_of(at_equal_compute()).values()
    assert [profile.compute for profile in profiles] == pytest.approx([1e12, 2e12, 4e12, 8e12])
    for profile, true in zip(profiles, 40 * 2.0 ** (0.3 * np.arange(4)), strict=True):
        logs = np.log(profile.sizes)
        square, linear, _ = np.polyfit(logs, profile.measured.errors.mean(axis=0), 2)
        assert profile.optimum == pytest.approx(np.exp(-linear / (2 * square)))
        assert profile.optimum == pytest.approx(true, rel=0.05)
        assert profile.interval is not None
        for end in profile.interval:
            slopes = [
                np.polyval(np.polyder(np.polyfit(logs, seed, 2)), np.log(end)) for seed in profile.measured.errors
            ]
            assert stats.ttest_1samp(slopes, 0).pvalue == pytest.approx(0.05)


def test_the_best_size_grows_as_the_power_that_it_was_given() -> None:
    study = at_equal_compute(spread=1e-5)
    (profiles,) = best_sizes.profiles_of(study).values()
    growth = best_sizes.growth_of(profiles, study)
    assert isinstance(growth, Growth)
    assert growth.exponent == pytest.approx(0.3, abs=1e-3)
    assert growth.interval == pytest.approx((0.3, 0.3), abs=3e-3)
    assert growth.sizes(np.array([2e12]))[0] == pytest.approx([40 * 2**0.3], rel=1e-3)
    noisy = at_equal_compute(spread=0.05)
    growth = best_sizes.growth_of(best_sizes.profiles_of(noisy)["width"], noisy)
    assert isinstance(growth, Growth)
    assert (growth.interval, growth.why) == (
        None,
        f"no interval: {growth.failed} of 1000 draws lack a minimum at some budget",
    )
    assert "fewer than 3 budgets" in str(best_sizes.growth_of(profiles[:2], study))


def test_no_best_size_lies_beyond_the_sizes_trained_or_in_noise() -> None:
    (profile, *_) = best_sizes.profiles_of(at_equal_compute()).pop("width")
    falling = SeedErrors(profile.measured.compute, profile.measured.errors[:, :1] * [[1.0, 0.9, 0.8, 0.7, 0.6]])
    at_end = Profile(profile.arms, profile.sizes, falling)
    assert (at_end.optimum, at_end.why) == (None, "the best size is at or beyond 256, the end of those trained")
    noise = np.random.default_rng(1).normal(0, 0.2, profile.measured.errors.shape)
    flat = Profile(profile.arms, profile.sizes, SeedErrors(profile.measured.compute, profile.measured.errors + noise))
    assert flat.interval is None
    assert flat.why


def test_a_parabola_that_is_straight_or_nearly_so_overflows_nothing() -> None:
    logs = np.log([16.0, 32.0, 64.0, 128.0]) - np.log([16.0, 32.0, 64.0, 128.0]).mean()
    compute = np.full(4, 1e12)
    straight = SeedErrors(compute, 0.4 - 0.05 * logs + np.zeros((3, 1)))
    assert Profile([], np.exp(logs), straight).optimum is None
    curvature = 0.001 * (1 + 1.0185 * np.array([[-1.0], [-0.5], [0.0], [0.5], [1.0]]))  # p is just below 0.05
    interval = Profile([], np.exp(logs), SeedErrors(compute, 0.4 - 0.01 * logs + curvature * logs**2)).interval
    assert interval is not None
    assert 1e100 < interval[1] < np.inf
    steep = Growth(np.array([1e12]), np.array([[0.3, 400.0], [0.0, 0.0]]), 0)
    assert np.isfinite(steep.sizes(np.array([1e12]))).all()


def test_budgets_are_equal_within_two_percent_to_either_side() -> None:
    study = at_equal_compute()
    for factors, budgets in (({128: 1.019, 256: 0.981}, [5] * 4), ({128: 1.1, 256: 1.1}, [])):

        def change(arm: Arm, factors: dict[int, float] = factors) -> dict[str, float]:
            return {"train_flops": (arm.train_flops or 0) * factors.get(arm.values["width"], 1.0)}

        changed = replace(study, plan=synthetic.with_arms(study.plan, change))
        assert [len(profile.sizes) for profile in best_sizes.profiles_of(changed).get("width", [])] == budgets


def test_table_and_json_have_the_fits_that_the_figure_shows() -> None:
    table = study_table.table(at_equal_compute())
    assert "| width |           1.0T |   5 |     5 | 39.2 [37.4, 41.1] |" in layout.render(table, "md")
    written = json.loads(layout.render(table, "json"))["scaling"]
    assert [best["why"] for best in written["best"]] == [""] * 4
    assert written["growth"][0]["exponent"] == pytest.approx(0.3, abs=0.05)
    table = study_table.table(complete("families"))
    assert "No law of ResNet: fewer than 3 seeds with 4 sizes." in layout.render(table, "md")
    laws = json.loads(layout.render(table, "json"))["scaling"]["laws"]
    assert [law["sizes"] for law in laws] == [4, 5, 0]
    assert "scaling" not in json.loads(layout.render(study_table.table(complete("shape")), "json"))


def test_a_size_without_error_is_left_out_of_the_fits_by_name() -> None:
    study = complete("families")
    name = study.plan.arms[-1].name
    accuracies = list(study.columns["test_accuracy"])
    for row, arm in enumerate(study.columns["arm"]):
        if arm == name:
            accuracies[row] = 1.0
    perfect = replace(study, columns=study.columns | {"test_accuracy": accuracies})
    note = "left out of the fits over compute, as an error of 0 has no logarithm: "
    assert note + name in study_table.table(perfect).notes
    assert not any(text.startswith(note) for text in study_table.table(study).notes)


@pytest.mark.parametrize("kind", ["isoflop", "families"])
def test_a_tuned_study_has_a_table_and_figure_of_fits(kind: str) -> None:
    """Its baseline is an arm of the grid, and the fits have the arms at their tuned values."""
    study = synthetic.results(synthetic.tuned_pooling(figure=kind))
    assert "pool=gap,lr=tuned" in layout.render(study_table.table(study), "md")
    assert draw_figure(study).axes
