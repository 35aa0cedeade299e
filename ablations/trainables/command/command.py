"""A command line of the user's as a trainable. The settings of a trial become words of the command.

    train: python train.py --lr {lr} --depth {depth} --seed {seed} --out {folder}
    config: {lr: 1e-3, depth: 12}

A plan records the description of a command as plain data. Plans, tables and workers need neither the recipe nor, except
to train, the files of the command.
"""

import hashlib
import os
import platform
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, create_model

from ablations import faults
from ablations.faults import Fault
from ablations.trainables.command import template, training
from ablations.trainables.trainable import Context, Outcome, Parent, Resources, Trainable
from commonfloor.options import Options, explain
from results import store
from results.store.schemas import Fact, Metric, Plain, Settings
from results.store.schemas.metrics import ACCURACY

KIND = "command"
SCRIPTS = (".py", ".sh")  # ends of the words of a command that name its code
SKIPPED = ("__pycache__", "node_modules")  # folders that are no code, besides hidden ones
MOST_CODE = 1 << 28  # bytes


class Allowed(Options):
    """The values that a setting of a command may have."""

    min: float | None = None  #: Smallest value of a number.
    max: float | None = None  #: Largest value of a number.
    choices: list[Plain] = []  #: All values.

    def type_for(self, default: Any) -> Any:
        """Return the type of a setting, as an annotation. Without choices, it follows from the default."""
        if self.choices:
            return Literal[tuple(self.choices)]
        bounds = [bound for bound in (self.min, self.max) if bound is not None]
        if not bounds:
            return Plain if default is None else type(default)
        is_whole = all(float(number).is_integer() for number in bounds) and type(default) is int
        return Annotated[int if is_whole else float, Field(ge=self.min, le=self.max)]


class Reported(Options):
    """A metric that a command reports."""

    better: Literal["higher", "lower"]  #: Which values are better.
    #: Text after a printed number, such as `ms`. A `fraction` is a number from 0 to 1 and is printed in percent.
    unit: str = ""

    def metric(self, name: str) -> Metric:
        higher, unit = self.better == "higher", f" {self.unit}" if self.unit else ""
        if self.unit == "fraction":
            is_accuracy = higher and name.endswith("accuracy")
            return Metric(name=name, **{**ACCURACY, "higher_is_better": higher, "is_accuracy": is_accuracy})
        return Metric(name=name, higher_is_better=higher, unit=unit, unit_of_difference=unit)


class Description(Options):
    """What a recipe says of its command, and the digest of the command's code. folder: where the command runs."""

    train: str
    folder: str
    config: dict[str, Any]
    settings: dict[str, Allowed] = {}
    spelling: str = template.SPELLING
    code: list[str] = []
    metrics: dict[str, Reported] = {}
    gpus: int = 0
    digest: str = ""

    @property
    def name(self) -> str:
        """The name of the trainable, from which `trainable.find` makes it."""
        return f"{KIND} {self.model_dump_json()}"

    def with_digest(self) -> "Description":
        """Return the description with the digest of the code as it is now. Raises the errors of `code_digest`."""
        scripts = [word for word in template.split("train", self.train) if word.endswith(SCRIPTS)]
        return self.model_copy(update={"digest": code_digest(Path(self.folder), scripts, self.code)})


def is_command(train: str) -> bool:
    """Return whether a recipe's `train` is a command line rather than a name of a trainable."""
    return " " in train or "{" in train


