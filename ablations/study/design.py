"""A design: a study on a recipe with command-line overrides, and the arms that follow from them.

A point of the curves has one value for each curve. Every change from the baseline gives one arm at each point.
"""

from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from ablations.study.arms import Arm, Change, arm_name, points
from ablations.study.layers import Layers
from ablations.study.naming import PlanIdentity, assignments
from ablations.study.stages import FINETUNE, Values
from ablations.study.study import Axis
from ablations.trainables.trainable import trial_id
from commonfloor.messages import joined_names, unknown_key
from results.store.schemas import Metric
from results.store.schemas.metrics import metric_by_name


class Design(Layers):
    """A study on a recipe with command-line overrides, and its arms in order.

    Properties raise ValueError if the recipe lacks what the study takes, or if the baseline's config is invalid.
    """

    @property
    def name(self) -> str:
        return self.identity.name

    @property
    def identity(self) -> PlanIdentity:
        return PlanIdentity(self.study.name, self.recipe.name, self.overrides)

    @cached_property
    def factors(self) -> dict[str, list[Any]]:
        """The factors: name -> values. A factor that appears only in crosses has the values of these crosses."""
        found = {name: self.axis(name, values) for name, values in self.study.factors.items()}
        for cross in self.crosses:
            for name, values in cross.items():
                if name not in self.study.factors:
                    before = found.get(name, [])
                    found[name] = [*before, *(value for value in values if value not in before)]
        return found

    @cached_property
    def crosses(self) -> list[dict[str, list[Any]]]:
        """The crosses, each as factor -> values. They include the baseline's values, which interactions need."""
        found: list[dict[str, list[Any]]] = []
        for cross in self.study.crosses:
            found.append({})
            for name, values in cross.items():
                known, own = self.axis(name, values), self.baseline_value(name)
                found[-1][name] = known if own in known else [own, *known]
        return found

    @cached_property
    def curves(self) -> dict[str, list[Any]]:
        """The curves and the tuned settings: name -> values. The tuned settings come last."""
        axes = self.study.curves | self.study.tune
        return {name: self.axis(name, values) for name, values in axes.items()}

    @cached_property
    def tune(self) -> dict[str, list[Any]]:
        """The tuned settings: name -> values.

        Raises ValueError unless each has at least 3 numbers in ascending order. An arm whose best value is the first or
        the last gets no verdict.
        """
        found = {name: self.curves[name] for name in self.study.tune}
        for name, values in found.items():
            if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values):
                raise ValueError(f"tune: {name}={joined_names(values)}: numbers")
            if len(values) < 3 or sorted(values) != values:
                raise ValueError(
                    f"tune: {name}={joined_names(values)}: at least 3 values, ascending: the best must lie inside"
                )
        return found

    def axis(self, name: str, values: Axis) -> list[Any]:
        """Return the values of an axis that the study writes as `all`, `axis` or a list, which may contain `axis`.

        Raises ValueError if the recipe lacks the axis, or if a setting without variants has `all`.
        """
        if values == "all":
            return self.trainable.values(name)
        found: list[Any] = []
        for value in ["axis"] if values == "axis" else values:
            found += self.axis_values(name) if value == "axis" else [value]
        return found

    def axis_values(self, name: str) -> list[Any]:
        """Return the recipe's values for a setting.

        `pretrain.lr` takes the axis pretrain.lr, or else lr. In a study that fine-tunes, an arm's `lr` takes the axis
        finetune.lr, or else lr. Raises ValueError if the recipe has neither.
        """
        names = [name, name.partition(".")[2]]
        if name.partition(".")[0] not in self.study.stages:
            names = [f"{FINETUNE}.{name}", name] if self.fine_tunes else [name]
        known = [one for one in names if one in self.recipe.axes]
        if not known:
            raise ValueError(
                f"study '{self.study.name}' takes the values of {name} from the recipe, and recipe "
                f"'{self.recipe.name}' has no axis {name} (it has: {joined_names(self.recipe.axes) or 'none'}): "
                f"add to it `axes: {{{name}: [VALUE, ...]}}`"
            )
        return self.recipe.axes[known[0]]

    @property
    def metric(self) -> str:
        """The study's metric. If its name ends in @axis or @patch-axis, this is the first of its `sized_names`."""
        return self.sized_names(self.study.metric or self.trainable.default_metric)[0]

    @cached_property
    def primary_metric(self) -> Metric:
        """The study's metric as the trials declare it."""
        declared = {one.name: one for one in self.trainable.metrics([arm.config for arm in self.arms])}
        return declared.get(self.metric) or metric_by_name(self.metric)

    @property
    def margin(self) -> float | str | None:
        """The study's equivalence margin or, if it sets none, the recipe's. None if neither applies."""
        return self.study.margin if self.study.margin is not None else self.applicable_recipe.margin

    @property
    def evals(self) -> list[str]:
        return [one for name in self.study.evals for one in self.sized_names(name)]

    def sized_names(self, name: str) -> list[str]:
        """Return the names that a metric or eval stands for: `name` alone unless it ends in @axis or @patch-axis.

        Raises ValueError if the recipe lacks the axis or has no other value.
        """
        try:
            return self.trainable.eval_names(name, self.reference, self.axis_values)
        except ValueError as error:
            if str(error).startswith("axis "):
                raise ValueError(f"recipe '{self.recipe.name}': {error}") from None
            raise

    @cached_property
    def baseline(self) -> Values:
        return {name: self.baseline_value(name) for name in self.factors}

    @property
    def baseline_name(self) -> str:
        """The baseline's name: its values of the study's `factors`, else of the crossed factors, else `baseline`."""
        named = self.study.factors or self.factors
        return assignments({name: self.baseline[name] for name in named}) or "baseline"

    @cached_property
    def arms(self) -> list[Arm]:
        """All arms that are not excluded. Raises ValueError if an arm is not valid, or if two arms share trials.

        Also raises OSError or ModuleNotFoundError if files or packages are missing, and the errors of `remaining_arms`.
        """
        arms, found = [self.arm(change, point) for change, point in self.remaining_arms.values()], dict[str, Arm]()
        for arm in arms:
            try:
                trial = trial_id(self.trainable, arm.config)
            except (ModuleNotFoundError, OSError):
                raise
            except Exception as error:  # a user's part may raise anything while its options are checked
                reason = error if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
                raise ValueError(f"study '{self.study.name}', arm {arm.name}: {reason}") from error
            if (first := found.setdefault(trial, arm)) is not arm:
                raise ValueError(f"study '{self.study.name}': {same_trial(first, arm)}")
        return arms

    @cached_property
    def changes(self) -> list[Change]:
        """The changes of all arms in order. A baseline that is not listed comes first.

        Raises ValueError if two arms have the same name, or if a name in `with` matches no arm.
        """
        found = self.factor_changes()
        for name, settings in self.named_arms.items():
            if name in found:
                raise ValueError(f"study '{self.study.name}': two arms are called {name}")
            own = {key: value for key, value in settings.items() if key in self.factors}
            found[name] = Change(name, self.baseline | own, settings, named=True)
        for name, settings in self.study.co_changes.items():
            meant = set(name.split(","))
            unnamed = [change for change in found.values() if not change.named]
            matching = [change for change in unnamed if meant <= {*assignments(change.settings).split(",")}]
            if not matching:
                raise ValueError(f"study '{self.study.name}': with: no arm changes {name}")
            found |= {
                one.name: replace(one, co_changes=self.trainable.merge(one.co_changes, settings)) for one in matching
            }
        return list(found.values())

    def factor_changes(self) -> dict[str, Change]:
        """Return the changes of factors and crosses: name -> change. Equal changes are returned once."""
        cells = [{name: value} for name in self.study.factors for value in self.factors[name]]
        cells += [cell for cross in self.crosses for cell in points(cross)]
        varied = [{name: value for name, value in cell.items() if value != self.baseline[name]} for cell in cells]
        changes = map(self.factor_change, varied if {} in varied else [{}, *varied])
        return {change.name: change for change in changes}

    def factor_change(self, values: Values) -> Change:
        """Return the change that sets factors to `values`.

        Its name lists factor=value in the study's order, or is the baseline's name if `values` is empty.
        """
        ordered = {name: values[name] for name in self.factors if name in values}
        return Change(assignments(ordered) or self.baseline_name, self.baseline | ordered, ordered)

    @cached_property
    def remaining_arms(self) -> dict[str, tuple[Change, Values]]:
        """The arms that are not excluded: name -> (change, point).

        Raises ValueError if an exclusion matches nothing, if no arm remains, or if the baseline or tuned points of a
        remaining arm are removed.
        """
        pairs = {
            arm_name(change.name, point): (change, point) for change in self.changes for point in points(self.curves)
        }
        gone = set().union(*(self.excluded_names(entry, pairs) for entry in self.study.exclude))
        kept = {name: pair for name, pair in pairs.items() if name not in gone}
        if not kept:
            raise ValueError(f"study '{self.study.name}': exclude: leaves no arm")
        for name, (change, point) in kept.items():
            if (baseline := arm_name(self.baseline_name, point)) not in kept:
                raise ValueError(f"study '{self.study.name}': exclude: {baseline} is the baseline of {name}")
            if any(arm_name(change.name, point | tuned) not in kept for tuned in points(self.tune)):
                raise ValueError(
                    f"study '{self.study.name}': exclude: leaves {change.name} a part of the tuned grid: "
                    f"{joined_names(self.tune)} is chosen from the same values for every arm"
                )
        return kept

    def excluded_names(self, entry: Values, pairs: Mapping[str, tuple[Change, Values]]) -> set[str]:
        """Return the names of the arms that an entry of `exclude` matches.

        pairs: arm name -> change and point. Raises ValueError if the entry has an unknown key or matches no arm.
        """
        known = sorted({*self.factors, *self.curves, "arm"})
        for key in entry.keys() - known:
            message = unknown_key(key, known, f": known are {joined_names(known)}")
            raise ValueError(f"study '{self.study.name}': exclude: {message}")
        met = {
            name
            for name, (change, point) in pairs.items()
            if entry and entry.items() <= ({"arm": change.name} | change.values | point).items()
        }
        if not met:
            raise ValueError(f"study '{self.study.name}': exclude: no arm has {assignments(entry) or 'nothing'}")
        return met

    def arm(self, change: Change, point: Values) -> Arm:
        """Return the arm with a change at a point of the curves.

        The steps meet the study's budget unless the change or point sets them. Raises ValueError if no steps meet it, a
        setting is invalid, or stages form a cycle.
        """
        name, baseline = arm_name(change.name, point), arm_name(self.baseline_name, point)
        written = self.trainable.merge(self.base, point, change.settings, change.co_changes)
        settings, parent = self.starting_stages.split_parent(written)
        sets_length = {"steps", "epochs"} & {*change.declared_settings, *point}
        if not sets_length:
            try:
                settings = self.trainable.meet_budget(self.study.budget, self.reference, settings)
            except Exception as error:  # a user's part may raise anything while its FLOPs are counted
                raise ValueError(f"study '{self.study.name}', arm {name}: {error}") from error
        return Arm(name, baseline, change.values | point, settings, change, self.trainable, parent)

    @cached_property
    def main_baseline(self) -> str:
        """The baseline's name at the point with the values of `reference`, or else at the first remaining point."""
        there = [point for change, point in self.remaining_arms.values() if change.name == self.baseline_name]
        point = {name: self.baseline_value(name) for name in self.curves}
        equal = [one for one in there if one == point]  # written as in the study: 0, where the config has 0.0
        return arm_name(self.baseline_name, (equal or there)[0])

    def family_name(self, arm: Arm) -> str:
        """Return the name of the study's first model family whose settings match the arm's, or ""."""
        left_out = {"seed", arm.parent.link} if arm.parent else {"seed"}
        own = {key: value for key, value in arm.config.items() if key not in left_out}
        for name, wanted in self.study.families.items():
            if all(matches(own.get(key), value) for key, value in wanted.items()):
                return name
        return ""


def same_trial(first: Arm, second: Arm) -> str:
    """Return the message that two arms have the same trials. It names the settings that differ, if there are any."""
    ours, theirs = first.config, second.config
    differ = joined_names(key for key in ours if ours[key] != theirs[key])
    why = f": they differ only in {differ}, which is how a trial runs, not what it learns" if differ else ""
    return f"arms {first.name} and {second.name} are the same trial{why}"


def matches(own: Any, wanted: Any) -> bool:
    """Return whether `own` matches `wanted`: a value, a glob such as "timm/*", or a list of alternatives."""
    if isinstance(wanted, list):
        return any(matches(own, one) for one in wanted)
    return fnmatchcase(own, wanted) if isinstance(own, str) and isinstance(wanted, str) else bool(own == wanted)
