"""The layers of settings in a study on a recipe: recipe, stages, baseline, named arms and command line."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ablations.study import key_checks
from ablations.study.arms import TrialTemplate, Values
from ablations.study.recipe import Recipe
from ablations.study.stages import FINETUNE, Stages, stage_settings
from ablations.study.study import RECIPE_ARM, Study, without_recipe_arm
from ablations.trainables.trainable import LINKS, Trainable, arm_key, find
from commonfloor.messages import joined_names
from results.store.schemas import Settings


@dataclass(frozen=True)
class Layers:
    """The settings of baseline, named arms and stages that follow from a study, a recipe and the command line."""

    study: Study
    recipe: Recipe
    overrides: Values

    def __post_init__(self) -> None:
        """Check the command line's settings and the recipe's stages.

        Raises ValueError if the command line sets a seed or what the study varies. Also raises it if the study
        fine-tunes but the recipe has no `finetune`, and raises the errors of `check_overrides`.
        """
        if self.fine_tunes and FINETUNE not in self.recipe.stages:
            raise ValueError(
                f"study '{self.study.name}' fine-tunes, but recipe '{self.recipe.name}' does not say how: add to it "
                "`stages: {finetune: {}}`, which trains as its config says; recipe digits has other settings"
            )
        varied = set(self.study.varied_settings)
        for key in self.overrides:
            setting = key.removeprefix(f"{FINETUNE}.") if self.study.stages else key
            if varied.intersection([setting, *self.trainable.bundles.get(setting, ())]):
                raise ValueError(
                    f"{key} is what the study '{self.study.name}' varies: not a setting of the command line"
                )
            if setting in self.trainable.seed_keys:
                raise ValueError(f"{key}: the seeds of a study are set with --seeds N")
        if self.study.stages:
            key_checks.check_overrides(self.study, self.overrides, self.trainable)

    @cached_property
    def trainable(self) -> Trainable:
        return find(self.recipe.trainable)

    @cached_property
    def fine_tunes(self) -> bool:
        """Whether arms start from stages, and so train with the recipe's `finetune` settings."""
        return any(key == "init_from" and value in self.study.stages for key, value in self.study.starts())

    @cached_property
    def named_arms(self) -> dict[str, Values]:
        """The named arms: name -> settings. Raises ValueError if the recipe lacks an arm that the study takes."""
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
    def base(self) -> Values:
        """The settings that arms start from.

        Later sources override earlier ones: recipe, the recipe's `finetune` (only if arms start from stages), the
        recipe's arm, baseline, command line, finetune.KEY. Raises ValueError if the recipe lacks the arm.
        """
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
        """The study's stages, to which an arm may add settings such as pretrain.lr.

        Precedence: recipe < the recipe's settings of the stage < command line < the study's settings of the stage.
        """
        names = {*self.study.stages, FINETUNE}
        for_all = {key: value for key, value in self.overrides.items() if key.partition(".")[0] not in names}
        shared = {key: value for key, value in for_all.items() if self.applies_to_stages(key)}
        of_stages = {}
        for name, written in self.study.stages.items():
            of_stages[name] = self.trainable.merge(self.recipe.stages.get(name, {}), shared, written)
        varied = dict.fromkeys(self.study.varied_settings)
        for settings in (*self.named_arms.values(), *self.study.co_changes.values()):
            varied |= dict.fromkeys(settings)
        base = self.trainable.merge(self.recipe.config, for_all)
        return Stages(self.trainable, base, of_stages, tuple(varied), shared)

    def applies_to_stages(self, key: str) -> bool:
        """Return whether a command-line setting applies to all stages. Links and shared settings do not."""
        return key not in (*self.trainable.bundles, *LINKS) and not self.trainable.is_shared(key)

    @cached_property
    def reference_trials(self) -> TrialTemplate:
        """The baseline's trials, without a point of the curves. Its config may be invalid."""
        settings, parent = self.stages.split_parent(self.base)
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
        Raises ValueError if the config of the baseline or of a stage that it uses is not valid.
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
