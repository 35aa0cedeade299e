"""Alpha spending: how much of a level looks may use up by the time that a share of all planned seeds is there.

The function is Lan and DeMets's (1983) of O'Brien-Fleming type: the probability that Brownian motion crosses a line by
that time. It holds for any number of looks at any time. It is applied to p values, so small samples keep their t tests.
"""

import math

from scipy import special


def spent(level: float, share: float) -> float:
    """Return how much of a one-sided level may be spent by the time that a share (0, 1] of the seeds is there."""
    return float(2 * special.ndtr(special.ndtri(level / 2) / math.sqrt(share)))


def sequential_p(p: float, share: float) -> float:
    """Return the smallest level at which a one-sided p value is significant at a look with a share of the seeds.

    That is where p = `spent` / 2: half of the paths that cross a line by some time are beyond it then (reflection).
    The smallest result of all looks is a p value itself, whenever they stop.
    """
    return float(2 * special.ndtr(min(0.0, special.ndtri(p) * math.sqrt(share))))
