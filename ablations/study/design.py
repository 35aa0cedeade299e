"""A design: a study on a recipe with overrides, and the arms that follow."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ablations.study import stages
from ablations.study.budget import steps_of
from ablations.study.naming import assigned, plan_name
from ablations.study.reading import axes_of, claim_parts, starts, without_recipe_arm
from ablations.study.recipe import Recipe
from ablations.study.stages import Values
from ablations.study.study import PLACE, RECIPE_ARM, Axis, Study
from vitcore.config import Config, merge
from vitcore.options import ConfigError, listed

AT_AXES = ("axis", "patch-axis")  # after @ in metrics and evals: the recipe's values


@dataclass(frozen=True)
class Change:
    """The difference of an arm from the baseline, at any point of the curves.

    settings: the changed settings, as the study writes them. co_changes: settings declared to change with them.
    """

    name: str
    values: Values  # of every factor
    settings: Values
    co_changes: Values = field(default_factory=dict)
    named: bool = False  # a joint change under a name of its own

    @property
    def declared(self) -> list[str]:
        """The settings that the change declares."""
        return list(dict.fromkeys([*self.settings, *self.co_changes]))


@dataclass(frozen=True)
class Arm:
    """A row of a study's table: the settings of its trials and the arm it is compared with."""

    name: str
    baseline: str
    values: Values  # of every factor and curve
    settings: Values  # everything that is not a default, before the seed
    change: Change
    point: Values  # of the curves
    parent: stages.Stage | None = None  # what its trials start from

    def trial(self, seed: int) -> Config:
        return stages.trial(self.settings, self.parent, seed)

    @cached_property
    def config(self) -> Config:
        """The arm's config at seed 0, from which its model, cost and key are read."""
        return self.trial(0)

    @cached_property
    def key(self) -> str:
        """The identity that the arm's trials share."""
        from vitcore.identity import arm_key  # late: reading studies loads no torch

        return arm_key(self.config)


