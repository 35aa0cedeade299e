"""What the engine asks of what it trains, and the ids of trials.

The engine knows settings (key -> value, plain JSON), seeds, ids, metrics, resources and outcomes. All else belongs to a
trainable. Settings are resolved: complete and valid.
"""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ablations.faults import Fault
from results import store
from results.store.schemas import Fact, PlannedData, Settings

if TYPE_CHECKING:
    import numpy as np

VIT = "ablations.trainables.vit:VIT"


@dataclass(frozen=True)
class Resources:
    """What a trial takes of a machine. gpus: the processes that train it together, each with a GPU unless `on_cpu`."""

    gpus: int = 1
    on_cpu: bool = True


@dataclass(frozen=True)
class Parent:
    """A finished trial that another starts or learns from. weights: the content of its file of weights."""

    settings: Settings
    weights: bytes


@dataclass(frozen=True)
class Context:
    """What training is given besides its settings, its run directory and its parents.

    plugins: the files of a user's own code. description: what the plan records of the trial's `describe`.
    should_stop: whether training must save a checkpoint and end. warn: shows a sentence to the user. on_hang: called
    with an error before training kills its own process, which cannot return.
    """

    data_dir: Path | None = None
    plugins: Sequence[str] = ()
    description: Settings = field(default_factory=dict)
    should_stop: Callable[[], bool] = lambda: False
    warn: Callable[[str], None] = lambda text: None
    on_hang: Callable[[Exception], None] = lambda error: None


@dataclass(frozen=True)
class Outcome:
    """How training ended. metrics: name -> value, empty unless finished. details: further content of result.json."""

    status: Literal["finished", "diverged", "stopped"]
    metrics: Mapping[str, float]
    train_seconds: float
    details: Mapping[str, Any] = field(default_factory=dict)

    def content(self) -> dict[str, Any]:
        own = {"status": self.status, "metrics": dict(self.metrics), "train_seconds": self.train_seconds}
        return {**self.details, **own}


@dataclass(frozen=True)
class EvalResult:
    """What an eval computed. notes: sentences, such as why a metric is missing. details: more content of its file."""

    metrics: Mapping[str, float]
    notes: Sequence[str] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    arrays: "Mapping[str, np.ndarray] | None" = None


class Trainable(Protocol):
    """What can be trained with settings and a seed.

    links: the settings that may name another trial, from which a trial starts or learns. seed_keys: `seed`, and the
    settings that equal it unless they are set.
    """

    links: Sequence[str]
    seed_keys: Collection[str]

    def resolve(self, settings: Mapping[str, Any]) -> Settings:
        """Return the settings with all defaults. Raises ValueError if a key or value is not valid."""

    def identity(self, settings: Settings) -> Settings:
        """Return what the trial's result depends on, from which its id is hashed. Loads and trains nothing."""

    def resources(self, settings: Settings) -> Resources: ...
    def evaluation_fraction(self, settings: Settings, data: PlannedData | None) -> float:
        """Return the time of evaluating a trial, as a fraction of its training time; 0 if unknown."""

    def check_machine(self, settings: Settings, description: Settings) -> None:
        """Raise ValueError if this machine lacks the GPU or memory to train a trial. description: as in Context."""

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

    def train(self, settings: Settings, run: store.Attempt, parents: Mapping[str, Parent], context: Context) -> Outcome:
        """Train a trial, from the newest checkpoint of `run` if there is one. parents: link -> parent."""

    def compute_eval(
        self, name: str, settings: Settings, weights: bytes, number: int | None, data_dir: Path | None
    ) -> EvalResult:
        """Compute the eval `name` from a finished trial's weights. number: replaces the number in the name, if given.

        Raises ValueError if the eval is unknown or does not apply, or if data are missing or damaged.
        """

    def fault(self, error: BaseException) -> Fault | None:
        """Return the classification of an exception that only the trainable knows, or None."""

    def release_memory(self) -> None:
        """Free memory of the GPU that this process keeps after a trial."""


def find(name: str) -> Trainable:
    """Return the trainable that `module:attribute` names; "" names VIT. Raises ValueError if there is none."""
    module, _, attribute = (name or VIT).partition(":")
    try:
        found: Trainable = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"trainable {name}: {error}: give module:attribute") from None
    return found


def is_trial_id(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{12}", value) is not None


def hashed(identity: Settings) -> str:
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def trial_id(trainable: Trainable, settings: Settings) -> str:
    """Return the id of the trial with these settings. Raises ValueError or OSError if a file of it is unreadable."""
    return hashed(trainable.identity(settings))