class Command(Trainable):
    """A command line as a trainable. Raises ValueError if its template, a setting or a metric is not valid."""

    def __init__(self, about: Description) -> None:
        self.about = about
        self.template = template.parse(about.train, about.spelling, about.config)
        self.settings = settings_model(about)
        self.keys = (*about.config, "seed")
        self.resolve({})
        if not about.metrics:
            raise ValueError("metrics: name what the command reports, as in {accuracy: {better: higher}}")
        self.default_metric = next(iter(about.metrics))

    # -- settings ------------------------------------------------------------------------------------------------------

    def resolve(self, settings: Mapping[str, Any]) -> Settings:
        return self.settings(**{**self.about.config, **settings}).model_dump(by_alias=True)

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        self.resolve({key: value for key, value in settings.items() if key in self.keys})

    def values(self, key: str) -> list[Any]:
        """See Trainable. The values are the choices of the recipe, or true and false."""
        if isinstance(self.about.config.get(key), bool):
            return [False, True]
        allowed = self.about.settings.get(key, Allowed())
        return list(allowed.choices) or super().values(key)

    def check_link(self, key: str, value: str) -> None:
        """See Trainable. A command has no links: its settings may have any name."""

    # -- identity and plans --------------------------------------------------------------------------------------------

    def identity(self, settings: Settings) -> Settings:
        """See Trainable. A trial is its settings, the words of the template and the content of the code."""
        own = {key: value for key, value in settings.items() if key != "seed"}
        return {"seed": settings["seed"], "settings": own, "command": self.template.text, "code": self.about.digest}

    def fingerprints(self, values: Callable[[str], Iterable[str]]) -> Settings:
        return {"code": self.about.digest}

    def metrics(self, trials: Sequence[Settings]) -> list[Metric]:
        return [reported.metric(name) for name, reported in self.about.metrics.items()]

    def warnings(self, settings: Settings) -> list[str]:
        if "seed" in self.template.names:
            return []
        return ["train: has no {seed}: unless the command reads ABLATE_SEED, all seeds are the same trial"]

    def resources(self, settings: Settings) -> Resources:
        return Resources(max(1, self.about.gpus), on_cpu=self.about.gpus == 0)

    def hardware(self, settings: Settings) -> tuple[bool, str]:
        return self.about.gpus > 0, "" if self.about.gpus else processor()

    # -- execution -----------------------------------------------------------------------------------------------------

    def check_data(self, trials: Sequence[Settings], to_train: Sequence[Settings], data_dir: Path | None) -> None:
        """Raise ValueError if trials are to train and the code has changed or the program is missing."""
        if to_train:
            self.check_files()

    def check_files(self) -> None:
        """Raise ValueError if the command cannot run here, or if its code is no longer that of the plan."""
        folder = Path(self.about.folder)
        if not folder.is_dir():
            raise ValueError(f"{folder}: the folder of the command is not on this machine")
        program = self.template.words[0]
        if "{" not in program and shutil.which(folder / program if "/" in program else program) is None:
            raise ValueError(f"train: {program}: no such program")
        if self.about.with_digest().digest != self.about.digest:
            raise ValueError("train: the code of the command has changed since the study was planned: plan it anew")

    def environment(self, settings: Settings, needs_gpu: bool) -> dict[str, Fact]:
        on_gpu = self.about.gpus > 0
        return {"device": processor(), "accelerator": "cuda" if on_gpu else "cpu", "ranks": max(1, self.about.gpus)}

    def train(self, settings: Settings, run: store.Attempt, sources: Mapping[str, Parent], context: Context) -> Outcome:
        try:
            self.check_files()
        except ValueError as error:
            raise training.CommandFailed(str(error), faults.INPUT) from None
        order = training.Order(self.template, Path(self.about.folder), settings, tuple(self.about.metrics))
        return training.CommandRun(order, run, context).train()

    def fault(self, error: BaseException) -> Fault | None:
        return error.fault if isinstance(error, training.CommandFailed) else None


@lru_cache(maxsize=64)
def described(content: str) -> Command:
    """Return the command that a plan describes. content: a Description as JSON. Raises ValueError if it is invalid."""
    try:
        return Command(Description.model_validate_json(content))
    except ValidationError as error:
        raise ValueError(explain(error, Description)) from None


def settings_model(about: Description) -> type[Options]:
    """Return a model that validates all settings and the seed. Raises ValueError for an unusable setting."""
    for key in about.settings.keys() - about.config.keys():
        raise ValueError(f"settings: {key}: is no setting: give its default in `config`")
    fields: dict[str, Any] = {}
    for key, default in about.config.items():
        if isinstance(default, dict):
            raise ValueError(f"config: {key}: a plain value: nested settings have names with dots, as in model.depth")
        kind = about.settings.get(key, Allowed()).type_for(default)
        fields[f"setting_{len(fields)}"] = (kind, Field(alias=key))  # an alias may be any text
    fields["seed"] = (Annotated[int, Field(ge=0, lt=2**31)], 0)
    return create_model("Settings", __base__=Options, **fields)


def processor() -> str:
    return platform.processor() or platform.machine()


# -- code --------------------------------------------------------------------------------------------------------------


def code_digest(folder: Path, scripts: Iterable[str], code: Collection[str]) -> str:
    """Return a digest of the content of a command's code: 12 hexadecimal digits.

    scripts: files that need not exist. code: files and folders. Raises ValueError if one in `code` is missing or if the
    files are too large for code.
    """
    paths = {path for name in scripts if (path := folder / name).is_file()}
    for name in code:
        if not (folder / name).exists():
            raise ValueError(f"code: {name}: no such file or folder in {folder}")
        paths.update(code_files(folder / name))
    if sum(path.stat().st_size for path in paths) > MOST_CODE:
        raise ValueError(f"code: more than {MOST_CODE >> 20} MiB: name the files that are code")
    names = {os.path.relpath(path, folder): path for path in paths}
    found = hashlib.sha256()
    for name in sorted(names):
        found.update(f"{name}\0{hashlib.sha256(names[name].read_bytes()).hexdigest()}\0".encode())
    return found.hexdigest()[:12]


def code_files(path: Path) -> Iterator[Path]:
    """Yield a file, or the files of a folder without hidden files, caches and run directories."""
    if path.is_file():
        yield path
    for parent, folders, files in os.walk(path):
        folders[:] = [one for one in folders if is_code(Path(parent, one))]
        yield from (Path(parent, file) for file in files if not file.startswith("."))


def is_code(folder: Path) -> bool:
    is_run_directory = (folder / "trials").is_dir() and (folder / "studies").is_dir()
    return not (folder.name.startswith(".") or folder.name in SKIPPED or is_run_directory)
