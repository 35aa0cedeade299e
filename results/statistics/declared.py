"""What was declared first about contrasts, before they had results, and the plan under that declaration.

The metric, margin, baseline and family of a contrast are declared beforehand if some plan declared them all before a
seed of the contrast had results. Of one plan's declarations before that, only its last counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from results.statistics import claims, looks
from results.statistics.looks import Trials
from results.store.schemas import Arm, Declaration, Plan


@dataclass(frozen=True)
class Earlier:
    """The declaration that came first for some arms of a plan that now declares something else.

    changed: the fields that differ: metric, margin, baseline, family.
    """

    declaration: Declaration
    arms: Sequence[str]
    changed: Sequence[str]

    def concerns(self, name: str, plan: Plan) -> bool:
        """Return whether an arm is among the arms, or is a tuned arm with a grid point among them."""
        points = next((entry.points for entry in plan.tuned if entry.name == name), [])
        return not set(self.arms).isdisjoint([name, *points])


def declared_earlier(plan: Plan) -> list[Earlier]:
    """Return the first declarations that differ from what the plan declares now about the same contrasts."""
    contrasts, arms = looks.planned_contrasts(plan), {arm.name: arm for arm in plan.arms}
    found: dict[str, tuple[Declaration, list[str], list[str]]] = {}
    for name, contrast in contrasts.items():
        arm = arms[name]
        first = first_declaration(arm, arms[arm.baseline], contrast, plan)
        if first is not None:
            _, names, changed = found.setdefault(f"{first.time} {first.plan}", (first, [], []))
            names.append(name)
            changed += changed_fields(first, arm, arms[arm.baseline], plan)
    return [Earlier(one, names, list(dict.fromkeys(changed))) for one, names, changed in found.values()]


def declared_too_late(plan: Plan) -> list[str]:
    """Return the arms whose contrast was first declared when all of its trials had results already."""
    found = []
    for name, contrast in looks.planned_contrasts(plan).items():
        known = [one for one in plan.declarations if any(trials <= one.ids for trials in contrast)]
        if known and all(trials <= known[0].ended_ids for trials in contrast if trials <= known[0].ids):
            found.append(name)
    return found


@dataclass(frozen=True)
class EarlierClaims:
    """The declaration that came first for a plan that now claims something else.

    added: claims that were not declared before their arms had results. left_out: claims that the plan lacks now.
    """

    declaration: Declaration
    added: Sequence[str]
    left_out: Sequence[str]


def claims_declared_earlier(plan: Plan) -> EarlierClaims | None:
    """Return the first declaration of other claims, or None if the plan's claims were declared before any result."""
    contrasts = [trials for contrast in looks.planned_contrasts(plan).values() for trials in contrast]
    early = {one.plan: one for one in plan.declarations if one.metric and not looks.has_results(contrasts, one)}
    if not early or any({*one.claims} == {*plan.claims} for one in early.values()):
        return None
    first = next(iter(early.values()))
    added = [claim for claim in plan.claims if claim not in first.claims and was_claimed_late(claim, plan)]
    left_out = [claim for claim in first.claims if claim not in plan.claims]
    return EarlierClaims(first, added, left_out) if added or left_out else None


def was_claimed_late(claim: str, plan: Plan) -> bool:
    """Return whether no plan declared a claim before a seed of its two arms had results."""
    arms = {arm.name: arm for arm in plan.arms}
    arms |= {entry.name: arms[entry.points[0]] for entry in plan.tuned}
    trials = []
    for a, _, b in claims.claims_at_points(claim, plan):
        if a in arms and b in arms:
            own, other = arms[a].ids, arms[b].ids
            trials += [frozenset((own[seed], other[seed])) for seed in own if seed in other]
    return not any(claim in one.claims and not looks.has_results(trials, one) for one in plan.declarations)


def first_declaration(arm: Arm, baseline: Arm, contrast: Sequence[Trials], plan: Plan) -> Declaration | None:
    """Return the first declaration of a contrast, or None if what the plan declares about it was declared beforehand.

    contrast: the trials of each seed of `arm` and `baseline`.
    """
    known = [one for one in plan.declarations if one.metric and any(trials <= one.ids for trials in contrast)]
    before = {one.plan: one for one in known if not looks.has_results(contrast, one)}  # each plan's last
    if any(not changed_fields(one, arm, baseline, plan) for one in before.values()):
        return None
    first = next(iter(before.values()), known[0] if known else None)
    return first if first is not None and changed_fields(first, arm, baseline, plan) else None


def changed_fields(one: Declaration, arm: Arm, baseline: Arm, plan: Plan) -> list[str]:
    """Return which of metric, margin, baseline and family a declaration had otherwise for an arm of the plan.

    A family that became larger since is no change, because it corrects more.
    """
    own = arm_declared(one, arm)
    declared_baseline = one.arms[own].baseline if own is not None else None
    differs = {
        "metric": one.metric != plan.metric,
        "margin": one.margin != plan.margin,
        "baseline": declared_baseline != arm_declared(one, baseline),
        "family": one.family > plan.family or one.points_family > plan.points_family,
    }
    return [name for name, is_changed in differs.items() if is_changed]


def arm_declared(one: Declaration, arm: Arm) -> str | None:
    """Return the name under which a declaration has the trials of an arm, or None if it has none of them."""
    return next((one.arm_of[trial.id] for trial in arm.trials if trial.id in one.arm_of), None)


def plan_as_declared(plan: Plan, one: Declaration) -> Plan:
    """Return the plan with the metric, margin, baselines and families of a declaration.

    Arms that the declaration lacks keep their baselines. Raises ValueError if a baseline is no arm of the plan, or if
    the baselines of a tuned study differ.
    """
    named = {arm_declared(one, arm): arm.name for arm in plan.arms}  # name in the declaration -> name in the plan

    def name_here(declared: str) -> str:
        if declared not in named:
            raise ValueError(f"its baseline {declared} is not in this plan")
        return named[declared]

    arms = []
    for arm in plan.arms:
        own = arm_declared(one, arm)
        baseline = arm.baseline if own is None else name_here(one.arms[own].baseline)
        if plan.tuned and baseline != arm.baseline:
            raise ValueError("it compares tuned arms with another baseline")
        arms.append(arm.model_copy(update={"baseline": baseline}))
    changed = {
        "metric": one.metric,
        "margin": one.margin,
        "baseline": name_here(one.baseline),
        "family": one.family,
        "points_family": one.points_family,
        "arms": arms,
    }
    return plan.model_copy(update=changed)
