"""FLOPs on an axis: a unit that keeps numbers short, and readable ticks."""

import numpy as np
from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, MaxNLocator, NullFormatter, NullLocator

UNITS = {1e15: "PFLOPs", 1e12: "TFLOPs", 1e9: "GFLOPs", 1e6: "MFLOPs", 1e3: "kFLOPs", 1.0: "FLOPs"}


def flops_unit(most: float) -> tuple[float, str]:
    """Return (size, name) of the largest unit not above `most`."""
    return next(((size, name) for size, name in UNITS.items() if most >= size), (1.0, "FLOPs"))


def log_ticks(axis: Axis, low: float, high: float) -> None:
    """Put ticks at 1, 2 and 5 times powers of ten, or closer in a narrow range."""
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())
    decades = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    for steps in ([1, 2, 5], [1, 1.5, 2, 3, 4, 5, 6, 8]):
        ticks = [t for t in sorted(d * s for d in decades for s in steps) if low <= t <= high]
        if len(ticks) >= 3:
            axis.set_major_locator(FixedLocator(ticks))
            axis.set_major_formatter(lambda tick, _: f"{tick:,g}")
            return
    axis.set_major_locator(MaxNLocator(4))
    axis.set_major_formatter(lambda tick, _: f"{tick:,g}")
