"""The layers of settings in a study on a recipe: recipe, stages, baseline, named arms and command line."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ablations.study import key_checks, stages
from ablations.study.recipe import Recipe
from ablations.study.stages import FINETUNE, Values
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
        varied = self.study.varied_settings
        for key in self.overrides:
            own = key.removeprefix(f"{FINETUNE}.") if self.study.stages else key
            if own in varied or set(varied).intersection(self.trainable.bundles.get(own, ())):
                raise ValueError(
                    f"{key} is what the study '{self.study.name}' varies: not a setting of the command line"
                )
            if own in self.trainable.seed_keys:
                raise ValueError(f"{key}: the seeds of a study are set with --seeds N")
        if self.study.stages:
            key_checks.check_overrides(self.study, self.overrides, self.trainable.keys)

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
        found = {}
        for name, settings in self.study.arms.items():
            if settings == "axis":
                found[name] = self.recipe_arm(name, "arm")
            else:
                first = self.recipe_arm(str(settings[RECIPE_ARM]), "arm") if RECIPE_ARM in settings else {}
                found[name] = self.trainable.merge(first, without_recipe_arm(settings))
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
    def base(self) -> Values:
        """The settings that arms start from.

        Later sources override earlier ones: recipe, the recipe's `finetune` (only if arms start from stages), the
        recipe's arm, baseline, command line, finetune.KEY. Raises ValueError if the recipe lacks the arm.
        """
        recipe_arm = self.recipe_arm(self.study.recipe_arm, "baseline") if self.study.recipe_arm else {}
        if not self.study.stages:
            return self.trainable.merge(self.recipe.config, recipe_arm, self.study.baseline, self.overrides)
        mine = stages.stage_settings(FINETUNE, self.overrides)
        rest = {key: one for key, one in self.overrides.items() if key.partition(".")[0] != FINETUNE}
        last = self.recipe.stages[FINETUNE] if self.fine_tunes else {}
        return self.trainable.merge(self.recipe.config, last, recipe_arm, self.study.baseline, rest, mine)

    @cached_property
    def starting_stages(self) -> stages.Stages:
        """The stages before settings such as pretrain.lr on the command line apply.

        Precedence: recipe < the recipe's settings of the stage < command line < the study's settings of the stage.
        """
        alone = {*self.study.stages, FINETUNE}
        plain = {key: one for key, one in self.overrides.items() if key.partition(".")[0] not in alone}
        base, recipe = self.trainable.merge(self.recipe.config, plain), self.recipe.stages
        shared = {key: one for key, one in plain.items() if self.applies_to_stages(key)}
        own = {
            name: self.trainable.merge(recipe.get(name, {}), shared, mine) for name, mine in self.study.stages.items()
        }
        joint = [key for layer in [*self.named_arms.values(), *self.study.co_changes.values()] for key in layer]
        return stages.Stages(
            self.trainable, base, own, tuple(dict.fromkeys([*self.study.varied_settings, *joint])), shared
        )

    def applies_to_stages(self, key: str) -> bool:
        """Return whether a command-line setting applies to all stages. Links and shared settings do not."""
        return key not in (*self.trainable.bundles, *LINKS) and not self.trainable.is_shared(key)

    @cached_property
    def reference(self) -> Settings:
        """The baseline's settings at seed 0, without a point of the curves. Raises ValueError if they are invalid."""
        settings, parent = self.starting_stages.split_parent(self.base)
        try:
            return stages.resolved(self.trainable, settings, parent, 0)
        except ValueError as error:
            key, own = str(error).partition("=")[0], stages.stage_settings(FINETUNE, self.overrides)
            if self.study.stages and key in own:
                raise type(error)(f"{FINETUNE}.{error}") from None
            written = {f"study '{self.study.name}', baseline": self.study.baseline}
            written[f"recipe '{self.recipe.name}'"] = self.recipe.config
            where = [name for name, layer in written.items() if key in layer.keys() - self.overrides.keys()]
            raise type(error)(": ".join([*where[:1], str(error)])) from None

    @cached_property
    def recipe_key(self) -> str:
        """The key of an arm with the recipe's own settings."""
        return arm_key(self.trainable, self.trainable.resolve(self.recipe.config))

    @cached_property
    def parent(self) -> stages.Stage | None:
        """The stage that the baseline starts or learns from, or None."""
        return self.starting_stages.split_parent(self.base)[1]

    def baseline_value(self, key: str) -> Any:
        """Return the value that a setting has in the baseline, before a point of the curves is applied.

        For a setting of a stage that the baseline does not use, returns the value that `base` has for it, or None.
        Raises ValueError if the config of the baseline or of a stage that it uses is not valid.
        """
        used = {one.stage for one in stages.lineage(self.parent)}
        if key.partition(".")[0] in self.study.stages.keys() - used:
            return self.base.get(key)
        return stages.value(self.reference, self.parent, key)

    @property
    def data(self) -> str:
        return self.trainable.data_name(self.base)

    @cached_property
    def uses_recipe_data(self) -> bool:
        """Whether baseline and stages use the data that the recipe names for them."""
        config, said = self.recipe.config, self.recipe.stages
        name = self.trainable.data_name
        pairs = [(self.base, said[FINETUNE] if self.fine_tunes else {})]
        pairs += [(one.settings, said[one.stage]) for one in stages.lineage(self.parent) if one.stage in said]
        return all(name(mine) == name(self.trainable.merge(config, own)) for mine, own in pairs)

    @cached_property
    def applicable_recipe(self) -> Recipe:
        """The recipe with only the statements that hold for the data of baseline and stages."""
        return self.recipe if self.uses_recipe_data else self.recipe.on_other_data()
