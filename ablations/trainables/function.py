"""A Python function of the user's as a trainable.

It is called with its settings and, if it has such a parameter, with `run`, a FunctionRun. The settings are one
parameter that is a pydantic model or a dataclass, or else all others. The recipe's `config` replaces their defaults.
"""

import dataclasses
import importlib
import inspect
import re
import struct
import sys
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args, get_origin, get_type_hints

from pydantic import BaseModel, PydanticUserError, ValidationError, create_model

from ablations import faults
from ablations.faults import Fault
from ablations.provenance import PACKAGES
from ablations.trainables.command.training import NO_MEMORY, claimed_folder
from ablations.trainables.local_imports import LocalImports
from ablations.trainables.trainable import Parent, TrainingContext, TrainingOutcome
from ablations.trainables.user_code import Description, Failed, UserCode, checked_number, finite, without_seed
from commonfloor.messages import joined_names, reason, unknown_key
from commonfloor.options import Options, explain
from results import store
from results.store.schemas.base import Settings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike

NAME = re.compile(r"([^\s:{}]+\.py):([A-Za-z_]\w*)")
DIVERGED = "a function whose training diverged raises FloatingPointError"
HEADER = struct.Struct("<qd")  # before the bytes of a checkpoint: its step, and the seconds of training


class FunctionDescription(Description):
    """What a recipe says of a function. unseen: places that load code which is not among `files`, as FILE:LINE."""

    kind: ClassVar[str] = "function"

    unseen: list[str] = []

    @property
    def path(self) -> Path:
        return Path(self.folder, self.train.rpartition(":")[0])

    def current(self) -> Self:
        """See Description. Also raises ValueError if a file has the name of another module or of our packages."""
        path = self.path
        try:
            source = path.read_bytes()
        except OSError as error:
            raise ValueError(f"train: {path}: cannot be read ({error.strerror})") from None
        for name in PACKAGES:
            if (path.parent / f"{name}.py").exists() or (path.parent / name / "__init__.py").exists():
                advice = f"rename it, or call the code as a command, as in python {path.name} {{settings}}"
                raise ValueError(f"train: {path}: beside it, {name} has the name of a package of this suite: {advice}")
        try:
            imports = LocalImports.of_file(path, source)
        except ValueError as error:
            raise ValueError(f"train: {str(error).removeprefix('plugin ')}") from None
        imported = {str(file.relative): file.path for file in imports.files.values()}
        current = self.with_files({path.name: path, **imported, **self.code_paths})
        return current.model_copy(update={"unseen": [] if self.code else imports.unseen})


def is_function(train: str) -> bool:
    return NAME.fullmatch(train) is not None


