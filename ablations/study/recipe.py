"""The keys of a recipe's YAML file, and the facts that a recipe states with their sources, without torch."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from ablations.study.arms import Values
from ablations.trainables.command.command import Allowed, CommandDescription, is_command
from ablations.trainables.command.template import SPELLING
from ablations.trainables.function import FunctionDescription, is_function
from ablations.trainables.user_code import Reported, check_measure
from commonfloor.options import Options
from results.store.schemas.metrics import Margin
from results.store.schemas.plans import LaterDifference
from results.store.schemas.stated import Expected, Stated, StatedSpread, Took
from slurm.profile import Profile

# The keys of statements that hold only for the recipe's data. `cost` holds for other images too.
OF_ITS_DATA = ("description", "pack", "margin", "caveats", "expected", "spread", "at_twice_the_steps")
OF_CODE = ("folder", "code", "metrics")  # keys that describe training code of the user's
OF_COMMANDS = ("settings", "spelling")  # keys that describe a command alone
Count = Annotated[int, Field(ge=1)]
Difference = Annotated[float, Field(gt=-1, lt=1)]


class Packed(Options):
    """The facts about the recipe's packed data that a plan needs before the pack is made."""

    train: Count  #: Number of training images.
    test: Count  #: Number of test images.
    classes: Count  #: Number of classes.
    image_size: Count = 224  #: Pixels per side of the square images in training and evaluation.
    channels: Literal[1, 3] = 3  #: 1 for gray images, 3 for RGB.


class AtTwiceTheSteps(Stated):
    """Differences of a metric between arms and the recipe's config after twice the recipe's steps.

    If a difference changes sign, the arms differ in how fast they learn, not in what they reach.
    """

    metric: str = "test_accuracy"  #: The metric's name. Differences in accuracy are fractions.
    n: Count | None = None  #: Number of seeds per arm.
    differences: dict[str, Difference]  #: Arm name in tables -> difference from the recipe's config.
    resolved: list[str] = []  #: The arms whose difference is resolved after twice the steps.

    def difference(self, arm: str) -> LaterDifference | None:
        if arm not in self.differences:
            return None
        origin = self.origin + (f", n = {self.n}" if self.n else "")
        return LaterDifference(difference=self.differences[arm], origin=origin, resolved=arm in self.resolved)


class Recipe(Options):
    """A recipe: data, model size, schedule, seeds, resources and expected results."""

    name: str  #: Name of the recipe, by default the file's name.
    description: str  #: A description of data, model and training, for the top of tables and reports.
    config: Values = {}  #: Settings of every trial. Only functions, which have defaults, can do without.
    #: What trials train: a command line with settings in braces, as in `python train.py --lr {lr}`, a function, as in
    #: `train.py:train`, or `module:attribute`. By default, Vision Transformers.
    train: str = ""
    folder: str = "."  #: The folder of a command or function, relative to the recipe's file.
    settings: dict[str, Allowed] = {}  #: The values that a command's settings may have. Types follow from `config`.
    spelling: str = SPELLING  #: How `{settings}` in a command spells each setting, as in `{key}={value}`.
    code: list[str] = []  #: Further files and folders that the results depend on.
    metrics: dict[str, Reported] = {}  #: What the code reports. The first is the metric of studies that name none.
    #: How seeds of arms belong together in a command or function: `no` if equal seeds share nothing. Differences are
    #: then tested unpaired, by Welch's test.
    paired: Literal["by-seed", "no"] = "by-seed"
    #: Settings that make a trial short, as in `{steps: 20}`, by which `ablate run` first tries what a command or
    #: function makes of its seed and of every arm.
    probe: Values = {}
    inert: list[str] = []  #: Settings without effect in a probe, such as the end of a long warm-up.
    pack: Packed | None = None  #: Facts about the packed data, so that `plan` works before packing.
    seeds: int = Field(default=5, ge=1, le=10_000)  #: Seeds per arm.
    axes: dict[str, list[Any]] = {}  #: Values of settings, for the studies that say `axis`.
    arms: dict[str, Values] = {}  #: Settings of arms, for the studies that name an arm of the recipe.
    #: Settings of the stages in studies. `finetune` has the settings of arms that start from stages.
    stages: dict[str, Values] = {}
    #: The equivalence margin of studies that set none: a difference, or a share of the baseline's error as in `25%`.
    margin: Margin | None = None
    caveats: list[str] = []  #: Warnings to readers, which tables and reports print.
    expected: list[Expected] = []  #: Expected results of the recipe's trials.
    #: The training time of a trial on a CPU (`cpu`, in float32) and on a GPU (`gpu`). Evaluations do not count.
    cost: dict[Literal["cpu", "gpu"], Took] = {}
    #: How much differences vary over seeds. `plan` uses it before there are results.
    spread: StatedSpread | None = None
    #: Differences after twice the steps. Tables footnote an arm whose difference changes sign.
    at_twice_the_steps: AtTwiceTheSteps | None = None
    #: Resources that a SLURM profile leaves unset: nodes, gpus, gpu_type, trials_per_gpu, cpus, memory, time and
    #: task_minutes.
    resources: Values = {}

    @field_validator("resources")
    @classmethod
    def _resources(cls, values: Values) -> Values:
        Profile.check_resources(values)
        return values

    @property
    def is_of_user(self) -> bool:
        """Whether trials train code of the user's: a command or a function."""
        return is_command(self.train) or is_function(self.train)

    @property
    def trainable(self) -> str:
        """The name of what trials train, for `trainable.find`. Raises ValueError if a key is not for it."""
        refused: tuple[str, ...] = (*OF_COMMANDS, *OF_CODE)
        if is_command(self.train):
            refused = ()
        elif is_function(self.train):
            refused = OF_COMMANDS
        for key in refused:
            if getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(f"{key}: is for a command: write its command line into `train`")
        if not self.is_of_user:
            if self.paired == "no":
                raise ValueError("paired=no: is for a command or function: here, equal seeds share initial values")
            return self.train
        if is_function(self.train) and any(metric.printed for metric in self.metrics.values()):
            raise ValueError("metrics: printed: is for a command: a function returns its metrics")
        for name, metric in self.metrics.items():
            check_measure(name, metric)
        given = {key: getattr(self, key) for key in ("train", "config", *OF_CODE)}
        given["gpus"] = self.resources.get("gpus", 0)
        if is_function(self.train):
            return FunctionDescription(**given).current().name
        return CommandDescription(**given, settings=self.settings, spelling=self.spelling).current().name

    def on_other_data(self) -> "Recipe":
        """Return the recipe without the statements that hold only for its data."""
        blank = Recipe(name=self.name, description="", config=self.config)
        return self.model_copy(update={name: getattr(blank, name) for name in OF_ITS_DATA})
