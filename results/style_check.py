"""A check of a style file for names that occur in no study, because typos would otherwise go unnoticed."""

import itertools
from collections.abc import Iterator, Sequence

from commonfloor.messages import spelling_hint
from results.records import claimed_arms
from results.store.eval_files import computes_metric
from results.store.schemas import Arm, Plan, Tuned
from results.style import Style

MANY = 12  # maximum number of names that are listed


def unknown_names_warning(style: Style, plans: Sequence[Plan]) -> str:
    """Return a warning about the style's names that are in no plan, or "". Settings that no plan varies are skipped."""
    names = list(dict.fromkeys(itertools.chain.from_iterable(map(known_names, plans))))
    varied = {name.partition("=")[0] for name in names if "=" in name}
    measured = {name for plan in plans for name in plan.evals}
    unvaried = {key for plan in plans for arm in plan.arms for key in arm.config} - varied
    return "; ".join(
        f"{section}: {name} is in no study here{alternatives(name, names)}"
        for section in ("labels", "colours", "order")
        for name in getattr(style, section)
        if name not in names
        and not any(computes_metric(eval_name, name) for eval_name in measured)
        and not {part.partition("=")[0] for part in name.split(",")} <= unvaried
    )


def known_names(plan: Plan) -> Iterator[str]:
    names = [arm for claim in plan.claims for arm in claimed_arms(claim)]
    names += [arm.model_family for arm in plan.arms]
    arms: list[Arm | Tuned] = [*plan.arms, *plan.tuned]
    for arm in arms:
        names += [arm.name, arm.change]
        names += [f"{key}={value}" for key, value in arm.values.items()]
    for name in names:
        yield from (name, *name.split(","))
    yield from (*plan.factors, *plan.curves, *plan.trial_metrics, plan.metric, "baseline", "all")


def alternatives(name: str, known: Sequence[str]) -> str:
    """Return a suggestion, in parentheses, for a name in a style file that no study has.

    It lists the known values of KEY if `name` is KEY or KEY=VALUE, else a similar name, or else the first known names.
    """
    values_of_key = [
        other
        for other in known
        if other.partition("=")[0] == name.partition("=")[0] and "=" in other and "," not in other
    ]
    if values_of_key and "," not in name:
        return f" (there: {', '.join(values_of_key[:MANY])})"
    listed = [other for other in known if other]
    return spelling_hint(name, listed) or f" (there: {', '.join(listed[:MANY])}{', ...' if len(listed) > MANY else ''})"
