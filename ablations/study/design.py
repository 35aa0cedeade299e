"""A design: a study on a recipe with command-line overrides, and the arms that follow from them.

A point of the curves has one value for each curve. Every change from the baseline gives one arm at each point.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ablations.study import stages, validation
from ablations.study.budget import matched_steps
from ablations.study.naming import assignments, plan_name
from ablations.study.recipe import Recipe
from ablations.study.stages import Values
from ablations.study.study import PLACE, RECIPE_ARM, Axis, Study, claim_parts, without_recipe_arm
from vitcore.config import Config, merge
from vitcore.options import ConfigError, joined_names, spelling_hint


@dataclass(frozen=True)
class Change:
    """The difference between an arm and the baseline, at any point of the curves."""

    name: str
    values: Values  # factor -> value
    settings: Values  # the changed settings, as the study writes them
    co_changes: Values = field(default_factory=dict)  # the settings that `with` changes along with them
    named: bool = False  # whether the study names this joint change

    @property
    def declared_settings(self) -> list[str]:
        return list(dict.fromkeys([*self.settings, *self.co_changes]))


@dataclass(frozen=True)
class Arm:
    """A row of a study's table: the settings of its trials, and the arm that it is compared with."""

    name: str
    baseline: str
    values: Values  # factor or curve -> value
    settings: Values  # all settings that differ from defaults, without the seed
    change: Change
    point: Values  # curve -> value
    parent: stages.Stage | None = None  # the stage that its trials start or learn from

    def trial(self, seed: int) -> Config:
        return stages.trial(self.settings, self.parent, seed)

    @cached_property
    def config(self) -> Config:
        """The arm's config at seed 0."""
        return self.trial(0)

    @cached_property
    def key(self) -> str:
        """The identifier that all trials of the arm share."""
        from vitcore.identity import arm_key  # late: reading studies loads no torch

        return arm_key(self.config)


