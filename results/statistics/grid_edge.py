"""Best values at the edge of a tuned grid, and the next value to add to the grid."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from results.statistics import inference

Number = int | float


@dataclass(frozen=True)
class GridEnd:
    """An end of a tuned setting's grid that at least one seed chose.

    inner: the best value between the two ends. beyond: the value that continues the grid past this end, None if there
    is none. resolved: whether `value` beats `inner` by the 95% interval of paired validation scores.
    """

    setting: str
    value: Number
    inner: Number
    beyond: Number | None
    resolved: bool

    @property
    def note(self) -> str:
        """The footnote: whether this end beats or ties with the best inner value, and the value to add to the grid."""
        add = "" if self.beyond is None else f"; add {self.setting} {self.beyond} to the grid"
        if self.resolved:
            return f"its best {self.setting} lies at the edge of the grid, {self.value}: no verdict{add}"
        return f"{self.setting} {self.value}, at the edge of the grid, ties with {self.inner}{add}"


def chosen_ends(
    chosen: Collection[int | None], reached: np.ndarray, tune: Mapping[str, Sequence[Number]]
) -> Iterator[GridEnd]:
    """Yield the ends of the grid that at least one seed chose.

    chosen: the index of each seed's grid point, or None. reached: validation scores (n, points), NaN where a trial is
    missing. tune: the grid's values by setting.
    """
    whole = reached[~np.isnan(reached).any(axis=1)]
    shape = [len(values) for values in tune.values()]
    points = [point for point in chosen if point is not None]
    for (setting, values), places in zip(tune.items(), np.indices(shape).reshape(len(shape), -1), strict=True):
        last = len(values) - 1
        for place in sorted({0, last} & {int(places[point]) for point in points}):
            means = whole.mean(axis=0)  # (points,)
            end, inner = (
                int(np.argmax(np.where(among, means, -np.inf)))
                for among in (places == place, (places > 0) & (places < last))
            )
            yield GridEnd(
                setting,
                values[place],
                values[places[inner]],
                next_value(values if place else values[::-1]),
                exceeds(whole[:, end], whole[:, inner]),
            )


def exceeds(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether mean(a) > mean(b) by the 95% interval of the paired differences of a (n,) and b (n,).

    Without an interval, the sign of the mean difference decides.
    """
    difference = inference.mean(a - b)
    low = interval[0] if (interval := difference.interval()) else difference.value
    return low is not None and low > 0


def next_value(values: Sequence[Number]) -> Number | None:
    """Return the value that continues a sequence, rounded to a whole number or to 2 significant digits.

    It continues by the last ratio if all values are positive, and otherwise by the last step. Returns None if a
    sequence without negative values would fall below zero.
    """
    before, last = values[-2:]
    found = last * last / before if min(values) > 0 else last + (last - before)
    if min(values) >= 0 > found:
        return None
    return round(found) if isinstance(last, int) else float(f"{found:.2g}")
