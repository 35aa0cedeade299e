"""Training code of the user's: what a recipe says of a command or a function, and what both are as trainables.

A plan records the description, so that only training needs the files of the code.
"""

import hashlib
import math
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import ValidationError, model_validator

from ablations import faults
from ablations.faults import Fault
from ablations.trainables.trainable import Resources, Trainable, TrainingContext, TrainingOutcome, find
from commonfloor.messages import listed
from commonfloor.metrics import ACCURACY
from commonfloor.options import Options, explain
from results.store import is_run_directory
from results.store.schemas.base import Fact, Settings
from results.store.schemas.metrics import (
    EXACT,
    MEASURES,
    PER_IMAGE,
    Metric,
    is_share_right,
    metric_by_name,
    share_right,
)

if TYPE_CHECKING:
    import numpy as np

SKIPPED = ("__pycache__", "node_modules")  # folders that are no code, besides hidden ones
FOLDER = "folder"  # in an attempt: where its code writes
LARGE = 1 << 20  # bytes of a file in that folder that is only kept with the weights
SHORT = 8  # digits of a file's digest in a plan
MOST_CODE = 1 << 28  # bytes
NOT_REPORTED = [name for name in MEASURES if name not in (*EXACT, "images_per_second")]  # measured for all code


class Reported(Options):
    better: Literal["higher", "lower"]  #: Which values are better.
    #: Text after a printed number, such as `ms`. A `fraction` is a number from 0 to 1 and is printed in percent.
    unit: str = ""
    #: The text before the number in what a command prints, as `test loss:`. The last such number counts. Without it,
    #: the command prints `METRIC name=number`.
    printed: str = ""

    #: Whether it is the share of test images that `correct.npz` has as right. By default, `test_accuracy` is.
    per_image: bool = False

    @model_validator(mode="after")
    def _accuracy(self) -> Self:
        if self.per_image and (self.better, self.unit) != ("higher", "fraction"):
            raise ValueError("per_image: is for an accuracy: {better: higher, unit: fraction, per_image: true}")
        return self

    def metric(self, name: str) -> Metric:
        if name in EXACT:
            return metric_by_name(name)
        higher = self.better == "higher"
        if self.unit == "fraction":
            is_accuracy = self.per_image or (higher and name.endswith("accuracy"))
            content = {**ACCURACY, "higher_is_better": higher, "is_accuracy": is_accuracy}
            if self.per_image:
                content["per_image"] = True
            return Metric(name=name, **content)
        unit = ""
        if self.unit:
            unit = f" {self.unit}"
        return Metric(name=name, higher_is_better=higher, unit=unit, unit_of_difference=unit)


class Description(Options):
    """What a recipe says of training code, and what the code is."""

    kind: ClassVar[str]

    train: str
    folder: str  # where it runs
    config: dict[str, Any]
    code: list[str] = []
    metrics: dict[str, Reported] = {}
    gpus: int = 0
    files: list[str] = []  # relative to the folder
    digest: str = ""  # of their content
    file_digests: list[str] = []  # of each, by which edits are named; plans before 0.27 have none

    @property
    def name(self) -> str:
        return f"{self.kind} {self.model_dump_json()}"

    def current(self) -> Self:
        """Return the description with its files as they are now. Raises ValueError if one is missing."""
        raise NotImplementedError

    def with_files(self, files: Mapping[str, Path]) -> Self:
        """Return the description with files (name -> path) and their digest. Raises ValueError if they are large."""
        if sum(path.stat().st_size for path in files.values()) > MOST_CODE:
            raise ValueError(f"code: more than {MOST_CODE >> 20} MiB: name the files that are code")
        names = sorted(files)
        whole = hashlib.sha256()
        digests = []
        for name in names:
            digest = file_digest(files[name])
            digests.append(digest[:SHORT])
            whole.update(f"{name}\0{digest}\0".encode())
        code = whole.hexdigest()[:12]
        return self.model_copy(update={"files": names, "digest": code, "file_digests": digests})

    def changes(self, earlier: "Description") -> str:
        """Return which files differ from those of an earlier description, such as "edited: train.py", or ""."""
        now = dict(zip(self.files, self.file_digests, strict=True))
        if len(earlier.files) != len(earlier.file_digests):  # of an earlier version
            return "" if self.digest == earlier.digest else f"some of {listed(self.files)}"
        before = dict(zip(earlier.files, earlier.file_digests, strict=True))
        kinds = {
            "edited": [name for name in self.files if before.get(name, now[name]) != now[name]],
            "added": sorted(now.keys() - before.keys()),
            "removed": sorted(before.keys() - now.keys()),
        }
        return "; ".join(f"{kind}: {listed(names)}" for kind, names in kinds.items() if names)

    @property
    def printed_text(self) -> str:
        """The metrics that are read after a text, such as "loss: 'test loss:'", or "none printed"."""
        texts = [f"{name}: {metric.printed!r}" for name, metric in sorted(self.metrics.items()) if metric.printed]
        return ", ".join(texts) or "none printed"

    @property
    def code_paths(self) -> dict[str, Path]:
        """The files of `code`: name relative to the folder -> path. Raises ValueError if one is missing."""
        paths: list[Path] = []
        for name in self.code:
            if not (Path(self.folder) / name).exists():
                raise ValueError(f"code: {name}: no such file or folder in {self.folder}")
            paths += code_files(Path(self.folder) / name)
        return {os.path.relpath(path, self.folder): path for path in paths}


