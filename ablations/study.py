"""Study and Recipe: what varies, and on what -> arms -> trials.

A study is one YAML file, a question; a recipe is one YAML file, a setting. Neither names the other: a recipe supplies
`axes`, the values that depend on the setting, to the studies that say `patch: axis`. Reading them loads no torch.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field

from ablations import stated, strict_yaml
from results import store
from vitcore.config import Config, ConfigError, Options, listed, merge, nearest

HERE = Path(__file__).parent
Values = dict[str, Any]
Axis = list[Any] | Literal["axis", "all"]  # its values; the recipe's axis; every entry of the slot's dict


class Study(Options):
    """What varies. `name` is the file's name."""

    name: str
    question: str
    source: str = ""
    found: str = ""  # what the source found
    baseline: Values
    factors: dict[str, Axis] = {}
    curves: dict[str, Axis] = {}
    arms: dict[str, Values] = {}
    metric: str = "test_accuracy"
    evals: list[str] = []  # to compute from the weights: fewshot, inspect, test@SIZE; the metric's own is among them
    margin: float | None = Field(default=None, gt=0)
    published: dict[str, float] = {}
    claims: list[str] = []
    figure: str = "intervals"


class Recipe(Options):
    """On what: data, size, schedule, seeds, and what that reaches and takes. `name` is the file's name."""

    name: str
    description: str
    config: Values
    seeds: int = Field(default=5, ge=1)
    axes: dict[str, list[Any]] = {}
    arms: dict[str, Values] = {}  # for the studies that say `arms: {NAME: axis}`
    margin: float | None = Field(default=None, gt=0)
    caveats: list[str] = []
    expected: list[stated.Expected] = []
    cost: stated.Costs = {}
    spread: stated.Spread | None = None
    resources: Values = {}  # what a SLURM profile leaves open, by the profile's own keys


Record = TypeVar("Record", Study, Recipe)


@dataclass(frozen=True)
class Arm:
    """One row of a study's table: the settings of its trials, and the arm it is compared with."""

    name: str
    baseline: str
    values: Values  # of every factor and curve
    settings: Values  # everything that is not a default, before the seed

    def trial(self, seed: int) -> Config:
        return Config(**merge(self.settings, {"seed": seed}))

    @cached_property
    def config(self) -> Config:
        """The arm at seed 0: what its model, cost and key are read from."""
        return self.trial(0)


# -- finding and reading the files -----------------------------------------------------------------------------------


def packaged(kind: str) -> list[str]:
    """Names of the packaged studies or recipes."""
    return sorted(path.stem for path in (HERE / kind).glob("*.yaml"))