@dataclass(frozen=True)
class Design:
    """A study on a recipe with command-line overrides: its arms, in the table's order."""

    study: Study
    recipe: Recipe
    overrides: Values

    def __post_init__(self) -> None:
        if self.fine_tunes and stages.FINETUNE not in self.recipe.stages:
            raise ValueError(
                f"study '{self.study.name}' fine-tunes, but recipe '{self.recipe.name}' does not say how: add to it "
                "`stages: {finetune: {}}`, which trains as its config says; recipe digits has other settings"
            )
        for key in self.overrides:
            own = key.removeprefix(f"{stages.FINETUNE}.") if self.study.stages else key
            if own in self.varied or (own == "model" and {"width", "depth", "heads", "patch"} & set(self.varied)):
                raise ValueError(
                    f"{key} is what the study '{self.study.name}' varies: not a setting of the command line"
                )
            if own in ("seed", "data_seed"):
                raise ValueError(f"{key}: the seeds of a study are set with --seeds N")
        if self.study.stages:
            stages.check_overrides(self.study.name, self.study.stages, self.varied, self.overrides)
        for where, settings in (("recipe", self.recipe.config), *self.named.items()):
            if "seed" in settings:
                raise ValueError(f"{where}: seed={settings['seed']}: the seeds of a study are set with --seeds N")

    @property
    def name(self) -> str:
        return plan_name(self.study.name, self.recipe.name, self.overrides)

    @cached_property
    def factors(self) -> dict[str, list[Any]]:
        """Factor -> the values that it takes one at a time; for a factor that is only crossed, its crosses' values."""
        found = {name: self.axis(name, values) for name, values in self.study.factors.items()}
        for cross in self.crosses:
            for name, values in cross.items():
                if name not in self.study.factors:
                    before = found.get(name, [])
                    found[name] = [*before, *(value for value in values if value not in before)]
        return found

    @cached_property
    def crosses(self) -> list[dict[str, list[Any]]]:
        """The crosses, completed with the baseline's value of each factor: an interaction needs it."""
        found: list[dict[str, list[Any]]] = []
        for cross in self.study.crosses:
            found.append({})
            for name, values in cross.items():
                known, own = self.axis(name, values), self.own_value(name)
                found[-1][name] = known if own in known else [own, *known]
        return found

    @cached_property
    def curves(self) -> dict[str, list[Any]]:
        """The curves, and last the tuned settings: every arm is trained at each of their points."""
        axes = self.study.curves | self.study.tune
        return {name: self.axis(name, values) for name, values in axes.items()}

    @cached_property
    def tune(self) -> dict[str, list[Any]]:
        """The tuned grid. Raises ValueError for a grid without inner points: an optimum at an edge gives no verdict."""
        found = {name: self.curves[name] for name in self.study.tune}
        for name, values in found.items():
            if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values):
                raise ValueError(f"tune: {name}={listed(values)}: numbers")
            if len(values) < 3 or sorted(values) != values:
                raise ValueError(
                    f"tune: {name}={listed(values)}: at least 3 values, ascending: the best must lie inside"
                )
        return found

    @property
    def varied(self) -> list[str]:
        """Everything that varies, each once: factors, crosses, curves and tuned settings."""
        return list(dict.fromkeys(key for group in axes_of(self.study) for key in group))

    def axis(self, name: str, values: Axis) -> list[Any]:
        """Return the values of an axis as the study writes it. Raises ValueError for an axis that the recipe lacks."""
        if values == "all":
            return entries(name)
        if values == "axis":
            return self.axis_values(name)
        listed_here = (self.axis_values(name) if value == "axis" else [value] for value in values)
        return list(itertools.chain.from_iterable(listed_here))

    def axis_values(self, name: str) -> list[Any]:
        """Return the recipe's values for a setting. Raises ValueError if it has none.

        A stage's setting such as pretrain.lr has an axis of its own, else that of lr. In a study that fine-tunes, an
        arm's lr has finetune.lr, else lr.
        """
        names = [name, name.partition(".")[2]]
        if not self.of_a_stage(name):
            names = [f"{stages.FINETUNE}.{name}", name] if self.fine_tunes else [name]
        known = [one for one in names if one in self.recipe.axes]
        if not known:
            raise ValueError(
                f"study '{self.study.name}' takes the values of {name} from the recipe, and recipe "
                f"'{self.recipe.name}' has no axis {name} (it has: {listed(self.recipe.axes) or 'none'}): "
                f"add to it `axes: {{{name}: [VALUE, ...]}}`"
            )
        return self.recipe.axes[known[0]]

    @cached_property
    def published(self) -> dict[str, float]:
        """Arm name -> the study's published number."""
        return {self.resolve_places(name): value for name, value in self.study.published.items()}

    @cached_property
    def claims(self) -> list[str]:
        """The study's claims with the arm names of this design."""
        parts = [claim_parts(claim, self.study.name) for claim in self.study.claims]
        return list(dict.fromkeys(f"{self.resolve_places(a)}{sign}{self.resolve_places(b)}" for a, sign, b in parts))

    def resolve_places(self, name: str) -> str:
        """Return an arm's name with values for places such as the recipe's last width, `width=axis[-1]`.

        A name without a place, or with one that the recipe lacks, stays as it is.
        """
        if not PLACE.search(name):
            return name
        first, _, rest = name.partition(",")
        pieces = [piece.partition("=") for piece in (rest if first in self.named else name).split(",")]
        values = {key: self.value_in_name(key, text) for key, _, text in pieces}
        if None in values.values():
            return name
        own = {key: value for key, value in values.items() if key in self.factors and value != self.baseline[key]}
        point = {key: values[key] for key in self.curves if key in values}
        return (first if first in self.named else self.changed(own).name) + at(point)

    def value_in_name(self, key: str, text: str) -> Any:
        """Return the value that an arm's name writes as `text`; None if the setting has no such value."""
        if place := PLACE.fullmatch(text):
            values, number = self.axis_values(key), int(place[1])
            return values[number] if -len(values) <= number < len(values) else None
        known = [*self.factors.get(key, []), *self.curves.get(key, [])]
        return next((value for value in known if str(value) == text), None)

    @property
    def metric(self) -> str:
        """The metric, with the first of the values that @axis or @patch-axis stands for."""
        name, _, at_axis = self.study.metric.partition("@")
        return f"{name}@{self.tested(at_axis)[0]}" if at_axis in AT_AXES else self.study.metric

    @property
    def evals(self) -> list[str]:
        """The evals, with all values that @axis or @patch-axis stands for."""
        found = []
        for name in self.study.evals:
            kind, _, at_axis = name.partition("@")
            found += [f"{kind}@{value}" for value in self.tested(at_axis)] if at_axis in AT_AXES else [name]
        return found

    def tested(self, at_axis: str) -> list[str]:
        """Return the values that `axis` or `patch-axis` stands for after the @ of a metric or an eval.

        `axis`: the recipe's image sizes except the one of training; raises ValueError if there is no other.
        `patch-axis`: the recipe's patches, with the baseline's last.
        """
        if at_axis == "patch-axis":
            patches = self.axis("patch", "axis")
            return [f"patch{size}" for size in sorted(patches, key=lambda size: size == self.reference.patch)]
        trained = self.reference.image_size
        if not (sizes := [str(size) for size in self.axis("image_size", "axis") if size != trained]):
            raise ValueError(f"recipe '{self.recipe.name}': axis image_size has only {trained}, the size of training")
        return sizes

    @cached_property
    def fine_tunes(self) -> bool:
        """Whether arms start from stages, and so train as the recipe's `finetune` says."""
        return any(key == "init_from" and value in self.study.stages for key, value in starts(self.study))

    @cached_property
    def base(self) -> Values:
        """The settings of all arms: defaults < recipe < the recipe's arm < baseline < command line.

        If arms start from stages, `finetune` comes before the recipe's arm. On the command line, `lr` comes before
        `finetune.lr`.
        """
        recipe_arm = self.recipe_arm(self.study.recipe_arm, "baseline") if self.study.recipe_arm else {}
        if not self.study.stages:
            return merge(self.recipe.config, recipe_arm, self.study.baseline, self.overrides)
        mine = stages.of_stage(stages.FINETUNE, self.overrides)
        rest = {key: one for key, one in self.overrides.items() if key.partition(".")[0] != stages.FINETUNE}
        last = self.recipe.stages[stages.FINETUNE] if self.fine_tunes else {}
        return merge(self.recipe.config, last, recipe_arm, self.study.baseline, rest, mine)

    @cached_property
    def starting(self) -> stages.Stages:
        """The stages: recipe < the recipe's stage < command line < the study's stage < the command line's STAGE.KEY."""
        alone = {*self.study.stages, stages.FINETUNE}
        plain = {key: one for key, one in self.overrides.items() if key.partition(".")[0] not in alone}
        base, recipe = merge(self.recipe.config, plain), self.recipe.stages
        shared = {key: one for key, one in plain.items() if stages.reaches(key)}
        own = {name: merge(recipe.get(name, {}), shared, mine) for name, mine in self.study.stages.items()}
        joint = [key for layer in [*self.named.values(), *self.study.co_changes.values()] for key in layer]
        return stages.Stages(base, own, tuple(dict.fromkeys([*self.varied, *joint])), shared)

    @property
    def data(self) -> str:
        """The name of the baseline's data."""
        return data_of(self.base)

    @cached_property
    def on_its_data(self) -> bool:
        """Whether baseline and stages use the data that the recipe gives them."""
        config, said = self.recipe.config, self.recipe.stages
        pairs = [(self.base, said[stages.FINETUNE] if self.fine_tunes else {})]
        pairs += [(one.settings, said[one.stage]) for one in stages.lineage(self.origin) if one.stage in said]
        return all(data_of(mine) == data_of(merge(config, own)) for mine, own in pairs)

    @cached_property
    def stated(self) -> Recipe:
        """The recipe with only those statements that hold for this design."""
        return self.recipe if self.on_its_data else self.recipe.on_other_data()

    def of_a_stage(self, key: str) -> bool:
        """Return whether a key such as pretrain.lr is a setting of one of the study's stages."""
        return key.partition(".")[0] in self.study.stages

    @cached_property
    def origin(self) -> stages.Stage | None:
        """The stage that the baseline starts from."""
        return self.starting.started(self.base)[1]

    def own_value(self, key: str) -> Any:
        """Return the baseline's value of a setting off the curves.

        For a stage that the baseline does not start from, return the value as written.
        """
        if self.of_a_stage(key) and key.partition(".")[0] not in {one.stage for one in stages.lineage(self.origin)}:
            return self.base.get(key)
        return stages.value(self.reference, self.origin, key)

    @cached_property
    def named(self) -> dict[str, Values]:
        """The settings of the named arms. Raises ValueError for an arm that is missing from the recipe."""
        found = {}
        for name, settings in self.study.arms.items():
            if settings == "axis":
                found[name] = self.recipe_arm(name, "arm")
            else:
                first = self.recipe_arm(str(settings[RECIPE_ARM]), "arm") if RECIPE_ARM in settings else {}
                found[name] = merge(first, without_recipe_arm(settings))
        return found

    def recipe_arm(self, name: str, what: str) -> Values:
        """Return the settings of the recipe's own arm of that name. Raises ValueError if there is none."""
        if name not in self.recipe.arms:
            raise ValueError(
                f"study '{self.study.name}' takes its {what} {name} from the recipe, and recipe '{self.recipe.name}' "
                f"has no such arm (it has: {listed(self.recipe.arms) or 'none'}): "
                f"add to it `arms: {{{name}: {{KEY: VALUE}}}}`; recipe digits has all that studies take"
            )
        return self.recipe.arms[name]

    @cached_property
    def reference(self) -> Config:
        """The baseline's config off the curves."""
        settings, parent = self.starting.started(self.base)
        try:
            return stages.trial(settings, parent, self.base.get("seed", 0))
        except ConfigError as error:
            own = stages.of_stage(stages.FINETUNE, self.overrides) if self.study.stages else {}
            raise stages.as_written(error, stages.FINETUNE, own) from None

    @cached_property
    def baseline(self) -> Values:
        """The baseline's value of every factor."""
        return {name: self.own_value(name) for name in self.factors}

    @property
    def baseline_name(self) -> str:
        """The baseline's name, from the factors that vary one at a time; without any, from the crossed ones."""
        named = self.study.factors or self.factors
        return assigned({name: self.baseline[name] for name in named}) or "baseline"

    @cached_property
    def arms(self) -> list[Arm]:
        """All arms. Raises ValueError for an impossible arm, or one with the same trials as another."""
        arms = [self.arm(change, point) for change, point in self.remaining.values()]
        refuse_twins(self.study, arms)
        return arms

    @cached_property
    def changes(self) -> list[Change]:
        """The changes at any point, each once. The baseline has the place where it is first listed."""
        cells = [{name: value} for name in self.study.factors for value in self.factors[name]]
        cells += [cell for cross in self.crosses for cell in points(cross)]
        varied = [{name: value for name, value in cell.items() if value != self.baseline[name]} for cell in cells]
        found = {}  # by name: a cell of a cross may be an arm that is there already
        for change in map(self.changed, varied if {} in varied else [{}, *varied]):
            found[change.name] = change
        for name, settings in self.named.items():
            if name in found:
                raise ValueError(f"study '{self.study.name}': two arms are called {name}")
            own = {key: value for key, value in settings.items() if key in self.factors}
            found[name] = Change(name, self.baseline | own, settings, named=True)
        return self.with_co_changes(list(found.values()))

    def changed(self, values: Values) -> Change:
        """Return the change to these values of factors, named in the study's order."""
        ordered = {name: values[name] for name in self.factors if name in values}
        return Change(assigned(ordered) or self.baseline_name, self.baseline | ordered, ordered)

    def with_co_changes(self, changes: list[Change]) -> list[Change]:
        """Return the changes with the co-changes that `with` declares for them.

        Raises ValueError for a name in `with` that matches no arm.
        """
        for name, settings in self.study.co_changes.items():
            meant = set(name.split(","))
            matching = [one for one in changes if not one.named and meant <= {*assigned(one.settings).split(",")}]
            if not matching:
                raise ValueError(f"study '{self.study.name}': with: no arm changes {name}")
            changes = [
                replace(one, co_changes=merge(one.co_changes, settings)) if one in matching else one for one in changes
            ]
        return changes

    @cached_property
    def remaining(self) -> dict[str, tuple[Change, Values]]:
        """Arm name -> change and point, at every point of the curves, without the excluded arms.

        Raises ValueError for an exclusion that matches nothing, or removes a baseline or a part of the tuned grid.
        """
        pairs = {change.name + at(point): (change, point) for change in self.changes for point in points(self.curves)}
        gone = set().union(*(self.excluded(entry, pairs) for entry in self.study.exclude))
        kept = {name: pair for name, pair in pairs.items() if name not in gone}
        for name, (change, point) in kept.items():
            if (baseline := self.baseline_name + at(point)) not in kept:
                raise ValueError(f"study '{self.study.name}': exclude: {baseline} is the baseline of {name}")
            if any(change.name + at(point | tuned) not in kept for tuned in points(self.tune)):
                raise ValueError(
                    f"study '{self.study.name}': exclude: leaves {change.name} a part of the tuned grid: "
                    f"{listed(self.tune)} is chosen from the same values for every arm"
                )
        return kept

    def excluded(self, entry: Values, pairs: Mapping[str, tuple[Change, Values]]) -> set[str]:
        """Return the names of the arms that an entry of `exclude` matches. Raises ValueError if there are none."""
        known = {*self.factors, *self.curves, "arm"}
        if unknown := entry.keys() - known:
            raise ValueError(f"study '{self.study.name}': exclude: {listed(unknown)}: one of {listed(sorted(known))}")
        met = {
            name
            for name, (change, point) in pairs.items()
            if entry and entry.items() <= ({"arm": change.name} | change.values | point).items()
        }
        if not met:
            raise ValueError(f"study '{self.study.name}': exclude: no arm has {assigned(entry) or 'nothing'}")
        return met

    def arm(self, change: Change, point: Values) -> Arm:
        """Return the arm of a change at a point of the curves."""
        written = merge(self.base, point, change.settings, change.co_changes)
        settings, parent = self.starting.started(written)
        name = change.name + at(point)
        if not {"steps", "epochs"} & {*change.declared, *point}:
            settings = merge(settings, self.schedule(name, settings))
        return Arm(name, self.baseline_name + at(point), change.values | point, settings, change, point, parent)

    def schedule(self, name: str, settings: Values) -> Values:
        """Return the steps that meet the study's budget; empty if they are the recipe's. Raises ValueError."""
        if self.study.budget == "steps" and "epochs" not in settings:
            return {}
        try:
            return {"steps": steps_of(self.study.budget, self.reference, Config(**settings))}
        except Exception as error:  # a user's part may do anything where its FLOPs are counted
            raise ValueError(f"study '{self.study.name}', arm {name}: {error}") from error

    @cached_property
    def main_baseline(self) -> str:
        """The baseline's name at the point of the recipe's settings; if the curves lack it, at their first point."""
        there = [point for change, point in self.remaining.values() if change.name == self.baseline_name]
        point = {name: self.own_value(name) for name in self.curves}
        return self.baseline_name + at(point if point in there else there[0])


