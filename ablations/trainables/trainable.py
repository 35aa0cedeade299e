"""What the engine asks of what it trains, and the ids of trials.

The engine knows settings (plain JSON, complete and valid), seeds, ids, metrics, resources and outcomes, and no more.
"""

import hashlib
import json
import platform
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ablations.faults import Fault
from results import store
from results.store.schemas.base import Fact, Settings
from results.store.schemas.metrics import Metric
from results.store.schemas.plans import PlannedData, Split

if TYPE_CHECKING:
    import numpy as np

VIT = "ablations.trainables.vit.vit:VIT"
DESCRIBED = {  # kind -> the class that makes a trainable of its description
    "command": "ablations.trainables.command.command:Command",
    "function": "ablations.trainables.function:Function",
}
LINKS = ("init_from", "teacher")  # the settings by which a trial may name another, where a trainable has them


@dataclass(frozen=True)
class Resources:
    """What a trial takes of a machine. gpus: the processes that train it together, each with a GPU unless `on_cpu`."""

    gpus: int = 1
    on_cpu: bool = True
    threads: int | None = None


@dataclass(frozen=True)
class Parent:
    """A finished trial that another starts or learns from. weights: the content of its file of weights."""

    settings: Settings
    weights: bytes


@dataclass(frozen=True)
class TrainingContext:
    """The arguments of training beside settings, run directory and parents."""

    data_dir: Path | None = None
    plugins: Sequence[str] = ()  # the files of a user's own code
    description: Settings = field(default_factory=dict)  # what the plan records of the trial's `describe`
    should_stop: Callable[[], bool] = lambda: False  # whether to save a checkpoint and end
    warn: Callable[[str], None] = lambda text: None  # shows a sentence to the user
    on_hang: Callable[[Exception], None] = lambda error: None  # called before training kills its own process


@dataclass(frozen=True)
class TrainingOutcome:
    """How training ended. metrics: name -> value, empty unless finished. details: further content of result.json."""

    status: Literal["finished", "diverged", "stopped"]
    metrics: Mapping[str, float]
    train_seconds: float
    details: Mapping[str, Any] = field(default_factory=dict)

    def content(self) -> dict[str, Any]:
        measured = {"status": self.status, "metrics": dict(self.metrics), "train_seconds": self.train_seconds}
        return {**self.details, **measured}


@dataclass(frozen=True)
class EvalResult:
    """What an eval computed. notes: sentences, such as why a metric is missing. details: more content of its file."""

    metrics: Mapping[str, float]
    notes: Sequence[str] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    arrays: "Mapping[str, np.ndarray] | None" = None


@dataclass(frozen=True)
class Compared:
    """An arm, a baseline or a stage at seed 0. parent: the stage that its trials start or learn from, by `link`."""

    name: str
    settings: Settings
    declared: Sequence[str] = ()
    parent: "Compared | None" = None
    link: str = ""


@dataclass(frozen=True)
class NodeCheck:
    """A check whether a node can train. run: raises an exception if not. without: what a failure means, if not that."""

    run: Callable[[bool], None]
    without: str = ""


