"""Coverage of fits over compute: of b, c and the drawn band, and of the best size at a budget and its growth."""

from collections.abc import Iterator

import numpy as np

from benchmarks.calibration.studies import Line, covers, share_of
from results.statistics import scaling
from results.statistics.best_sizes import Growth, Profile, power_of
from results.statistics.scaling import Law, SeedErrors

COMPUTE = np.geomspace(1e12, 6.4e13, 4)  # four sizes, 64 times as much compute
WIDTHS = np.array([16.0, 32.0, 64.0, 128.0, 256.0])
COMMON = 0.3  # share of the variance that all sizes of a seed have in common
WITHIN = (0.93, 0.98)  # of 95%: fits are not linear


def scaling_fits(rng: np.random.Generator, studies: int) -> Iterator[Line]:
    for b, c, n, spread in ((0.5, 0.05, 3, 0.05), (0.5, 0.05, 5, 0.15), (0.3, 0.1, 5, 0.05), (0.25, 0.0, 5, 0.05)):
        truth = 0.4 * (COMPUTE / COMPUTE[0]) ** -b + c
        fits = [scaling.fit(SeedErrors(COMPUTE, drawn(rng, truth, n, spread))) for _ in range(studies)]
        laws = [law for law in fits if isinstance(law, Law)]
        further = COMPUTE[-1:] * scaling.FURTHER
        ahead = 0.4 * (further / COMPUTE[0]) ** -b + c
        bands = [[float(end[0]) for end in law.errors(further)[1:]] for law in laws]
        what = f"error = a C^-{b} + {c}, {n} seeds, spread {spread:.0%}"
        yield share_of(f"{what}: interval of b", (covers(law.b_interval, b) for law in laws), *WITHIN)
        yield share_of(f"{what}: of c", (covers(law.c_interval, c) for law in laws), 0.93, 1.0)
        yield share_of(f"{what}: at {scaling.FURTHER:g} C", (covers(band, ahead) for band in bands), *WITHIN)


def best_sizes(rng: np.random.Generator, studies: int) -> Iterator[Line]:
    """Count for four budgets whether the interval of the first best size, and of their power, covers."""
    budgets = 2.0 ** np.arange(4)
    true = 40 * budgets**0.3
    errors = 0.3 * budgets[:, None] ** -0.25 + 0.03 * np.log(WIDTHS / true[:, None]) ** 2
    for n, spread in ((3, 0.01), (5, 0.01), (5, 0.03)):
        firsts = []
        powers = []
        for _ in range(studies):
            measured = drawn(rng, errors.ravel(), n, spread)
            profiles = []
            for budget, own in zip(budgets, np.split(measured, len(budgets), axis=1), strict=True):
                profiles.append(Profile([], WIDTHS, SeedErrors(np.full(len(WIDTHS), budget * 1e12), own)))
            growth = power_of(profiles, SeedErrors(np.repeat(budgets, len(WIDTHS)), measured))
            firsts.append(covers(profiles[0].interval, true[0]))
            powers.append(isinstance(growth, Growth) and covers(growth.interval, 0.3))
        what = f"parabolas over {len(WIDTHS)} widths, {n} seeds, spread {spread:.0%}"
        yield share_of(f"{what}: best size", firsts, 0.95, 0.95)
        yield share_of(f"{what}: its power of C", powers, *WITHIN)


def drawn(rng: np.random.Generator, truth: np.ndarray, n: int, spread: float) -> np.ndarray:
    """Draw errors (n, sizes) with a relative standard deviation `spread`, partly common to all sizes of a seed."""
    noise = np.sqrt(COMMON) * rng.standard_normal((n, 1)) + np.sqrt(1 - COMMON) * rng.standard_normal((n, len(truth)))
    return np.asarray(truth * np.exp(spread * noise - spread**2 / 2))