class Function(UserCode):
    """A function as a trainable. Its file is imported when its settings are first needed."""

    about: FunctionDescription
    description: ClassVar[type[Description]] = FunctionDescription
    progress = "a newer checkpoint (call run.save_checkpoint)"

    def __init__(self, about: FunctionDescription) -> None:
        super().__init__(about)
        self.unseen = about.unseen

    @cached_property
    def function(self) -> Callable[..., Any]:
        path = self.about.path
        name = self.about.train.rpartition(":")[2]
        if str(path.parent) not in sys.path:
            sys.path.insert(0, str(path.parent))
        try:
            module = importlib.import_module(path.stem)
        except (Exception, SystemExit) as error:  # a user's file may raise anything
            raise ValueError(f"train: {path}: does not import: {type(error).__name__}: {error}") from error
        if Path(module.__file__ or "").resolve() != path.resolve():
            raise ValueError(f"train: {path}: {module.__file__} has its name: rename the file")
        function = getattr(module, name, None)
        if not inspect.isfunction(function):
            raise ValueError(f"train: {path}: has no function {name}")
        return function

    @cached_property
    def parameters(self) -> list[str]:
        parameters = inspect.signature(self.function).parameters
        for parameter in parameters.values():
            if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
                raise ValueError(f"train: {self.about.train}: {parameter}: name each setting as a parameter")
        return [name for name in parameters if name != "run"]

    @cached_property
    def record(self) -> type[Any] | None:
        hints = parameter_types(self.function, self.parameters, include_extras=False)
        kinds = [hints.get(name) for name in self.parameters]
        if len(kinds) != 1 or not isinstance(kinds[0], type):
            return None
        is_model = issubclass(kinds[0], BaseModel) or dataclasses.is_dataclass(kinds[0])
        return kinds[0] if is_model else None

    @cached_property
    def model(self) -> type[BaseModel]:
        """The model that validates all settings. Raises ValueError if a type or default cannot be one of a setting."""
        try:
            if self.record is None:
                model = options_model(parameter_fields(self.function, self.parameters))
            elif issubclass(self.record, BaseModel):
                model = self.record
            else:
                model = options_model(dataclass_fields(self.record))
            model.model_rebuild()
        except (NameError, TypeError, PydanticUserError) as error:
            raise ValueError(f"train: {self.about.train}: settings are plain values: {reason(error)}") from None
        return model

    @cached_property
    def keys(self) -> tuple[str, ...]:  # type: ignore[override]  # read only when needed
        return (*dict.fromkeys([*self.model.model_fields, "seed"]),)

    def resolve(self, settings: Mapping[str, Any]) -> Settings:
        values = {"seed": 0, **self.about.config, **settings}
        for key in values.keys() - self.keys:
            raise ValueError(unknown_key(key, self.keys, f": known are {joined_names(self.keys)}"))
        seed = values["seed"]
        if type(seed) is not int or seed < 0:
            raise ValueError(f"seed={seed}: a whole number of at least 0")
        fields = {key: value for key, value in values.items() if key in self.model.model_fields}
        try:
            return {**self.model(**fields).model_dump(mode="json"), "seed": seed}
        except ValidationError as error:
            raise ValueError(explain(error, self.model)) from None

    def values(self, key: str) -> list[Any]:
        kind = self.model.model_fields[key].annotation if key in self.model.model_fields else None
        if get_origin(kind) is Literal:
            return list(get_args(kind))
        return [False, True] if kind is bool else super().values(key)

    def identity(self, settings: Settings) -> Settings:
        return {
            "seed": settings["seed"],
            "settings": without_seed(settings),
            "function": self.about.train.rpartition(":")[2],
            "code": self.about.digest,
        }

    def train(
        self, settings: Settings, run: store.Attempt, sources: Mapping[str, Parent], context: TrainingContext
    ) -> TrainingOutcome:
        self.ensure_files()
        trial = FunctionRun(settings["seed"], run, context)
        try:
            reported = self.function(**self.arguments(settings, trial))
        except FloatingPointError:
            return TrainingOutcome("diverged", {}, trial.seconds, {"diverged_at_step": trial.step})
        except SystemExit as end:  # it would end the worker
            raise Failed(f"SystemExit: {end}", faults.BUG) from end
        if reported is None and context.should_stop():
            return TrainingOutcome("stopped", {}, trial.seconds)
        details = {"steps": trial.step} if trial.step else {}
        try:
            numbers = self.checked(reported)
        except ValueError as error:
            raise Failed(str(error), faults.INPUT) from None
        outcome = TrainingOutcome("finished", numbers, trial.seconds, details)
        self.check_answers(trial.right, outcome, context)
        return outcome

    def arguments(self, settings: Settings, run: "FunctionRun") -> dict[str, Any]:
        values = self.model(**{key: value for key, value in settings.items() if key in self.model.model_fields})
        arguments = dict(values)
        if self.record is not None:
            record = values if isinstance(values, self.record) else self.record(**arguments)
            arguments = {self.parameters[0]: record}
        if "run" in inspect.signature(self.function).parameters:
            arguments["run"] = run
        return arguments

    def checked(self, reported: object) -> dict[str, float]:
        """Return the declared metrics that a function returned. Raises ValueError if one is not a finite number."""
        if not isinstance(reported, Mapping):
            raise ValueError(f"{self.about.train} returned {str(reported)[:60]}: metric -> number")
        numbers = {}
        for name in self.about.metrics:
            if name not in reported:
                raise ValueError(f"metric {name} is missing: there are {joined_names(reported)}")
            try:
                number = float(reported[name])
            except (TypeError, ValueError):
                raise ValueError(f"metric {name}={str(reported[name])[:60]}: a number") from None
            numbers[name] = checked_number(name, number, DIVERGED)
        return numbers

    def fault(self, error: BaseException) -> Fault | None:
        """See Trainable. Lack of memory is known by its words."""
        if NO_MEMORY.search(f"{type(error).__name__}: {error}"):
            return Fault(faults.MEMORY)
        return super().fault(error)