class Trainable(Protocol):
    """What can be trained with settings and a seed. A subclass gives `keys`, `resolve`, `train` and what it knows."""

    keys: Collection[str]  # the names of all settings
    default_metric: str  # of studies that name none
    seed_keys: Collection[str] = frozenset({"seed"})  # `seed`, and the settings that equal it unless they are set
    how_it_runs: Collection[str] = frozenset()  # settings that change nothing but rounding, and are no part of the id
    shorthands: Mapping[str, str] = MappingProxyType({})  # key -> the setting that it stands for
    bundles: Mapping[str, Collection[str]] = MappingProxyType({})  # key -> the settings that it sets together
    fixed: Mapping[str, str] = MappingProxyType({})  # settings that a study cannot vary -> why
    described: Collection[str] = ("params", "flops")  # what training needs of `describe`
    selection_metric: str = ""  # of validation, shown during training; chooses tuned values; "" for the study's metric
    progress: str = "progress"  # what an attempt that is killed has to bring so that another follows
    files: Sequence[str] = ()  # the user's code, whose edits change ids
    unseen: Sequence[str] = ()  # places in it that load further code
    stage_evals: Collection[str] = frozenset()  # evals that stages compute, not arms
    node_checks: Mapping[str, NodeCheck] = MappingProxyType({})  # what `ablate profile check` checks, by name
    data_key: str = ""  # the setting that names a data set, with its own test images; "" if there is none
    is_probed: bool = False  # whether short trials must show that seed and settings have an effect

    # -- settings ------------------------------------------------------------------------------------------------------

    def merge(self, *layers: Mapping[str, Any]) -> dict[str, Any]:
        """Return one mapping of layers of settings, later layers over earlier ones."""
        return {key: value for layer in layers for key, value in layer.items()}

    def resolve(self, settings: Mapping[str, Any]) -> Settings:
        """Return the settings with all defaults. Raises ValueError if a key or value is not valid."""
        ...

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Raise ValueError if a setting by itself has a wrong value. Quick: commands call it before all else."""

    def resolve_recipe(self, recipe: Mapping[str, Any], own: Settings) -> Settings:
        """Return a recipe's settings resolved, with defaults as they are for a trial with the settings `own`."""
        return self.resolve(recipe)

    def values(self, key: str) -> list[Any]:
        """Return all values that a setting can have. Raises ValueError if they cannot be listed."""
        raise ValueError(f"{key}: all: its values cannot be listed")

    def check_link(self, key: str, value: str) -> None:
        """Raise ValueError unless a setting in LINKS may have a value that names no stage."""
        raise ValueError(f"{key}={value}: names no stage")

    def is_shared(self, key: str) -> bool:
        """Return whether a stage has the value of a setting that the trials have which start from it."""
        return False

    def covers(self, declared: str, key: str) -> bool:
        """Return whether a declared change of one setting declares a change of another."""
        return key in (declared, self.shorthands.get(declared)) or key.partition(".")[0] == declared

    def data_name(self, settings: Mapping[str, Any]) -> str:
        """Return the name of the data that settings choose, which need not be complete; "" if there is no choice."""
        return ""

    def meet_budget(self, budget: str, reference: Settings, settings: dict[str, Any]) -> dict[str, Any]:
        """Return unresolved settings with the training budget of `reference`. Raises ValueError if none meets it."""
        if budget != "steps":
            raise ValueError(f"budget={budget}: is unknown here; leave it out")
        return settings

    # -- identity ------------------------------------------------------------------------------------------------------

    def identity(self, settings: Settings) -> Settings:
        """Return what the trial's result depends on, from which its id is hashed."""
        return {key: value for key, value in settings.items() if key not in self.how_it_runs}

    def fingerprints(self, values: Callable[[str], Iterable[str]]) -> Settings:
        """Return the state of all files that trials depend on. values: key -> all values that a plan has for it."""
        return {}

    def code_changes(self, earlier: str) -> str:
        """Return which of its files have changed since a plan recorded them, or "". earlier: the plan's `trainable`."""
        return ""

    def rounded_otherwise(self, settings: Settings) -> Settings | None:
        """Return settings of the same trial whose results differ by rounding alone, or None if there are none."""
        return None

    # -- plans ---------------------------------------------------------------------------------------------------------

    def describe(self, settings: Settings) -> Settings:
        """Return what is known of a trial: the fields `params`, `flops`, `train_flops` and others of a plan's entry."""
        return {}

    def describe_data(self, settings: Settings) -> PlannedData | None:
        return None

    def assume_data(self, name: str, facts: Mapping[str, int], data_dir: Path | None) -> str:
        """Plan with what a recipe states of its data if they are missing here. Return how to get them, else ""."""
        return ""

    def split(self, settings: Settings) -> Split | None:
        """Return how the test images are chosen, if there are any."""
        return None

    def summary(self, settings: Settings, recipe: str, recipe_text: str, has_stages: bool) -> str:
        """Return a sentence or two about data, model and training. recipe_text: the recipe's description, or ""."""
        return recipe_text.strip() or f"The recipe {recipe}."

    def notes(self, arm: Compared, baseline: Compared, budget: str) -> dict[str, str]:
        """Return footnotes on what differs beside the declared settings: note -> the measure it explains, or ""."""
        return {}

    def warnings(self, settings: Settings) -> list[str]:
        """Return what a user should know of a trial before it begins."""
        return []

    def check_trial(self, settings: Settings, parent: Settings | None) -> None:
        """Raise ValueError if a trial cannot be trained, or cannot start or learn from its parent."""

    def resources(self, settings: Settings) -> Resources:
        return Resources()

    # -- metrics and evals ---------------------------------------------------------------------------------------------

    def metrics(self, trials: Sequence[Settings]) -> list[Metric]:
        """Return the metrics that all of the trials report."""
        ...

    def known_evals(self) -> Sequence[str]:
        return ()

    def eval_names(self, name: str, reference: Settings, axis: Callable[[str], list[Any]]) -> list[str]:
        """Return the metrics or evals that a study's name stands for. axis: the recipe's values of a setting."""
        return [name]

    def eval_of(self, metric: str) -> str:
        """Return the name of the eval that computes a metric, or "" if no eval does."""
        return ""

    def metrics_of(self, eval_name: str) -> list[Metric]:
        """Return the metrics that an eval computes. Raises ValueError if it is unknown."""
        raise ValueError(f"evals: {eval_name}: there are none")

    def check_eval(self, name: str, settings: Settings) -> None:
        """Raise ValueError if an eval cannot be computed from a trial's weights."""

    def eval_caveats(self, names: Sequence[str], settings: Settings) -> list[str]:
        return []

    def compute_eval(
        self, name: str, settings: Settings, weights: bytes, number: int | None, data_dir: Path | None
    ) -> EvalResult:
        """Compute an eval from weights. number: replaces that in its name. Raises ValueError if it does not apply."""
        raise ValueError(f"evals: {name}: there are none")

    # -- time ----------------------------------------------------------------------------------------------------------

    def work(self, settings: Settings, flops: int | None) -> float:
        """Return what training time is in proportion to: FLOPs per process, or 1 if all trials take as long."""
        return 1.0

    def speed_settings(self, settings: Settings) -> tuple[Any, ...]:
        """Return the values of the settings that the time for an amount of work depends on most."""
        return ()

    def slowdown(self, settings: Settings, on_gpu: bool) -> tuple[float, str]:
        """Return a factor by which this machine is slower than others for a trial, and why. (1.0, "") if it is not."""
        return 1.0, ""

    def hardware(self, settings: Settings) -> tuple[bool, str]:
        """Return (whether it is a GPU, its name) for the device of this machine that a trial would train on."""
        return False, ""

    def evaluation_fraction(self, settings: Settings, images: PlannedData | None) -> float:
        """Return the time of evaluating a trial, as a fraction of its training time; 0 if unknown."""
        return 0.0

    def cheaper(self, settings: Settings, varied: Collection[str]) -> Iterable[tuple[float, str]]:
        """Yield (remaining fraction of the time, `key=value`) for changes of settings that are not `varied`."""
        return ()

    def step_settings(self, settings: Settings) -> Settings:
        """Return the settings that the time of a step depends on."""
        return settings

    def step_seconds(self, settings: Settings, data_dir: Path | None, teacher: Settings | None) -> float:
        """Return the measured seconds of a training step here. Raises ValueError if they cannot be measured."""
        raise ValueError("--probe: steps of these trials cannot be measured")

    # -- execution -----------------------------------------------------------------------------------------------------

    def check_machine(self, settings: Settings, description: Settings) -> None:
        """Raise ValueError if this machine lacks the GPU or memory to train. description: as in TrainingContext."""

    def check_data(self, trials: Sequence[Settings], to_train: Sequence[Settings], data_dir: Path | None) -> None:
        """Raise ValueError if data of the trials are missing or damaged, or OSError if they cannot be read.

        to_train: those of the trials that are not over.
        """

    def start_worker(self, plugins: Sequence[str], needs_gpu: bool) -> None:
        """Load what training needs into this process. Raises ValueError if a plug-in or the GPU cannot be used."""

    def environment(self, settings: Settings, needs_gpu: bool) -> dict[str, Fact]:
        """Return what an attempt records about hardware and libraries: `device`, `accelerator` and others.

        Raises ValueError if the machine lacks what the settings ask for, and RuntimeError if it has been lost.
        """
        return {"device": platform.processor() or platform.machine(), "accelerator": "cpu"}

    def train(
        self, settings: Settings, run: store.Attempt, sources: Mapping[str, Parent], context: TrainingContext
    ) -> TrainingOutcome:
        """Train a trial, from the newest checkpoint of `run` if there is one. sources: link -> parent."""
        ...

    def leftovers(self, attempt: Path) -> list[Path]:
        """Return files of a finished attempt that only its weights need, beside weights.safetensors."""
        return []

    def fault(self, error: BaseException) -> Fault | None:
        """Return the classification of an exception that only the trainable knows, or None."""
        return None

    def release_memory(self) -> None:
        """Free memory of the GPU that this process keeps after a trial."""