class Failed(RuntimeError):
    """Raised if training code fails in a way that its message says in full."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.fault = Fault(kind, says_all=True)


class UserCode(Trainable):
    is_probed = True
    described = ()
    description: ClassVar[type[Description]]

    @classmethod
    def of_plan(cls, content: str) -> Self:
        try:
            return cls(cls.description.model_validate_json(content))
        except ValidationError as error:
            raise ValueError(explain(error, cls.description)) from None

    def __init__(self, about: Description) -> None:
        self.about = about
        if not about.metrics:
            raise ValueError("metrics: name what the code reports, as in {accuracy: {better: higher}}")
        declared = [name for name, reported in about.metrics.items() if reported.per_image]
        if len(declared) > 1:
            raise ValueError(f"metrics: per_image: for one metric, not {' and '.join(declared)}")
        self.per_image = PER_IMAGE
        if declared:
            self.per_image = declared[0]
        self.default_metric = next(iter(about.metrics))
        self.files = about.files

    def check_link(self, key: str, value: str) -> None:
        return

    def fingerprints(self, values: Callable[[str], Iterable[str]]) -> Settings:
        return {"code": self.about.digest}

    def metrics(self, trials: Sequence[Settings]) -> list[Metric]:
        return [reported.metric(name) for name, reported in self.about.metrics.items()]

    def resources(self, settings: Settings) -> Resources:
        return Resources(max(1, self.about.gpus), on_cpu=self.about.gpus == 0)

    def hardware(self, settings: Settings) -> tuple[bool, str]:
        if self.about.gpus:
            return True, ""
        return False, processor()

    def environment(self, settings: Settings, needs_gpu: bool) -> dict[str, Fact]:
        accelerator = "cuda" if self.about.gpus else "cpu"
        return {"device": processor(), "accelerator": accelerator, "ranks": max(1, self.about.gpus)}

    def check_answers(self, right: "np.ndarray | None", outcome: TrainingOutcome, context: TrainingContext) -> None:
        """Warn if whether each test image was classified right (images,) will not count. right: None if unknown."""
        numbers = outcome.metrics
        if right is None or not numbers:
            return
        if self.per_image in numbers:
            if is_share_right(right, numbers[self.per_image]):
                return
            reason = f"its mean is {share_right(right):.4f}, {self.per_image} is {numbers[self.per_image]:.4f}"
        else:
            reason = "no metric of the recipe has `per_image: true`"
            equal_metrics = [name for name, value in numbers.items() if is_share_right(right, value)]
            if equal_metrics:
                reason += f"; its mean is {equal_metrics[0]}"
        context.warn(f"correct.npz is not used: {reason}")

    def check_data(self, trials: Sequence[Settings], to_train: Sequence[Settings], data_dir: Path | None) -> None:
        if to_train:
            self.check_files()

    def check_files(self) -> None:
        """Raise ValueError if the code cannot run here, or is no longer that of the plan."""
        if not Path(self.about.folder).is_dir():
            raise ValueError(f"{self.about.folder}: the folder of the code is not on this machine")
        now = self.about.current()
        if now.digest != self.about.digest:
            raise ValueError(
                f"train: the code has changed since the study was planned ({now.changes(self.about)}): "
                "undo that, or plan it anew with --prune (results stay)"
            )

    def code_changes(self, earlier: str) -> str:
        other = find(earlier)
        if not isinstance(other, UserCode):
            return ""
        changes = [self.about.changes(other.about)]
        if self.about.train != other.about.train:
            changes.append(f"train: {other.about.train} -> {self.about.train}")
        if self.about.printed_text != other.about.printed_text:
            changes.append(f"metrics: {other.about.printed_text} -> {self.about.printed_text}")
        return "; ".join(filter(None, changes))

    def ensure_files(self) -> None:
        try:
            self.check_files()
        except ValueError as error:
            raise Failed(str(error), faults.INPUT) from None

    def leftovers(self, attempt: Path) -> list[Path]:
        large = []
        for path in sorted((attempt / FOLDER).rglob("*")):
            if path.is_file() and not path.is_symlink() and path.stat().st_size > LARGE:
                large.append(path)
        return large

    def fault(self, error: BaseException) -> Fault | None:
        return error.fault if isinstance(error, Failed) else None


def check_measure(name: str, reported: Reported) -> None:
    """Raise ValueError if a metric has the name of a measure that code cannot report, or not in this unit."""
    if name in NOT_REPORTED:
        raise ValueError(f"metrics: {name}: is recorded for each trial: give a metric of yours another name")
    if name in EXACT and (reported.better, reported.unit) != ("lower", ""):
        raise ValueError(f"metrics: {name}: {{better: lower}} without a unit: it is a whole number")


def checked_number(name: str, number: float, advice: str) -> float:
    """Return a reported number. Raises ValueError if it is not finite, or no count where it has to be one."""
    if not math.isfinite(number):
        raise ValueError(f"metric {name}={number}: not finite; {advice}")
    if name in EXACT and (number < 0 or not number.is_integer()):
        raise ValueError(f"metric {name}={number:g}: a whole number of at least 0")
    return number


def processor() -> str:
    return platform.processor() or platform.machine()


def code_files(path: Path) -> Iterator[Path]:
    """Yield a file, or the files of a folder without hidden files, caches and run directories."""
    if path.is_file():
        yield path
    for parent, folders, files in os.walk(path):
        folders[:] = filter(partial(is_code, Path(parent)), folders)
        for file in files:
            if not file.startswith("."):
                yield Path(parent, file)


def is_code(parent: Path, name: str) -> bool:
    return not (name.startswith(".") or name in SKIPPED or is_run_directory(parent / name))


def file_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def without_seed(settings: Settings) -> Settings:
    return {key: value for key, value in settings.items() if key != "seed"}


def finite(numbers: Mapping[str, float]) -> dict[str, float | None]:
    """Return numbers with None for NaN and infinity, which JSON lacks."""
    return {name: number if math.isfinite(number) else None for name, number in numbers.items()}