@dataclass(frozen=True)
class Design:
    """A study on a recipe with command-line overrides, and its arms in the table's order.

    Raises ValueError if the recipe lacks settings for fine-tuning, if it or an override sets a seed, or if an override
    sets what the study varies.
    """

    study: Study
    recipe: Recipe
    overrides: Values

    def __post_init__(self) -> None:
        if self.fine_tunes and stages.FINETUNE not in self.recipe.stages:
            raise ValueError(
                f"study '{self.study.name}' fine-tunes, but recipe '{self.recipe.name}' does not say how: add to it "
                "`stages: {finetune: {}}`, which trains as its config says; recipe digits has other settings"
            )
        varied = self.study.varied_settings
        for key in self.overrides:
            own = key.removeprefix(f"{stages.FINETUNE}.") if self.study.stages else key
            if own in varied or (own == "model" and {"width", "depth", "heads", "patch"} & set(varied)):
                raise ValueError(
                    f"{key} is what the study '{self.study.name}' varies: not a setting of the command line"
                )
            if own in ("seed", "data_seed"):
                raise ValueError(f"{key}: the seeds of a study are set with --seeds N")
        if self.study.stages:
            validation.check_overrides(self.study, self.overrides)
        for where, settings in (("recipe", self.recipe.config), *self.named_arms.items()):
            if "seed" in settings:
                raise ValueError(f"{where}: seed={settings['seed']}: the seeds of a study are set with --seeds N")

    @property
    def name(self) -> str:
        return plan_name(self.study.name, self.recipe.name, self.overrides)

    @cached_property
    def factors(self) -> dict[str, list[Any]]:
        """The values of each factor, by name. A factor that is only crossed has the values in its crosses."""
        found = {name: self.axis(name, values) for name, values in self.study.factors.items()}
        for cross in self.crosses:
            for name, values in cross.items():
                if name not in self.study.factors:
                    before = found.get(name, [])
                    found[name] = [*before, *(value for value in values if value not in before)]
        return found

    @cached_property
    def crosses(self) -> list[dict[str, list[Any]]]:
        """The crosses, each as factor -> values, with the baseline's values, which interactions need."""
        found: list[dict[str, list[Any]]] = []
        for cross in self.study.crosses:
            found.append({})
            for name, values in cross.items():
                known, own = self.axis(name, values), self.baseline_value(name)
                found[-1][name] = known if own in known else [own, *known]
        return found

    @cached_property
    def curves(self) -> dict[str, list[Any]]:
        """The values of each curve and of each tuned setting, by name, tuned settings last."""
        axes = self.study.curves | self.study.tune
        return {name: self.axis(name, values) for name, values in axes.items()}

    @cached_property
    def tune(self) -> dict[str, list[Any]]:
        """The values of each tuned setting, by name.

        Raises ValueError unless they are at least 3 ascending numbers: an optimum at an edge gives no verdict.
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
        """Return the values of an axis that the study writes as a list, `axis` or `all`.

        Raises ValueError if the recipe lacks the axis, or if `all` is asked of a setting without variants.
        """
        if values == "all":
            from vitcore.variants import VARIANTS  # late: the parts are torch modules

            if name not in VARIANTS:
                raise ValueError(f"{name}: all: only {joined_names(VARIANTS)} have entries to sweep")
            return list(VARIANTS[name])
        written = ["axis"] if values == "axis" else values
        return [one for value in written for one in (self.axis_values(name) if value == "axis" else [value])]

    def axis_values(self, name: str) -> list[Any]:
        """Return the recipe's values for a setting.

        pretrain.lr has the axis pretrain.lr or else lr. An arm's lr in a study that fine-tunes has the axis finetune.lr
        or else lr. Raises ValueError if the recipe has neither axis.
        """
        names = [name, name.partition(".")[2]]
        if name.partition(".")[0] not in self.study.stages:
            names = [f"{stages.FINETUNE}.{name}", name] if self.fine_tunes else [name]
        known = [one for one in names if one in self.recipe.axes]
        if not known:
            raise ValueError(
                f"study '{self.study.name}' takes the values of {name} from the recipe, and recipe "
                f"'{self.recipe.name}' has no axis {name} (it has: {joined_names(self.recipe.axes) or 'none'}): "
                f"add to it `axes: {{{name}: [VALUE, ...]}}`"
            )
        return self.recipe.axes[known[0]]

    @cached_property
    def published(self) -> dict[str, float]:
        return {self.resolve_places(name): value for name, value in self.study.published.items()}

    @cached_property
    def claims(self) -> list[str]:
        parts = map(claim_parts, self.study.claims)
        return list(dict.fromkeys(f"{self.resolve_places(a)}{sign}{self.resolve_places(b)}" for a, sign, b in parts))

    def resolve_places(self, name: str) -> str:
        """Return an arm's name with each place, such as axis[-1] in `width=axis[-1]`, replaced by its value.

        axis[-1] is the last of the recipe's values. A name without a place, or with a place that the recipe lacks, is
        returned unchanged.
        """
        if not PLACE.search(name):
            return name
        first, _, rest = name.partition(",")
        pieces = [piece.partition("=") for piece in (rest if first in self.named_arms else name).split(",")]
        values = {key: self.value_in_name(key, text) for key, _, text in pieces}
        if None in values.values():
            return name
        own = {key: value for key, value in values.items() if key in self.factors and value != self.baseline[key]}
        point = {key: values[key] for key in self.curves if key in values}
        return (first if first in self.named_arms else self.factor_change(own).name) + point_text(point)

    def value_in_name(self, key: str, text: str) -> Any:
        """Return the value that an arm's name writes as `text`, or None if the setting has no such value."""
        if place := PLACE.fullmatch(text):
            values, number = self.axis_values(key), int(place[1])
            return values[number] if -len(values) <= number < len(values) else None
        known = [*self.factors.get(key, []), *self.curves.get(key, [])]
        return next((value for value in known if str(value) == text), None)

    @property
    def metric(self) -> str:
        """The metric; of the values that @axis or @patch-axis stands for, it has the first."""
        return self.sized_names(self.study.metric)[0]

    @property
    def evals(self) -> list[str]:
        return [one for name in self.study.evals for one in self.sized_names(name)]

    def sized_names(self, name: str) -> list[str]:
        """Return the names that a metric or an eval with @axis or @patch-axis stands for; otherwise, `name` alone.

        They have the recipe's image sizes except the training size, or its patch sizes with the baseline's last. Raises
        ValueError if the recipe has no other image size.
        """
        kind, _, at_axis = name.partition("@")
        if at_axis == "patch-axis":
            patches = self.axis_values("patch")
            return [f"{kind}@patch{size}" for size in sorted(patches, key=lambda size: size == self.reference.patch)]
        if at_axis != "axis":
            return [name]
        trained = self.reference.image_size
        if not (sizes := [size for size in self.axis_values("image_size") if size != trained]):
            raise ValueError(f"recipe '{self.recipe.name}': axis image_size has only {trained}, the size of training")
        return [f"{kind}@{size}" for size in sizes]

    @cached_property
    def fine_tunes(self) -> bool:
        """Whether arms start from stages, and so train with the recipe's `finetune` settings."""
        return any(key == "init_from" and value in self.study.stages for key, value in self.study.starts())

    @cached_property
    def base(self) -> Values:
        """The settings of all arms: recipe < `finetune` < the recipe's arm < baseline < command line < its `finetune`.

        Later sources override earlier ones. `finetune` counts only if arms start from stages.
        """
        recipe_arm = self.recipe_arm(self.study.recipe_arm, "baseline") if self.study.recipe_arm else {}
        if not self.study.stages:
            return merge(self.recipe.config, recipe_arm, self.study.baseline, self.overrides)
        mine = stages.stage_settings(stages.FINETUNE, self.overrides)
        rest = {key: one for key, one in self.overrides.items() if key.partition(".")[0] != stages.FINETUNE}
        last = self.recipe.stages[stages.FINETUNE] if self.fine_tunes else {}
        return merge(self.recipe.config, last, recipe_arm, self.study.baseline, rest, mine)

    @cached_property
    def starting_stages(self) -> stages.Stages:
        """The stages: recipe < the recipe's stage < command line < the study's stage < the command line's STAGE.KEY."""
        alone = {*self.study.stages, stages.FINETUNE}
        plain = {key: one for key, one in self.overrides.items() if key.partition(".")[0] not in alone}
        base, recipe = merge(self.recipe.config, plain), self.recipe.stages
        shared = {key: one for key, one in plain.items() if stages.applies_to_stages(key)}
        own = {name: merge(recipe.get(name, {}), shared, mine) for name, mine in self.study.stages.items()}
        joint = [key for layer in [*self.named_arms.values(), *self.study.co_changes.values()] for key in layer]
        return stages.Stages(base, own, tuple(dict.fromkeys([*self.study.varied_settings, *joint])), shared)

    @property
    def data(self) -> str:
        return data_of(self.base)

    @cached_property
    def uses_recipe_data(self) -> bool:
        """Whether baseline and stages use the data that the recipe names for them."""
        config, said = self.recipe.config, self.recipe.stages
        pairs = [(self.base, said[stages.FINETUNE] if self.fine_tunes else {})]
        pairs += [(one.settings, said[one.stage]) for one in stages.lineage(self.parent_stage) if one.stage in said]
        return all(data_of(mine) == data_of(merge(config, own)) for mine, own in pairs)

    @cached_property
    def applicable_recipe(self) -> Recipe:
        """The recipe with only the statements that hold for the data of this design."""
        return self.recipe if self.uses_recipe_data else self.recipe.on_other_data()

    @cached_property
    def parent_stage(self) -> stages.Stage | None:
        """The stage that the baseline starts or learns from, or None."""
        return self.starting_stages.split_parent(self.base)[1]

    def baseline_value(self, key: str) -> Any:
        """Return the baseline's value of a setting, before a point of the curves is applied.

        A setting of a stage that the baseline does not use has the value that is written for it, or None.
        """
        used = {one.stage for one in stages.lineage(self.parent_stage)}
        if key.partition(".")[0] in self.study.stages.keys() - used:
            return self.base.get(key)
        return stages.value(self.reference, self.parent_stage, key)

    @cached_property
    def named_arms(self) -> dict[str, Values]:
        """The settings of the named arms, by name.

        Raises ValueError if the recipe lacks an arm that the study takes from it.
        """
        found = {}
        for name, settings in self.study.arms.items():
            if settings == "axis":
                found[name] = self.recipe_arm(name, "arm")
            else:
                first = self.recipe_arm(str(settings[RECIPE_ARM]), "arm") if RECIPE_ARM in settings else {}
                found[name] = merge(first, without_recipe_arm(settings))
        return found

    def recipe_arm(self, name: str, what: str) -> Values:
        """Return the settings of the arm `name` in the recipe. what: "arm" or "baseline", for the message.

        Raises ValueError if the recipe has no such arm.
        """
        if name not in self.recipe.arms:
            raise ValueError(
                f"study '{self.study.name}' takes its {what} {name} from the recipe, and recipe '{self.recipe.name}' "
                f"has no such arm (it has: {joined_names(self.recipe.arms) or 'none'}): "
                f"add to it `arms: {{{name}: {{KEY: VALUE}}}}`; recipe digits has all that studies take"
            )
        return self.recipe.arms[name]

    @cached_property
    def reference(self) -> Config:
        """The baseline's config, before a point of the curves is applied."""
        settings, parent = self.starting_stages.split_parent(self.base)
        try:
            return stages.trial(settings, parent, self.base.get("seed", 0))
        except ConfigError as error:
            if str(error).partition("=")[0] in self.study.baseline.keys() - self.overrides.keys():
                raise ConfigError(f"study '{self.study.name}', baseline: {error}") from None
            own = stages.stage_settings(stages.FINETUNE, self.overrides) if self.study.stages else {}
            raise stages.written_error(error, stages.FINETUNE, own) from None

    @cached_property
    def baseline(self) -> Values:
        return {name: self.baseline_value(name) for name in self.factors}

    @property
    def baseline_name(self) -> str:
        """The baseline's name: its values of `factors`, or else of the crossed factors, or else `baseline`."""
        named = self.study.factors or self.factors
        return assignments({name: self.baseline[name] for name in named}) or "baseline"

    @cached_property
    def arms(self) -> list[Arm]:
        """All arms. Raises ValueError if an arm is impossible, or if two arms share their trials."""
        from vitcore.identity import trial_id  # late: reading studies loads no torch

        arms, names = [self.arm(change, point) for change, point in self.remaining_arms.values()], dict[str, str]()
        for arm in arms:
            try:
                trial = trial_id(arm.config)
            except ConfigError as error:
                raise ValueError(f"study '{self.study.name}', arm {arm.name}: {error}") from None
            if trial in names:
                raise ValueError(f"study '{self.study.name}': arms {names[trial]} and {arm.name} are the same trial")
            names[trial] = arm.name
        return arms

    @cached_property
    def changes(self) -> list[Change]:
        """The changes of all arms, in order; a baseline that is not listed is the first.

        Raises ValueError if two arms have the same name, or if a name in `with` matches no arm.
        """
        cells = [{name: value} for name in self.study.factors for value in self.factors[name]]
        cells += [cell for cross in self.crosses for cell in points(cross)]
        varied = [{name: value for name, value in cell.items() if value != self.baseline[name]} for cell in cells]
        found = {}  # by name, because a cell of a cross may equal an earlier arm
        for change in map(self.factor_change, varied if {} in varied else [{}, *varied]):
            found[change.name] = change
        for name, settings in self.named_arms.items():
            if name in found:
                raise ValueError(f"study '{self.study.name}': two arms are called {name}")
            own = {key: value for key, value in settings.items() if key in self.factors}
            found[name] = Change(name, self.baseline | own, settings, named=True)
        for name, settings in self.study.co_changes.items():
            meant = set(name.split(","))
            matching = [
                one for one in found.values() if not one.named and meant <= {*assignments(one.settings).split(",")}
            ]
            if not matching:
                raise ValueError(f"study '{self.study.name}': with: no arm changes {name}")
            found |= {one.name: replace(one, co_changes=merge(one.co_changes, settings)) for one in matching}
        return list(found.values())

    def factor_change(self, values: Values) -> Change:
        """Return the change that sets factors to `values`, named by them in the study's order."""
        ordered = {name: values[name] for name in self.factors if name in values}
        return Change(assignments(ordered) or self.baseline_name, self.baseline | ordered, ordered)

    @cached_property
    def remaining_arms(self) -> dict[str, tuple[Change, Values]]:
        """The change and the point of each arm that is not excluded, by arm name.

        Raises ValueError if an exclusion matches nothing, or removes a baseline or a part of the tuned grid.
        """
        pairs = {
            change.name + point_text(point): (change, point) for change in self.changes for point in points(self.curves)
        }
        gone = set().union(*(self.excluded_names(entry, pairs) for entry in self.study.exclude))
        kept = {name: pair for name, pair in pairs.items() if name not in gone}
        for name, (change, point) in kept.items():
            if (baseline := self.baseline_name + point_text(point)) not in kept:
                raise ValueError(f"study '{self.study.name}': exclude: {baseline} is the baseline of {name}")
            if any(change.name + point_text(point | tuned) not in kept for tuned in points(self.tune)):
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
            meant = spelling_hint(key, known) or f": known are {joined_names(known)}"
            raise ValueError(f"study '{self.study.name}': exclude: unknown key '{key}'{meant}")
        met = {
            name
            for name, (change, point) in pairs.items()
            if entry and entry.items() <= ({"arm": change.name} | change.values | point).items()
        }
        if not met:
            raise ValueError(f"study '{self.study.name}': exclude: no arm has {assignments(entry) or 'nothing'}")
        return met

    def arm(self, change: Change, point: Values) -> Arm:
        written = merge(self.base, point, change.settings, change.co_changes)
        settings, parent = self.starting_stages.split_parent(written)
        name, given = change.name + point_text(point), {"steps", "epochs"} & {*change.declared_settings, *point}
        if not given and (self.study.budget != "steps" or "epochs" in settings):
            try:
                settings = merge(
                    settings, {"steps": matched_steps(self.study.budget, self.reference, Config(**settings))}
                )
            except Exception as error:  # a user's part may do anything where its FLOPs are counted
                raise ValueError(f"study '{self.study.name}', arm {name}: {error}") from error
        return Arm(name, self.baseline_name + point_text(point), change.values | point, settings, change, point, parent)

    @cached_property
    def main_baseline(self) -> str:
        """The baseline's name at the point that has the values of `reference`, or else at the first point left."""
        there = [point for change, point in self.remaining_arms.values() if change.name == self.baseline_name]
        point = {name: self.baseline_value(name) for name in self.curves}
        return self.baseline_name + point_text(point if point in there else there[0])


def data_of(settings: Values) -> str:
    return str(settings.get("data", Config.model_fields["data"].default))


def points(axes: Mapping[str, Sequence[Any]]) -> list[Values]:
    """Return all points of the product of axes. Without axes, the only point is empty."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def point_text(point: Values) -> str:
    """Return the suffix that a point of the curves adds to an arm's name."""
    return f",{assignments(point)}" if point else ""
