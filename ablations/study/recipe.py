"""The keys of a recipe's YAML file, which names no study.

A recipe supplies `axes`: lists of values for settings, which a study uses by `patch: axis`. This module loads no
torch.
"""

from typing import Any

from pydantic import Field, field_validator

from ablations.study import recipe_facts
from ablations.study.stages import Values
from slurm.profiles.profile import Profile
from vitcore.options import Options

# Statements that hold for the recipe's data only. `cost` holds for its model and a device, whatever the images.
OF_ITS_DATA = ("description", "pack", "margin", "caveats", "expected", "spread", "at_twice_the_steps")


class Recipe(Options):
    """A recipe: data, model size, schedule, seeds, resources and expected results."""

    name: str  #: Name of the recipe, by default the file's name.
    description: str  #: A description of data, model and training, for the top of tables and reports.
    config: Values  #: Settings of every trial.
    pack: recipe_facts.Packed | None = None  #: Facts about the packed data, so that `plan` works before packing.
    seeds: int = Field(default=5, ge=1, le=10_000)  #: Seeds per arm.
    axes: dict[str, list[Any]] = {}  #: Values of settings, for the studies that say `axis`.
    arms: dict[str, Values] = {}  #: Settings of arms, for the studies that name an arm of the recipe.
    #: Settings of the stages in studies. `finetune` has the settings of arms that start from stages.
    stages: dict[str, Values] = {}
    margin: float | None = Field(default=None, gt=0)  #: The equivalence margin of studies that set none.
    caveats: list[str] = []  #: Warnings to readers, which tables and reports print.
    expected: list[recipe_facts.Expected] = []  #: Expected results of its trials.
    cost: recipe_facts.Costs = {}  #: The training time of a trial on a CPU and on a GPU.
    #: How much paired differences vary over seeds. `plan` uses it before there are results.
    spread: recipe_facts.Spread | None = None
    #: Differences after twice the steps. Tables footnote an arm whose difference changes sign.
    at_twice_the_steps: recipe_facts.AtTwiceTheSteps | None = None
    #: Resources that a SLURM profile leaves unset: nodes, gpus, gpu_type, trials_per_gpu, cpus, memory, time and
    #: task_minutes.
    resources: Values = {}

    @field_validator("resources")
    @classmethod
    def _resources(cls, values: Values) -> Values:
        Profile.check_resources(values)
        return values

    def on_other_data(self) -> "Recipe":
        """Return the recipe without the statements that hold only for its data."""
        blank = Recipe(name=self.name, description="", config=self.config)
        return self.model_copy(update={name: getattr(blank, name) for name in OF_ITS_DATA})