@lru_cache(maxsize=64)
def find(name: str) -> Trainable:
    """Return the trainable of a name: `module:attribute`, "" for VIT, or a kind of DESCRIBED, a blank and JSON.

    Raises ValueError if there is none, or if what is described is not valid.
    """
    kind, _, description = (name or VIT).partition(" ")
    module, _, attribute = DESCRIBED.get(kind, kind).partition(":")
    try:
        target = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"trainable {kind}: {error}: give module:attribute") from None
    return target.of_plan(description) if kind in DESCRIBED else target


def is_trial_id(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{12}", value) is not None


def hashed(identity: Settings) -> str:
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def trial_id(trainable: Trainable, settings: Settings) -> str:
    """Return the id of the trial with these settings. Raises ValueError or OSError if a file of it is unreadable."""
    return hashed(trainable.identity(settings))


def arm_key(trainable: Trainable, settings: Settings) -> str:
    """Return the identifier that all trials of an arm share. settings: the arm's at seed 0."""
    return hashed(unseeded_identity(trainable, settings))


def unseeded_identity(trainable: Trainable, settings: Settings) -> Settings:
    return {key: value for key, value in trainable.identity(settings).items() if key not in trainable.seed_keys}


def trial_ids(
    trainable: Trainable,
    settings: Settings,
    seeds: Iterable[int],
    fixed: Mapping[str, int],
    parents: Mapping[int, str] | None = None,
    link: str = "",
) -> Iterator[str]:
    """Yield the id of a trial for each of `seeds`. settings: at seed 0. parents: seed -> id of the parent trial.

    fixed: the `seed_keys` that are set, which do not follow the seed. link: the setting that names the parent.
    """
    shared = unseeded_identity(trainable, settings)
    for seed in seeds:
        identity = {**shared, "seed": seed}
        identity |= {key: value for key, value in fixed.items() if value != seed}  # left out if equal to the seed
        if parents:
            identity[link] = parents[seed]
        yield hashed(identity)