def find(kind: str, name: str) -> Path:
    """A packaged name or a file. Raises ValueError with the nearest name."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        return path
    known = packaged(kind)
    if name not in known:
        single = {"studies": "study", "recipes": "recipe"}[kind]
        raise ValueError(f"unknown {single} '{name}'{nearest(name, known)} (known: {listed([*known, 'a .yaml file'])})")
    return HERE / kind / f"{name}.yaml"


def stem(name: str) -> str:
    """What a study or recipe, given by name or file, is called."""
    return Path(name).stem if name.endswith((".yaml", ".yml")) else name


def read_study(name: str) -> Study:
    path = find("studies", name)
    study = typed(Study, path)
    check_text_names(study, path)
    return study


def read_recipe(name: str) -> Recipe:
    path = find("recipes", name)
    recipe = typed(Recipe, path)
    for axis, values in recipe.axes.items():
        refuse_duplicates(path, axis, values)
    return recipe


def typed(record: type[Record], path: Path) -> Record:
    try:
        return record(**{"name": path.stem, **strict_yaml.read(path)})
    except ConfigError as error:
        raise ValueError(f"{path}: {error}") from None


def check_text_names(study: Study, path: Path) -> None:
    """Names in `published` and `claims` begin with something that varies; every list has distinct values."""
    varied = [*study.factors, *study.curves]
    for key in varied:
        refuse_unvariable(path, key)
    if not study.factors and not study.curves and not study.arms:
        raise ValueError(f"{path}: nothing varies: give factors, curves or arms")
    if clash := set(study.factors) & set(study.curves):
        raise ValueError(f"{path}: {listed(clash)} stands in factors and in curves")
    for axis, values in (study.factors | study.curves).items():
        if isinstance(values, list):
            refuse_duplicates(path, axis, values)
            if not values:
                raise ValueError(f"{path}: {axis} lists no value")
    names = [
        *study.published,
        *itertools.chain.from_iterable(claim_arms(claim, path) for claim in study.claims),
    ]
    for name in names:
        key = name.partition("=")[0]
        if key not in varied and name not in study.arms:
            raise ValueError(f"{path}: '{name}' names no arm: arms begin with one of {listed([*varied, *study.arms])}")


def refuse_unvariable(path: Path, key: str) -> None:
    """A factor or curve is a field of Config; what is sugar for several, or the pairing itself, cannot vary."""
    reasons = {
        "seed": "seeds are given with --seeds",
        "data_seed": "it is what pairs the arms",
        "model": "name width, depth, heads or patch, or give models as arms",
        "epochs": "give steps",
    }
    if key in reasons:
        raise ValueError(f"{path}: {key} cannot be a factor or curve: {reasons[key]}")
    if key not in Config.model_fields and "." not in key:
        raise ValueError(f"{path}: {key} is no setting{nearest(key, Config.model_fields)}")


def claim_arms(claim: str, where: object) -> tuple[str, str]:
    """'a < b' or 'a ~ b' -> (a, b)."""
    for sign in (" < ", " ~ "):
        left, found, right = claim.partition(sign)
        if found:
            return left.strip(), right.strip()
    raise ValueError(f"{where}: claim '{claim}' is neither 'arm < arm' nor 'arm ~ arm'")


def refuse_duplicates(path: Path, axis: str, values: Sequence[Any]) -> None:
    for position, value in enumerate(values):
        if value in values[:position]:
            raise ValueError(f"{path}: {axis} lists {value} twice")


# -- study x recipe -> arms ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Design:
    """A study on a recipe, with what the command line changed: the arms, in the table's order."""

    study: Study
    recipe: Recipe
    overrides: Values

    def __post_init__(self) -> None:
        for key in self.overrides:
            if key in self.varied or (key == "model" and self.varied.keys() & {"width", "depth", "heads", "patch"}):
                raise ValueError(
                    f"{key} is what the study '{self.study.name}' varies: it cannot be set on the command line"
                )
            if key in ("seed", "data_seed"):
                raise ValueError(f"{key}: the seeds of a study are set with --seeds N")
        for where, settings in (("recipe", self.recipe.config), *self.study.arms.items()):
            if "seed" in settings:
                raise ValueError(f"{where}: seed={settings['seed']}: the seeds of a study are set with --seeds N")

    @property
    def name(self) -> str:
        return plan_name(self.study.name, self.recipe.name, self.overrides)

    @cached_property
    def factors(self) -> dict[str, list[Any]]:
        return {name: self.axis(name, values) for name, values in self.study.factors.items()}

    @cached_property
    def curves(self) -> dict[str, list[Any]]:
        return {name: self.axis(name, values) for name, values in self.study.curves.items()}

    @property
    def varied(self) -> dict[str, Axis]:
        return self.study.factors | self.study.curves

    def axis(self, name: str, values: Axis) -> list[Any]:
        if values == "all":
            return entries(name)
        if values != "axis":
            return list(values)
        if name not in self.recipe.axes:
            raise ValueError(
                f"study '{self.study.name}' takes the values of {name} from the recipe, and recipe "
                f"'{self.recipe.name}' has no axis {name} (it has: {listed(self.recipe.axes) or 'none'})"
            )
        return self.recipe.axes[name]

    @cached_property
    def base(self) -> Values:
        """defaults < recipe < baseline < command line."""
        return merge(self.recipe.config, self.study.baseline, self.overrides)

    @cached_property
    def baseline(self) -> Values:
        """The baseline's own value of every factor."""
        config = Config(**self.base)
        return {name: value_of(config, name) for name in self.factors}

    @cached_property
    def arms(self) -> list[Arm]:
        """Raises ValueError for an arm that cannot be, or that is the same trial as another."""
        arms = [self.arm(change, point) for change in self.changes() for point in self.points()]
        refuse_twins(self.study, arms)
        return arms

    def changes(self) -> Iterator[tuple[str, Values, Values]]:
        """(name, values of the factors, settings) of every arm of a point; the baseline where it is first listed."""
        if not any(
            value in values for values, value in zip(self.factors.values(), self.baseline.values(), strict=True)
        ):
            yield assigned(self.baseline) or "baseline", self.baseline, {}
        baseline_listed = False
        for factor, values in self.factors.items():
            for value in values:
                if value != self.baseline[factor]:
                    yield assigned({factor: value}), self.baseline | {factor: value}, {factor: value}
                elif not baseline_listed:
                    baseline_listed = True
                    yield assigned(self.baseline), self.baseline, {}
        for name, settings in self.study.arms.items():
            changed = {key: value for key, value in settings.items() if key in self.factors}
            yield name, self.baseline | changed, settings

    def points(self) -> Iterator[Values]:
        """Every point of the curves; one empty point where there are none."""
        for values in itertools.product(*self.curves.values()):
            yield dict(zip(self.curves, values, strict=True))

    def arm(self, change: tuple[str, Values, Values], point: Values) -> Arm:
        name, values, settings = change
        suffix = f",{assigned(point)}" if point else ""
        own = assigned(self.baseline) or "baseline"
        return Arm(name + suffix, own + suffix, values | point, merge(self.base, point, settings))

    @cached_property
    def main_baseline(self) -> str:
        """The baseline arm at the recipe's own point of the curves, else at the first point."""
        own = Config(**self.base)
        points = list(self.points())
        point = {name: value_of(own, name) for name in self.curves}
        suffix = assigned(point if point in points else points[0])
        return ",".join(part for part in (assigned(self.baseline) or "baseline", suffix) if part)


def entries(slot: str) -> list[str]:
    """Every entry of the slot's dict, those of loaded plugins last. Raises ValueError for a setting that has none."""
    from vitcore.variants import VARIANTS  # late: the parts are torch modules

    if slot not in VARIANTS:
        raise ValueError(f"{slot}: all: only {listed(VARIANTS)} have entries to sweep")
    return list(VARIANTS[slot])


def value_of(config: Config, key: str) -> Any:
    """A setting's value; of an option of one variant, 'position.base', None where it is not set."""
    return config.options.get(key) if "." in key else getattr(config, key)


def plan_name(study: str, recipe: str, overrides: Values) -> str:
    """<study>@<recipe>[+<hash of overrides>]: the folder of the plan."""
    return f"{study}@{recipe}" + (f"+{store.checksum(overrides)[:6]}" if overrides else "")


def assigned(values: Mapping[str, Any]) -> str:
    """'key=value' joined by commas."""
    return ",".join(f"{key}={value}" for key, value in values.items())


def refuse_twins(study: Study, arms: Iterable[Arm]) -> None:
    """Two arms of one name or of one trial would be one row twice."""
    from vitcore.identity import trial_id  # late: reading studies loads no torch

    names: dict[str, str] = {}
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
