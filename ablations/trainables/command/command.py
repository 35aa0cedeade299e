"""A command line of the user's as a trainable. The settings of a trial become words of the command.

train: python train.py --lr {lr} --depth {depth} --seed {seed} --out {folder}
config: {lr: 1e-3, depth: 12}
"""

import shutil
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, create_model

from ablations.trainables.command import template, training
from ablations.trainables.command.output import CURVE
from ablations.trainables.trainable import Parent, TrainingContext, TrainingOutcome
from ablations.trainables.user_code import Description, UserCode, without_seed
from commonfloor.options import Options
from results import store
from results.store.schemas.base import Plain, Settings

SCRIPTS = (".py", ".sh")  # ends of the words of a command that name its code
EXPECTED = {  # what a template should name -> the environment variable that may be read instead, why it matters
    "seed": ("ABLATE_SEED", "all seeds are the same trial"),
    "folder": ("ABLATE_FOLDER", "trials that run at once write to the same files"),
}


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


class CommandDescription(Description):
    kind: ClassVar[str] = "command"

    settings: dict[str, Allowed] = {}
    spelling: str = template.SPELLING

    def current(self) -> Self:
        files = {}
        for word in template.split("train", self.train):
            path = Path(self.folder, word)
            if word.endswith(SCRIPTS) and path.is_file():
                files[word] = path
        return self.with_files({**files, **self.code_paths})


def is_command(train: str) -> bool:
    return " " in train or "{" in train


class Command(UserCode):
    """A command line as a trainable. Raises ValueError if its template, a setting or a metric is not valid."""

    about: CommandDescription
    description: ClassVar[type[Description]] = CommandDescription
    progress = f"a new step in {CURVE} (write one with each checkpoint)"

    def __init__(self, about: CommandDescription) -> None:
        super().__init__(about)
        self.template = template.parse(about.train, about.spelling, about.config)
        self.settings = settings_model(about)
        self.keys = (*about.config, "seed")
        self.printed = {name: reported.printed for name, reported in about.metrics.items()}
        self.resolve({})

    def resolve(self, settings: Mapping[str, Any]) -> Settings:
        return self.settings(**{**self.about.config, **settings}).model_dump(by_alias=True)

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        self.resolve({key: value for key, value in settings.items() if key in self.keys})

    def values(self, key: str) -> list[Any]:
        if isinstance(self.about.config.get(key), bool):
            return [False, True]
        allowed = self.about.settings.get(key, Allowed())
        return list(allowed.choices) or super().values(key)

    def identity(self, settings: Settings) -> Settings:
        """See Trainable. A metric without `printed` is no part: its number depends on the code alone."""
        identity = {
            "seed": settings["seed"],
            "settings": without_seed(settings),
            "command": self.template.text,
            "code": self.about.digest,
        }
        printed = {name: text for name, text in self.printed.items() if text}
        if printed:
            identity["printed"] = printed
        return identity

    def warnings(self, settings: Settings) -> list[str]:
        return self.unnamed

    @cached_property
    def unnamed(self) -> list[str]:
        warnings = []
        for name, (variable, why) in EXPECTED.items():
            if name not in self.template.names and not self.mentions(variable):
                warnings.append(f"train: has no {{{name}}}: unless the command reads {variable}, {why}")
        return warnings

    def mentions(self, variable: str) -> bool:
        paths = [Path(self.about.folder, name) for name in self.files]
        return any(variable.encode() in path.read_bytes() for path in paths if path.is_file())

    def check_files(self) -> None:
        super().check_files()
        program = self.template.words[0]
        path = Path(self.about.folder) / program if "/" in program else program
        if "{" not in program and shutil.which(path) is None:
            raise ValueError(f"train: {program}: no such program")

    def train(
        self, settings: Settings, run: store.Attempt, sources: Mapping[str, Parent], context: TrainingContext
    ) -> TrainingOutcome:
        self.ensure_files()
        order = training.CommandOrder(self.template, Path(self.about.folder), settings, self.printed)
        trial = training.CommandRun(order, run, context)
        outcome = trial.train()
        self.check_answers(trial.right, outcome, context)
        return outcome


def settings_model(about: CommandDescription) -> type[Options]:
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
