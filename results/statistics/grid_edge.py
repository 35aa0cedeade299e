"""The ends of a tuned grid: whether a best value lies at one, and which value to add there."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from results.statistics import inference

Number = int | float


@dataclass(frozen=True)
class End:
    """The first or last value of a tuned setting, where some seed chooses it.

    inside: the best of the values between the ends; beyond: the next value in the grid's own steps, if there is one;
    resolved: whether the end is better than `inside` by more than noise.
    """

    setting: str
    value: Number
    inside: Number
    beyond: Number | None
    resolved: bool

    @property
    def told(self) -> str:
        add = "" if self.beyond is None else f"; add {self.setting} {self.beyond} to the grid"
        if self.resolved:
            return f"its best {self.setting} lies at the edge of the grid, {self.value}: no verdict{add}"
        return f"{self.setting} {self.value}, at the edge of the grid, ties with {self.inside}{add}"


def ends(chosen: Collection[int | None], reached: np.ndarray, tune: Mapping[str, Sequence[Number]]) -> Iterator[End]:
    """The ends of the grid `tune` among the chosen points; reached: (n, points), NaN for a hole."""
    whole = reached[~np.isnan(reached).any(axis=1)]
    shape = [len(values) for values in tune.values()]
    points = [point for point in chosen if point is not None]
    for (setting, values), places in zip(tune.items(), np.indices(shape).reshape(len(shape), -1), strict=True):
        last = len(values) - 1
        for place in sorted({0, last} & {int(places[point]) for point in points}):
            end, inside = (best(whole, among) for among in (places == place, (places > 0) & (places < last)))
            yield End(
                setting,
                values[place],
                values[places[inside]],
                beyond(values if place else values[::-1]),
                exceeds(whole[:, end], whole[:, inside]),
            )


def best(reached: np.ndarray, among: np.ndarray) -> int:
    """The point with the best mean among some (points,)."""
    return int(np.argmax(np.where(among, reached.mean(axis=0), -np.inf)))


def exceeds(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether the mean of a is above that of b, by the 95% interval of their paired differences (n,)."""
    difference = inference.mean(a - b)
    low = interval[0] if (interval := difference.interval()) else difference.value
    return low is not None and low > 0


def beyond(values: Sequence[Number]) -> Number | None:
    """What follows the last of some numbers: by its ratio to the one before, or their distance; None below zero."""
    before, last = values[-2:]
    found = last * last / before if min(values) > 0 else last + (last - before)
    if min(values) >= 0 > found:
        return None
    return round(found) if isinstance(last, int) else float(f"{found:.2g}")