def data_of(settings: Values) -> str:
    return str(settings.get("data", Config.model_fields["data"].default))


def points(axes: Mapping[str, Sequence[Any]]) -> list[Values]:
    """Return all points of the product of axes; one empty point if there are none."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def at(point: Values) -> str:
    """Return the suffix of an arm's name at a point of the curves."""
    return f",{assigned(point)}" if point else ""


def entries(slot: str) -> list[str]:
    """Return the names of all variants of a slot, plug-ins last. Raises ValueError for a setting without variants."""
    from vitcore.variants import VARIANTS  # late: the parts are torch modules

    if slot not in VARIANTS:
        raise ValueError(f"{slot}: all: only {listed(VARIANTS)} have entries to sweep")
    return list(VARIANTS[slot])


def refuse_twins(study: Study, arms: Iterable[Arm]) -> None:
    """Raise ValueError for two arms with one name or the same trials."""
    from vitcore.identity import trial_id  # late: reading studies loads no torch

    names: dict[str, str] = {}  # trial -> arm
    for arm in arms:
        try:
            trial = trial_id(arm.config)
        except ConfigError as error:
            raise ValueError(f"study '{study.name}', arm {arm.name}: {error}") from None
        if arm.name in names.values():
            raise ValueError(f"study '{study.name}': two arms are called {arm.name}")
        if trial in names:
            raise ValueError(f"study '{study.name}': arms {names[trial]} and {arm.name} are the same trial")
        names[trial] = arm.name
