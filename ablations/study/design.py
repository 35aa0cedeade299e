"""A design: a study on a recipe with command-line overrides, and the arms that follow from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from ablations.study.arms import Arm, Change, TrialTemplate, Values, arm_name, points
from ablations.study.naming import PlanIdentity, assignments
from ablations.study.reading import check_overrides
from ablations.study.recipe import Recipe
from ablations.study.stages import FINETUNE, Stages, stage_settings
from ablations.study.study import AXIS_INDEX, RECIPE_ARM, Axis, Study, without_recipe_arm
from ablations.trainables.trainable import LINKS, Trainable, arm_key, find
from commonfloor.messages import joined_names, unknown_key
from results.claim_text import parse_claim
from results.store.schemas.base import Settings
from results.store.schemas.metrics import Metric, metric_by_name


@dataclass(frozen=True)
class Design:
    """A study on a recipe with command-line overrides, and its arms in order.

    Properties raise ValueError if the recipe lacks what the study takes, or if the baseline's config is invalid.
    """

    study: Study
    recipe: Recipe
    overrides: Values

    def __post_init__(self) -> None:
        """Raise ValueError if the command line sets what it may not, or if the recipe does not say how to fine-tune."""
        if self.fine_tunes and FINETUNE not in self.recipe.stages:
            raise ValueError(
                f"study '{self.study.name}' fine-tunes, but recipe '{self.recipe.name}' does not say how: add to it "
                "`stages: {finetune: {}}`, which trains as its config says; recipe digits has other settings"
            )
        varied = set(self.study.varied_settings)
        for key in self.overrides:
            setting = key.removeprefix(f"{FINETUNE}.") if self.study.stages else key
            same = self.trainable.shorthands.get(setting, setting)  # steps for epochs
            if varied.intersection([setting, same, *self.trainable.bundles.get(setting, ())]):
                raise ValueError(
                    f"{key} is what the study '{self.study.name}' varies: not a setting of the command line"
                )
            if setting in self.trainable.seed_keys:
                raise ValueError(f"{key}: the seeds of a study are set with --seeds N")
        if self.study.stages:
            check_overrides(self.study, self.overrides, self.trainable)

    @property
    def name(self) -> str:
        return self.identity.name

    @property
    def identity(self) -> PlanIdentity:
        return PlanIdentity(self.study.name, self.recipe.name, self.overrides, self.recipe.train)

    def mistake(self, text: str) -> ValueError:
        return ValueError(f"study '{self.study.name}': {text}")

    # -- the layers of settings ----------------------------------------------------------------------------------------

    @cached_property
    def trainable(self) -> Trainable:
        return find(self.recipe.trainable)

    @cached_property
    def fine_tunes(self) -> bool:
        """Whether arms start from stages, and so train with the recipe's `finetune` settings."""
        return any(key == "init_from" and value in self.study.stages for key, value in self.study.starts())

    @cached_property
    def named_arms(self) -> dict[str, Values]:
        settings_by_name: dict[str, Values] = {}
        for name, written in self.study.arms.items():
            if written == "axis":
                settings_by_name[name] = self.recipe_arm(name, "arm")
                continue
            extended: Values = {}
            if RECIPE_ARM in written:
                extended = self.recipe_arm(str(written[RECIPE_ARM]), "arm")
            settings_by_name[name] = self.trainable.merge(extended, without_recipe_arm(written))
        return settings_by_name

    def recipe_arm(self, name: str, what: str) -> Values:
        """Return the settings of an arm in the recipe. what: "arm" or "baseline", for the message."""
        if name not in self.recipe.arms:
            raise ValueError(
                f"study '{self.study.name}' takes its {what} {name} from the recipe, and recipe '{self.recipe.name}' "
                f"has no such arm (it has: {joined_names(self.recipe.arms) or 'none'}): "
                f"add to it `arms: {{{name}: {{KEY: VALUE}}}}`; recipe digits has all that studies take"
            )
        return self.recipe.arms[name]

    @cached_property
    def base(self) -> Values:
        """The settings that arms start from. Later layers override earlier ones; the command line comes last."""
        layers = [self.recipe.config]
        if self.fine_tunes:
            layers.append(self.recipe.stages[FINETUNE])
        if self.study.recipe_arm:
            layers.append(self.recipe_arm(self.study.recipe_arm, "baseline"))
        layers.append(self.study.baseline)
        if not self.study.stages:
            return self.trainable.merge(*layers, self.overrides)
        others = {key: value for key, value in self.overrides.items() if key.partition(".")[0] != FINETUNE}
        return self.trainable.merge(*layers, others, self.finetune_overrides)

    @property
    def finetune_overrides(self) -> Values:
        """The command line's settings for fine-tuning alone, with keys such as lr for finetune.lr."""
        return stage_settings(FINETUNE, self.overrides) if self.study.stages else {}

    @cached_property
    def stages(self) -> Stages:
        """The study's stages. Recipe < the recipe's settings of a stage < command line < the study's settings of it."""
        names = {*self.study.stages, FINETUNE}
        for_all = {key: value for key, value in self.overrides.items() if key.partition(".")[0] not in names}
        shared = {}
        for key, value in for_all.items():
            if key not in (*self.trainable.bundles, *LINKS) and not self.trainable.is_shared(key):
                shared[key] = value
        of_stages = {}
        for name, written in self.study.stages.items():
            of_stages[name] = self.trainable.merge(self.recipe.stages.get(name, {}), shared, written)
        varied = dict.fromkeys(self.study.varied_settings)
        for settings in (*self.named_arms.values(), *self.study.co_changes.values()):
            varied |= dict.fromkeys(settings)
        base = self.trainable.merge(self.recipe.config, for_all)
        return Stages(self.trainable, base, of_stages, tuple(varied), shared)

    @cached_property
    def reference_trials(self) -> TrialTemplate:
        """The baseline's trials, without a point of the curves. Its config may be invalid."""
        return self.baseline_trials(self.base)

    def baseline_trials(self, written: Values) -> TrialTemplate:
        settings, parent = self.stages.split_parent(written)
        return TrialTemplate(name="baseline", settings=settings, trainable=self.trainable, parent=parent)

    @cached_property
    def reference(self) -> Settings:
        """The config of `reference_trials`. Raises a ValueError that says where a wrong value is written."""
        try:
            return self.reference_trials.config
        except ValueError as error:
            key = str(error).partition("=")[0].rpartition(": ")[2]  # a stage's name may stand before it
            raise type(error)(f"{self.source_of(key)}{error}") from None

    def source_of(self, key: str) -> str:
        """Return where a wrong setting of the baseline is written, as the beginning of a message."""
        if key in self.finetune_overrides:
            return f"{FINETUNE}."
        if key in self.overrides:
            return ""
        if key in self.study.baseline:
            return f"study '{self.study.name}', baseline: "
        if key in self.recipe.config:
            return f"recipe '{self.recipe.name}': "
        return ""

    def baseline_value(self, key: str) -> Any:
        """Return the value that a setting has in the baseline, before a point of the curves is applied.

        For a setting of a stage that the baseline does not use, returns the value that `base` has for it, or None.
        """
        stage = key.partition(".")[0]
        if stage in self.study.stages and stage not in (used.stage for used in self.reference_trials.lineage):
            return self.base.get(key)
        _ = self.reference  # raises an error that says where a wrong value is written
        return self.reference_trials.value(key)

    @cached_property
    def recipe_key(self) -> str:
        """The key of an arm with the recipe's own settings."""
        return arm_key(self.trainable, self.trainable.resolve(self.recipe.config))

    @property
    def data(self) -> str:
        return self.trainable.data_name(self.base)

    @cached_property
    def applicable_recipe(self) -> Recipe:
        """The recipe with only the statements that hold for the data of baseline and stages."""
        return self.recipe if self.uses_recipe_data else self.recipe.on_other_data()

    @cached_property
    def uses_recipe_data(self) -> bool:
        """Whether baseline and stages use the data that the recipe names for them, and no other data."""
        if self.trainable.data_key in self.study.curves:
            return False
        finetune = FINETUNE if self.fine_tunes else ""
        if not self.has_recipe_data(self.base, finetune):
            return False
        stages = [stage for stage in self.reference_trials.lineage if stage.stage in self.recipe.stages]
        return all(self.has_recipe_data(stage.settings, stage.stage) for stage in stages)

    def has_recipe_data(self, settings: Values, stage: str) -> bool:
        """Return whether settings choose the data that the recipe names for a stage, or for arms if `stage` is ""."""
        of_recipe = self.trainable.merge(self.recipe.config, self.recipe.stages.get(stage, {}))
        return self.trainable.data_name(settings) == self.trainable.data_name(of_recipe)

    # -- the values that vary ------------------------------------------------------------------------------------------

    @cached_property
    def factors(self) -> dict[str, list[Any]]:
        """The factors: name -> values. A factor that appears only in crosses has the values of these crosses."""
        factors = {name: self.axis(name, values) for name, values in self.study.factors.items()}
        for cross in self.crosses:
            for name, values in cross.items():
                if name not in self.study.factors:
                    before = factors.setdefault(name, [])
                    before += [value for value in values if value not in before]
        return factors

    @cached_property
    def crosses(self) -> list[dict[str, list[Any]]]:
        """The crosses, each as factor -> values. They include the baseline's values, which interactions need."""
        crosses = []
        for written in self.study.crosses:
            cross = {name: self.axis(name, values) for name, values in written.items()}
            for name, values in cross.items():
                if self.baseline_value(name) not in values:
                    cross[name] = [self.baseline_value(name), *values]
            crosses.append(cross)
        return crosses

    @cached_property
    def curves(self) -> dict[str, list[Any]]:
        """The curves and the tuned settings: name -> values. The tuned settings come last."""
        axes = self.study.curves | self.study.tune
        return {name: self.axis(name, values) for name, values in axes.items()}

    @cached_property
    def tune(self) -> dict[str, list[Any]]:
        """The tuned settings: name -> at least 3 ascending numbers. An arm that is best at an end gets no verdict."""
        tuned = {name: self.curves[name] for name in self.study.tune}
        for name, values in tuned.items():
            written = f"tune: {name}={joined_names(values)}"
            if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values):
                raise ValueError(f"{written}: numbers")
            if len(values) < 3 or sorted(values) != values:
                raise ValueError(f"{written}: at least 3 values, ascending: the best must lie inside")
        return tuned

    def axis(self, name: str, values: Axis) -> list[Any]:
        """Return the values of an axis that the study writes as `all`, `axis` or a list, which may contain `axis`."""
        if values == "all":
            return self.trainable.values(name)
        if values == "axis":
            return self.axis_values(name)
        listed: list[Any] = []
        for value in values:
            if value == "axis":
                listed += self.axis_values(name)
            else:
                listed.append(value)
        return listed

    def axis_values(self, name: str) -> list[Any]:
        """Return the recipe's values for a setting. An axis such as pretrain.lr or finetune.lr comes before lr."""
        stage, _, setting = name.partition(".")
        axes = [name]
        if stage in self.study.stages:
            axes = [name, setting]
        elif self.fine_tunes:
            axes = [f"{FINETUNE}.{name}", name]
        for axis in axes:
            if axis in self.recipe.axes:
                return self.recipe.axes[axis]
        raise ValueError(
            f"study '{self.study.name}' takes the values of {name} from the recipe, and recipe "
            f"'{self.recipe.name}' has no axis {name} (it has: {joined_names(self.recipe.axes) or 'none'}): "
            f"add to it `axes: {{{name}: [VALUE, ...]}}`"
        )

    # -- what the study measures ---------------------------------------------------------------------------------------

    @property
    def metric(self) -> str:
        """The study's metric. If its name ends in @axis or @patch-axis, this is the first of its `sized_names`."""
        return self.sized_names(self.study.primary_metric or self.trainable.default_metric)[0]

    @cached_property
    def secondary_metrics(self) -> list[str]:
        """The study's further metrics. A name that ends in @axis or @patch-axis stands for all of its `sized_names`."""
        names: list[str] = []
        for written in self.study.metrics[1:]:
            names += [name for name in self.sized_names(written) if name not in (*names, self.metric)]
        return names

    @cached_property
    def primary_metric(self) -> Metric:
        """The study's metric as the trials declare it."""
        declared = {metric.name: metric for metric in self.trainable.metrics([arm.config for arm in self.arms])}
        return declared.get(self.metric) or metric_by_name(self.metric)

    @property
    def margin(self) -> float | str | None:
        """The study's equivalence margin or, if it sets none, the recipe's. None if neither applies."""
        if self.study.margin is not None:
            return self.study.margin
        return self.applicable_recipe.margin

    @cached_property
    def required_evals(self) -> list[str]:
        """The names of the study's evals and of its metrics' evals. Raises ValueError if a name is unknown."""
        names: list[str] = []
        for written in self.study.evals:
            names += self.sized_names(written)
        names += filter(None, map(self.trainable.eval_of, (self.metric, *self.secondary_metrics)))
        for name in names:
            self.trainable.metrics_of(name)
        return list(dict.fromkeys(names))

    def sized_names(self, name: str) -> list[str]:
        """Return the names that a metric or eval stands for: `name` alone unless it ends in @axis or @patch-axis."""
        try:
            return self.trainable.eval_names(name, self.reference, self.axis_values)
        except ValueError as error:
            if str(error).startswith("axis "):
                raise ValueError(f"recipe '{self.recipe.name}': {error}") from None
            raise

    @cached_property
    def published(self) -> dict[str, float]:
        """The published numbers: arm name -> number."""
        return {self.arm_written_as(name): value for name, value in self.study.published.items()}

    @cached_property
    def claims(self) -> list[str]:
        """The distinct claims, with indices such as axis[-1] replaced."""
        claims: dict[str, None] = {}
        for written in self.study.claims:
            first, relation, second = parse_claim(written)
            claims[f"{self.arm_written_as(first)} {relation} {self.arm_written_as(second)}"] = None
        return list(claims)

    def with_values(self, name: str) -> str:
        return AXIS_INDEX.sub(lambda index: f"{index[1]}={self.axis_values(index[1])[int(index[2])]}", name)

    def arm_written_as(self, name: str) -> str:
        """Return the name of the arm that published numbers and claims call `name`.

        In `width=axis[-1]`, axis[-1] is the last of the recipe's widths. The arm's name has settings in the study's
        order, without factors at the baseline's values. Returns `name` if it has no index.
        """
        if not AXIS_INDEX.search(name):
            return name
        try:
            written = self.with_values(name)
        except IndexError:
            return name
        first, _, rest = written.partition(",")
        is_named = first in self.study.arms
        pieces = rest if is_named else written
        values = dict(piece.partition("=")[::2] for piece in pieces.split(","))
        if values.keys() - self.factors.keys() - self.curves.keys():
            return name
        point = {key: values[key] for key in self.curves if key in values}
        changed = {key: value for key, value in values.items() if value != str(self.baseline.get(key))}
        return arm_name(first if is_named else self.change_name(changed), point)

    # -- arms ----------------------------------------------------------------------------------------------------------

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

        Raises OSError or ModuleNotFoundError if files or packages are missing.
        """
        arms = [self.arm(change, point) for change, point in self.remaining_arms.values()]
        arm_by_trial: dict[str, Arm] = {}
        for arm in arms:
            try:
                first = arm_by_trial.setdefault(arm.id, arm)
            except (ModuleNotFoundError, OSError):
                raise
            except Exception as error:  # a user's part may raise anything while its options are checked
                reason = error if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
                raise ValueError(f"study '{self.study.name}', arm {arm.name}: {reason}") from error
            if first is not arm:
                raise self.mistake(same_trial(first, arm))
        return arms

    @cached_property
    def changes(self) -> list[Change]:
        """The changes of all arms in order. A baseline that is not listed comes first."""
        changes = self.factor_changes()
        for name, settings in self.named_arms.items():
            if name in changes:
                raise self.mistake(f"two arms are called {name}")
            changes[name] = Change(name, self.baseline | self.in_order(settings), settings, named=True)
        for written, settings in self.study.co_changes.items():
            try:
                named = self.with_values(written)
            except IndexError:
                raise self.mistake(f"with: {written}: recipe '{self.recipe.name}' has fewer values") from None
            matching = [change for change in changes.values() if change.sets_all(named)]
            if not matching:
                raise self.mistake(f"with: no arm changes {written}")
            for change in matching:
                co_changes = self.trainable.merge(change.co_changes, settings)
                changes[change.name] = replace(change, co_changes=co_changes)
        return list(changes.values())

    def factor_changes(self) -> dict[str, Change]:
        """Return the changes of factors and crosses: name -> change. Equal changes are returned once."""
        cells: list[Values] = []
        for name in self.study.factors:
            cells += points({name: self.factors[name]})
        for cross in self.crosses:
            cells += points(cross)
        varied: list[Values] = []
        for cell in cells:
            varied.append({name: value for name, value in cell.items() if value != self.baseline[name]})
        if {} not in varied:
            varied.insert(0, {})
        changes: dict[str, Change] = {}
        for values in varied:
            name = self.change_name(values)
            changes.setdefault(name, Change(name, self.baseline | values, self.in_order(values)))
        return changes

    def change_name(self, values: Values) -> str:
        """Return the name of the change that sets factors to `values`: the baseline's if there are none."""
        return assignments(self.in_order(values)) or self.baseline_name

    def in_order(self, values: Values) -> Values:
        return {name: values[name] for name in self.factors if name in values}

    @cached_property
    def remaining_arms(self) -> dict[str, tuple[Change, Values]]:
        """The arms that are not excluded: name -> (change, point). No baseline and no part of a grid is excluded."""
        remaining: dict[str, tuple[Change, Values]] = {}
        for change in self.changes:
            for point in points(self.curves):
                remaining[arm_name(change.name, point)] = (change, point)
        excluded: set[str] = set()
        for entry in self.study.exclude:
            excluded |= self.excluded_names(entry, remaining)
        for name in excluded:
            del remaining[name]
        if not remaining:
            raise self.mistake("exclude: leaves no arm")
        for name, (change, point) in remaining.items():
            baseline = arm_name(self.baseline_name, point)
            if baseline not in remaining:
                raise self.mistake(f"exclude: {baseline} is the baseline of {name}")
            if any(arm_name(change.name, point | tuned) not in remaining for tuned in points(self.tune)):
                raise self.mistake(
                    f"exclude: leaves {change.name} a part of the tuned grid: "
                    f"{joined_names(self.tune)} is chosen from the same values for every arm"
                )
        return remaining

    @cached_property
    def tuned_arms(self) -> dict[str, tuple[Change, Values]]:
        """The arms with tuned settings: name, such as pool=gap,lr=tuned -> (change, point of the other curves)."""
        tuned_arms: dict[str, tuple[Change, Values]] = {}
        if not self.tune:
            return tuned_arms
        first = points(self.tune)[0]
        for change in self.changes:
            for point in self.fixed_points:
                # A grid is excluded entirely or not at all.
                if arm_name(change.name, point | first) in self.remaining_arms:
                    tuned_arms[arm_name(change.name, point | self.tuned_point)] = (change, point)
        return tuned_arms

    @property
    def tuned_point(self) -> Values:
        """What the names of tuned arms have for the tuned settings."""
        return dict.fromkeys(self.tune, "tuned")

    @property
    def fixed_points(self) -> list[Values]:
        return points({name: values for name, values in self.curves.items() if name not in self.tune})

    @cached_property
    def data_names(self) -> dict[str, str]:
        """The data sets of a study of several: value -> the name in tables, which no other has."""
        key = self.trainable.data_key
        names: dict[str, str] = {}
        for value in self.curves.get(key, []):
            described = self.trainable.describe_data({**self.reference, key: value})
            if described:
                names[value] = described.name
        distinct = {}
        for value, name in names.items():
            alike = [other for other in names if names[other] == name]
            distinct[value] = name if len(alike) == 1 else distinct_part(value, alike)
        return distinct

    def excluded_names(self, entry: Values, pairs: Mapping[str, tuple[Change, Values]]) -> set[str]:
        keys = sorted({*self.factors, *self.curves, "arm"})
        for key in entry.keys() - keys:
            raise self.mistake(f"exclude: {unknown_key(key, keys, f': keys are {joined_names(keys)}')}")
        excluded = set()
        for name, (change, point) in pairs.items():
            if entry and entry.items() <= ({"arm": change.name} | change.values | point).items():
                excluded.add(name)
        if not excluded:
            raise self.mistake(f"exclude: no arm has {assignments(entry) or 'nothing'}")
        return excluded

    def arm(self, change: Change, point: Values) -> Arm:
        """Return the arm with a change at a point. Its steps meet the study's budget unless these set them.

        Raises ValueError if no steps meet it, a setting is invalid, or stages form a cycle.
        """
        name = arm_name(change.name, point)
        written = self.trainable.merge(self.base, point, change.settings, change.co_changes)
        settings, parent = self.stages.split_parent(written)
        fixed = {*change.declared_settings}
        if self.study.budget != "flops":
            fixed |= {*point}
        if not {"steps", "epochs"} & fixed:
            try:
                settings = self.trainable.meet_budget(self.study.budget, self.budget_reference(point), settings)
            except Exception as error:  # a user's part may raise anything while its FLOPs are counted
                raise ValueError(f"study '{self.study.name}', arm {name}: {error}") from error
        return Arm(
            name=name,
            settings=settings,
            trainable=self.trainable,
            parent=parent,
            baseline=arm_name(self.baseline_name, point),
            values=change.values | point,
            change=change,
        )

    def budget_reference(self, point: Values) -> Settings:
        """Return the config whose budget arms meet at a point: for FLOPs, the baseline's with its data and duration."""
        own = {key: point[key] for key in (self.trainable.data_key, "steps", "epochs") if key in point}
        if self.study.budget != "flops" or not own:
            return self.reference
        return self.baseline_trials(self.trainable.merge(self.base, own)).config

    @cached_property
    def main_baseline(self) -> str:
        """The baseline's name at the point with the values of `reference`, or else at the first remaining point."""
        at_reference = {name: self.baseline_value(name) for name in self.curves}
        baselines = [arm for arm in self.arms if arm.name == arm.baseline]
        for arm in baselines:
            if at_reference.items() <= arm.values.items():  # as in the study: 0, where the config has 0.0
                return arm.name
        return baselines[0].name

    def family_name(self, arm: Arm) -> str:
        """Return the name of the study's first model family whose settings match the arm's, or ""."""
        for name, wanted in self.study.families.items():
            if all(matches(arm.recorded.get(key), value) for key, value in wanted.items()):
                return name
        return ""


def distinct_part(path: str, paths: Sequence[str]) -> str:
    """Return what remains of one of several distinct paths without the folders with which all begin or end."""
    own = path.split("/")
    parts = [each.split("/") for each in paths]
    for end in (0, -1):
        while min(map(len, parts)) > 1 and len({each[end] for each in parts}) == 1:
            for each in (own, *parts):
                del each[end]
    return "/".join(own)


def same_trial(first: Arm, second: Arm) -> str:
    same = f"arms {first.name} and {second.name} are the same trial"
    differ = [key for key, value in first.config.items() if value != second.config[key]]
    if not differ:
        return same
    return f"{same}: they differ only in {joined_names(differ)}, which is how a trial runs, not what it learns"


def matches(value: Any, wanted: Any) -> bool:
    """Return whether `value` matches `wanted`: a value, a glob such as "timm/*", or a list of alternatives."""
    if isinstance(wanted, list):
        return any(matches(value, alternative) for alternative in wanted)
    if isinstance(value, str) and isinstance(wanted, str):
        return fnmatchcase(value, wanted)
    return bool(value == wanted)
