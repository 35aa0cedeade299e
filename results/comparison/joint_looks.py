"""Repeated looks at a comparison: the seeds that both sides had whenever a comparison could have been made."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from results.statistics import looks
from results.statistics.contrast import Sample
from results.store.schemas import Declaration, Plan

State = tuple[frozenset[int], frozenset[int]]  # the seeds of A and of B


@dataclass(frozen=True)
class JointLook:
    """The seeds of A and B at a look, and the factor of its p value.

    is_whole: whether both plans still have all of these seeds. is_last: whether they have no others.
    """

    a: frozenset[int]
    b: frozenset[int]
    factor: int
    is_whole: bool
    is_last: bool


def joint_looks(a: Sample, plan_a: Plan, b: Sample, plan_b: Plan) -> list[JointLook]:
    """Return the looks at the difference between a sample of A and one of B, by time.

    Every change of a side's seeds is a look, once both sides have seeds that `looks.declared_at` counts. The factors
    are those of one study, which declared growth if a side did.
    """
    declared_a, declared_b = looks.declared_at(a, plan_a), looks.declared_at(b, plan_b)
    whole = frozenset(plan_a.seeds), frozenset(plan_b.seeds)
    states = dict.fromkeys([*states_by_time(declared_a, declared_b), whole])
    grows_a = looks.declares_growth(looks.trials_by_seed(a), declared_a, plan_a)
    grows_b = looks.declares_growth(looks.trials_by_seed(b), declared_b, plan_b)
    return [
        JointLook(
            *state,
            factor=looks.factor_of_look(number, grows_a or grows_b),
            is_whole=state[0] <= whole[0] and state[1] <= whole[1],
            is_last=state == whole,
        )
        for number, state in enumerate(states, 1)
    ]


def states_by_time(declared_a: Sequence[Declaration], declared_b: Sequence[Declaration]) -> Iterator[State]:
    """Yield the seeds of both sides after each declaration, from when both sides have one."""
    sides = [(one.time, 0, frozenset(one.seeds)) for one in declared_a]
    sides += [(one.time, 1, frozenset(one.seeds)) for one in declared_b]
    now: list[frozenset[int]] = [frozenset(), frozenset()]
    for _, side, seeds in sorted(sides, key=lambda one: one[0]):
        now[side] = seeds
        if all(now):
            yield now[0], now[1]


def look_note(counted: Sequence[JointLook]) -> str:
    """Return a note on the looks and how p is corrected for them, or "" for a single look."""
    if len(counted) < 2:
        return ""
    texts = [
        f"{look.factor} x that of {len(look.a)} and {len(look.b)} seeds{'' if look.is_whole else ', gone'}"
        for look in counted
    ]
    return (
        f"comparisons were made, or could have been, with {len(counted)} numbers of seeds of A and B: "
        f"p is the smallest of {', '.join(texts)}"
    )
