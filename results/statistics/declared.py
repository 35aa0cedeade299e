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
    contrasts = looks.planned_contrasts(plan)
    arms = {arm.name: arm for arm in plan.arms}
    by_declaration: dict[str, tuple[Declaration, list[str], list[str]]] = {}
    for name, contrast in contrasts.items():
        arm = arms[name]
        first = first_declaration(arm, arms[arm.baseline], contrast, plan)
        if first is not None:
            _, names, changed = by_declaration.setdefault(f"{first.time} {first.plan}", (first, [], []))
            names.append(name)
            changed += changed_fields(first, arm, arms[arm.baseline], plan)
    return [Earlier(first, names, list(dict.fromkeys(changed))) for first, names, changed in by_declaration.values()]


def declared_too_late(plan: Plan) -> list[str]:
    """Return the arms whose contrast was first declared when all of its trials had results already."""
    late = []
    for name, contrast in looks.planned_contrasts(plan).items():
        first = next((one for one in plan.declarations if looks.concerns(one, contrast)), None)
        if first and all(trials <= first.ended_ids for trials in contrast if trials <= first.ids):
            late.append(name)
    return late


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
    early = {}  # each plan's last declaration before any result
    for declaration in plan.declarations:
        if declaration.metric and not looks.has_results(contrasts, declaration):
            early[declaration.plan] = declaration
    if not early or any({*declaration.claims} == {*plan.claims} for declaration in early.values()):
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
            ids_a = arms[a].ids
            ids_b = arms[b].ids
            trials += [frozenset((ids_a[seed], ids_b[seed])) for seed in ids_a if seed in ids_b]
    return not any(
        claim in declaration.claims and not looks.has_results(trials, declaration) for declaration in plan.declarations
    )


def first_declaration(arm: Arm, baseline: Arm, contrast: Sequence[Trials], plan: Plan) -> Declaration | None:
    """Return the first declaration of a contrast, or None if what the plan declares about it was declared beforehand.

    contrast: the trials of each seed of `arm` and `baseline`.
    """
    declarations = list[Declaration]()
    before = dict[str, Declaration]()
    for declaration in plan.declarations:
        if declaration.metric and looks.concerns(declaration, contrast):
            declarations.append(declaration)
            if not looks.has_results(contrast, declaration):
                before[declaration.plan] = declaration  # each plan's last
    if any(not changed_fields(declaration, arm, baseline, plan) for declaration in before.values()):
        return None
    first = next(iter(before.values()), declarations[0] if declarations else None)
    return first if first is not None and changed_fields(first, arm, baseline, plan) else None


def changed_fields(declaration: Declaration, arm: Arm, baseline: Arm, plan: Plan) -> list[str]:
    """Return which of metric, margin, baseline and family a declaration had otherwise for an arm of the plan.

    A family that became larger since is no change, because it corrects more.
    """
    declared_name = arm_declared(declaration, arm)
    declared_baseline = declaration.arms[declared_name].baseline if declared_name is not None else None
    differs = {
        "metric": declaration.metric != plan.metric,
        "margin": declaration.margin != plan.margin,
        "baseline": declared_baseline != arm_declared(declaration, baseline),
        "family": declaration.family > plan.family or declaration.points_family > plan.points_family,
    }
    return [name for name, is_changed in differs.items() if is_changed]


def arm_declared(declaration: Declaration, arm: Arm) -> str | None:
    """Return the name under which a declaration has the trials of an arm, or None if it has none of them."""
    return next((declaration.arm_of[trial.id] for trial in arm.trials if trial.id in declaration.arm_of), None)


def plan_as_declared(plan: Plan, declaration: Declaration) -> Plan:
    """Return the plan with the metric, margin, baselines and families of a declaration.

    Arms that the declaration lacks keep their baselines. Raises ValueError if a baseline is no arm of the plan, or if
    the baselines of a tuned study differ.
    """
    named = {
        arm_declared(declaration, arm): arm.name for arm in plan.arms
    }  # name in the declaration -> name in the plan

    def name_here(declared: str) -> str:
        if declared not in named:
            raise ValueError(f"its baseline {declared} is not in this plan")
        return named[declared]

    arms = []
    for arm in plan.arms:
        declared_name = arm_declared(declaration, arm)
        baseline = arm.baseline if declared_name is None else name_here(declaration.arms[declared_name].baseline)
        if plan.tuned and baseline != arm.baseline:
            raise ValueError("it compares tuned arms with another baseline")
        arms.append(arm.model_copy(update={"baseline": baseline}))
    changed = {
        "metric": declaration.metric,
        "margin": declaration.margin,
        "baseline": name_here(declaration.baseline),
        "family": declaration.family,
        "points_family": declaration.points_family,
        "arms": arms,
    }
    return plan.model_copy(update=changed)
