"""What was declared first about contrasts, before they had results, and the plan under that declaration.

The metric, margin, baseline and family of a contrast are declared beforehand if the last declaration of some plan
before a seed of the contrast had results declared them all.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from results.statistics import claims, looks
from results.statistics.looks import Trials
from results.store.schemas.declarations import Declaration
from results.store.schemas.plans import Arm, Plan


@dataclass(frozen=True)
class Earlier:
    """The declaration that came first for some arms of a plan that now declares something else.

    changed: the fields that differ: metric, metrics, margin, baseline, family, pairing.
    """

    declaration: Declaration
    arms: list[str]
    changed: list[str]

    def concerns(self, name: str, plan: Plan) -> bool:
        """Return whether an arm is among the arms, or is a tuned arm with a grid point among them."""
        names = {name}
        for entry in plan.tuned:
            if entry.name == name:
                names.update(entry.points)
        return not names.isdisjoint(self.arms)


def declared_earlier(plan: Plan) -> list[Earlier]:
    """Return the first declarations that differ from what the plan declares now about the same contrasts."""
    arms = plan.arms_by_name
    by_declaration: dict[str, Earlier] = {}
    for name, contrast in looks.planned_contrasts(plan).items():
        arm = arms[name]
        baseline = arms[arm.baseline]
        first = first_declaration(arm, baseline, contrast, plan)
        if first is None:
            continue
        earlier = by_declaration.setdefault(f"{first.time} {first.plan}", Earlier(first, [], []))
        earlier.arms.append(name)
        for field in changed_fields(first, arm, baseline, plan):
            if field not in earlier.changed:
                earlier.changed.append(field)
    return list(by_declaration.values())


def declared_too_late(plan: Plan) -> list[str]:
    """Return the arms whose contrast was first declared when all of its trials had results already."""
    late = []
    for name, contrast in looks.planned_contrasts(plan).items():
        for first in plan.declarations:
            declared = [trials for trials in contrast if trials <= first.ids]
            if declared:
                if all(map(first.ended_ids.issuperset, declared)):
                    late.append(name)
                break
    return late


@dataclass(frozen=True)
class EarlierClaims:
    """The declaration that came first for a plan that now claims something else.

    added: claims that were declared only after their arms had results. left_out: claims that the plan lacks now.
    """

    declaration: Declaration
    added: Sequence[str]
    left_out: Sequence[str]


def claims_declared_earlier(plan: Plan) -> EarlierClaims | None:
    """Return the first declaration of other claims, or None if the plan's claims were declared before any result."""
    contrasts = list(itertools.chain.from_iterable(looks.planned_contrasts(plan).values()))
    early = {}  # each plan's last declaration before any result
    for declaration in plan.declarations:
        if declaration.metric and not looks.has_results(contrasts, declaration):
            early[declaration.plan] = declaration
    if not early or any(set(declaration.claims) == set(plan.claims) for declaration in early.values()):
        return None
    first = next(iter(early.values()))
    added = [claim for claim in plan.claims if claim not in first.claims and was_claimed_late(claim, plan)]
    left_out = [claim for claim in first.claims if claim not in plan.claims]
    if not added and not left_out:
        return None
    return EarlierClaims(first, added, left_out)


def was_claimed_late(claim: str, plan: Plan) -> bool:
    arms = plan.arms_by_name
    for entry in plan.tuned:
        arms[entry.name] = arms[entry.points[0]]
    trials = []
    for a, _, b in claims.claims_at_points(claim, plan):
        if a in arms and b in arms:
            trials += looks.paired_trials(arms[a], arms[b])
    for declaration in plan.declarations:
        if claim in declaration.claims and not looks.has_results(trials, declaration):
            return False
    return True


def first_declaration(arm: Arm, baseline: Arm, contrast: Sequence[Trials], plan: Plan) -> Declaration | None:
    """Return the first declaration of a contrast, or None if the plan declares it as it did beforehand."""
    declarations = list[Declaration]()
    before = dict[str, Declaration]()
    for declaration in plan.declarations:
        if declaration.metric and looks.concerns(declaration, contrast):
            declarations.append(declaration)
            if not looks.has_results(contrast, declaration):
                before[declaration.plan] = declaration  # each plan's last
    for declaration in before.values():
        if not changed_fields(declaration, arm, baseline, plan):
            return None
    first = next(iter([*before.values(), *declarations]), None)
    if first is None or not changed_fields(first, arm, baseline, plan):
        return None
    return first


def changed_fields(declaration: Declaration, arm: Arm, baseline: Arm, plan: Plan) -> list[str]:
    """Return which of the fields of `Earlier.changed` a declaration had otherwise for an arm of the plan.

    A family that became larger since is no change, because it corrects more.
    """
    name = arm_declared(declaration, arm)
    changed = []
    if declaration.metric != plan.metric:
        changed.append("metric")
    elif set(declaration.secondary_metrics) != set(plan.secondary_metrics):
        changed.append("metrics")
    if declaration.margin != plan.margin:
        changed.append("margin")
    declared_baseline = None
    if name is not None:
        declared_baseline = declaration.arms[name].baseline
    if declared_baseline != arm_declared(declaration, baseline):
        changed.append("baseline")
    if declaration.family > plan.family or declaration.points_family > plan.points_family:
        changed.append("family")
    if declaration.is_paired != plan.is_paired:
        changed.append("pairing")
    return changed


def arm_declared(declaration: Declaration, arm: Arm) -> str | None:
    """Return the name under which a declaration has the trials of an arm, or None if it has none of them."""
    return next((declaration.arm_of[trial.id] for trial in arm.trials if trial.id in declaration.arm_of), None)


def plan_as_declared(plan: Plan, declaration: Declaration) -> Plan:
    """Return the plan with the metrics, margin, baselines, families and pairing of a declaration.

    Raises ValueError if a baseline is no arm of the plan, or if the baselines of a tuned study differ.
    """
    named = {arm_declared(declaration, arm): arm.name for arm in plan.arms}  # declared name -> name in the plan

    def name_here(declared: str) -> str:
        if declared not in named:
            raise ValueError(f"its baseline {declared} is not in this plan")
        return named[declared]

    arms = []
    for arm in plan.arms:
        baseline = arm.baseline
        declared_name = arm_declared(declaration, arm)
        if declared_name is not None:
            baseline = name_here(declaration.arms[declared_name].baseline)
        if plan.tuned and baseline != arm.baseline:
            raise ValueError("it compares tuned arms with another baseline")
        arms.append(arm.model_copy(update={"baseline": baseline}))
    changed = {
        "metric": declaration.metric,
        "secondary_metrics": declaration.secondary_metrics,
        "margin": declaration.margin,
        "baseline": name_here(declaration.baseline),
        "family": declaration.family,
        "points_family": declaration.points_family,
        "arms": arms,
        "paired": declaration.paired,
    }
    return plan.model_copy(update=changed)