Fields = dict[str, tuple[Any, Any]]  # name -> (type, default); `...` without one


def options_model(fields: Fields) -> type[BaseModel]:
    return create_model("Settings", __base__=Options, **fields)  # type: ignore[call-overload]  # fields are data


def parameter_types(function: Callable[..., Any], names: list[str], include_extras: bool) -> dict[str, Any]:
    """Return the annotations of some parameters. Others, as that of `run`, may be known to type checkers alone."""
    annotations = {name: text for name, text in function.__annotations__.items() if name in names}
    return get_type_hints(SimpleNamespace(__annotations__=annotations), function.__globals__, None, include_extras)


def parameter_fields(function: Callable[..., Any], names: list[str]) -> Fields:
    """Return the types and defaults of parameters. Without an annotation, the type is the default's."""
    hints = parameter_types(function, names, include_extras=True)
    fields = Fields()
    for name in names:
        default = inspect.signature(function).parameters[name].default
        if default is inspect.Parameter.empty:
            fields[name] = (hints.get(name, Any), ...)
        else:
            fields[name] = (hints.get(name, Any if default is None else type(default)), default)
    return fields


def dataclass_fields(record: type[Any]) -> Fields:
    hints = get_type_hints(record, include_extras=True)
    fields = Fields()
    for field in dataclasses.fields(record):
        default = ... if field.default is dataclasses.MISSING else field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        fields[field.name] = (hints[field.name], default)
    return fields


def checked_count(name: str, number: float) -> int:
    """Return a number as an int. Raises ValueError if readers would refuse it, and the curve from there on."""
    if number < 0 or int(number) != number:
        raise ValueError(f"{name}={number}: a whole number of at least 0")
    return int(number)


class FunctionRun:
    """A trial, as its function sees it.

    seed: the seed. folder: a folder of the trial's own, which comes back at the next attempt.
    """

    def __init__(self, seed: int, run: store.Attempt, context: TrainingContext) -> None:
        self.seed = seed
        self.folder, _ = claimed_folder(run)
        self._run = run
        self._context = context
        self.right: np.ndarray | None = None  # whether each test image was classified right
        self._saved = run.checkpoint()
        self.step, seconds = HEADER.unpack_from(self._saved or bytes(HEADER.size))
        self._began = time.monotonic() - seconds

    @property
    def seconds(self) -> float:
        """The seconds of training, over all attempts."""
        return time.monotonic() - self._began

    def checkpoint(self) -> bytes | None:
        """Return the newest checkpoint of the trial, or None if there is none."""
        return None if self._saved is None else self._saved[HEADER.size :]

    def save_checkpoint(self, payload: bytes) -> None:
        """Save a checkpoint of the last step that was logged or shown."""
        self._run.save_checkpoint(self.step, HEADER.pack(self.step, self.seconds) + payload)

    def log(self, step: int, **numbers: float) -> None:
        """Add an evaluation to the training curve. Steps ascend."""
        self.step = checked_count("step", step)
        plain = {name: float(value) for name, value in numbers.items()}
        if "images" in plain:
            plain["images"] = checked_count("images", plain["images"])
        self._run.log({"step": self.step, "seconds": self.seconds, **finite(plain)})
        self._run.progress(self.step, plain)

    def progress(self, step: int) -> None:
        """Show a step without adding it to the training curve."""
        self.step = checked_count("step", step)
        self._run.progress(self.step, {})

    def should_stop(self) -> bool:
        """Return whether the function has to save a checkpoint and return None."""
        return self._context.should_stop()

    def save_correct(self, index: "ArrayLike", correct: "ArrayLike") -> None:
        """Save which test images were classified correctly. index: image numbers (n,). correct: 0 or 1 for each."""
        import numpy as np  # late: commands that read recipes need no arrays

        self.right = np.asarray(correct)
        self._run.save_correct(np.asarray(index), self.right)

    def save_weights(self, payload: bytes) -> None:
        """Save the final weights."""
        self._run.save_weights(payload)
