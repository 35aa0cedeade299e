"""Stages: trials that other trials start from or learn from, as in pre-training and distillation.

stages: {pretrain: {steps: 1000}}          a stage: the recipe's settings, these settings, and the model of its children
baseline: {init_from: {stage: pretrain}}   an arm starts from the stage's trial with the same seed
curves: {pretrain.data_fraction: axis}     a stage's setting may vary; each of its trials runs once
baseline: {teacher: {stage: large}}        a stage may be a teacher instead; its model is then the recipe's

On the command line, `lr=1e-3` applies to arms and all stages, `pretrain.lr=1e-3` to that stage, and `finetune.lr=1e-3`
to the arms.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ablations.study.naming import assignments
from ablations.trainables.trainable import LINKS, Compared, Trainable, trial_id
from results.store.schemas import Settings

Values = dict[str, Any]
FINETUNE = "finetune"  # the key in recipes for the settings of arms that start from stages


@dataclass(frozen=True)
class Stage:
    """A trial that other trials start from or learn from, before its seed is set.

    name: the stage's name with the settings that the study varies in it. stage: the stage's name alone. own: keys of
    the settings written for this stage alone. link: the setting by which its children name it, init_from or teacher.
    """

    name: str
    stage: str
    settings: Values
    parent: Stage | None
    trainable: Trainable
    own: frozenset[str] = frozenset()
    link: str = "init_from"

    def resolved(self, seed: int) -> Settings:
        try:
            return resolved(self.trainable, self.settings, self.parent, seed)
        except ValueError as error:  # a key that is written for this stage alone, as pretrain.steps, is named so
            written = str(error).partition("=")[0] in self.own
            raise type(error)(f"{self.stage}.{error}" if written else str(error)) from None

    @cached_property
    def config(self) -> Settings:
        """The stage's resolved settings at seed 0."""
        return self.resolved(0)

    def compared(self) -> Compared:
        return compared(self.name, self.config, (), self.parent)


def compared(name: str, config: Settings, declared: Sequence[str], parent: Stage | None) -> Compared:
    """Return an arm or stage as a trainable compares it. parent: the stage that its trials start or learn from."""
    link = parent.link if parent else ""
    return Compared(name, config, declared, parent.compared() if parent else None, link)


def resolved(trainable: Trainable, settings: Values, parent: Stage | None, seed: int) -> Settings:
    """Return a trial's resolved settings, which name the parent's trial at the same seed. Raises ValueError."""
    start = {parent.link: trial_id(trainable, parent.resolved(seed))} if parent else {}
    return trainable.resolve(trainable.merge(settings, {"seed": seed}, start))


def lineage(parent: Stage | None) -> Iterator[Stage]:
    """Yield `parent` and its ancestors, nearest first."""
    while parent is not None:
        yield parent
        parent = parent.parent


def value(config: Settings, parent: Stage | None, key: str) -> Any:
    """Return the value of a trial's setting such as lr, or of a stage's setting such as pretrain.lr.

    config: the trial's resolved settings. parent: the stage that the trial starts or learns from, or None. The value of
    the parent's `link` is the name of its stage. Returns None for an unset option and an unused stage.
    Raises ValueError if a stage is not valid.
    """
    name, _, rest = key.partition(".")
    for stage in lineage(parent):
        if stage.stage == name:
            return value(stage.config, stage.parent, rest)
    if parent is not None and key == parent.link:
        return parent.stage
    return config.get(key, config.get("options", {}).get(key))


@dataclass(frozen=True)
class Stages:
    """The stages of a study, and the rules by which an arm's settings select them.

    base: the settings that all stages begin with. own: stage name -> settings of the stage that replace settings in
    `base`. varied: keys that differ between arms. shared: keys that the command line sets for all stages.
    """

    trainable: Trainable
    base: Values
    own: Mapping[str, Values]
    varied: tuple[str, ...] = ()
    shared: Collection[str] = ()

    def split_parent(self, written: Values) -> tuple[Values, Stage | None]:
        """Return (settings, parent): an arm's own settings, and the stage that it starts or learns from, or None.

        written: all settings of the arm. Raises ValueError if stages form a cycle, or if init_from and teacher both
        name a stage.
        """
        mine = {key: value for key, value in written.items() if key.partition(".")[0] not in self.own}
        return self.start(mine, written, ())

    def start(self, mine: Values, written: Values, after: tuple[str, ...]) -> tuple[Values, Stage | None]:
        """Return (settings, parent): a trial's settings without its link to a stage, and that stage, or None.

        mine: the trial's settings. written: the arm's. after: the stages already followed. Raises the errors of
        `split_parent`.
        """
        links = [key for key in LINKS if mine.get(key) in self.own]
        if not links:
            return mine, None
        name = str(mine[links[0]])
        if len(links) > 1:
            raise ValueError(f"init_from={name}, teacher={mine['teacher']}: only one of them may be a stage")
        if name in after:
            raise ValueError(f"stages: {' starts from '.join([*after, name])}")
        rest = {key: value for key, value in mine.items() if key != links[0]}
        return rest, self.stage(name, links[0], rest, written, (*after, name))

    def stage(self, name: str, link: str, child: Values, written: Values, after: tuple[str, ...]) -> Stage:
        """Return the stage called `name`.

        The stage takes the model's body from `child` if link is init_from, and otherwise from `base`. The stage's own
        settings and the arm's settings for the stage override the body.

        child: the settings of the trial that names the stage. written, after: as in `start`.
        """
        body = {key: value for key, value in child.items() if link == "init_from" and self.trainable.is_shared(key)}
        changed = stage_settings(name, written)
        base = {key: value for key, value in self.base.items() if key not in LINKS}
        settings, parent = self.start(self.trainable.merge(base, body, self.own[name], changed), written, after)
        said = {key: body[key] for key in self.varied if key in body and key not in changed}
        said |= {key: changed[key] for key in stage_settings(name, dict.fromkeys(self.varied)) if key in changed}
        label = f"{name},{assignments(said)}" if said else name
        own = frozenset(changed) | (frozenset(self.own[name]) - frozenset(self.shared))
        return Stage(label, name, settings, parent, self.trainable, own, link)


def stage_settings(name: str, written: Mapping[str, Any]) -> Values:
    """Return the settings of an arm that belong to the stage `name`, with keys such as lr for pretrain.lr."""
    return {key.removeprefix(f"{name}."): one for key, one in written.items() if key.partition(".")[0] == name}


def flatten_starts(content: Any) -> Any:
    """Return the parsed YAML with every {stage: NAME} replaced by NAME, at any depth."""
    if isinstance(content, dict):
        if content.keys() == {"stage"} and isinstance(content["stage"], str):
            return content["stage"]
        return {key: flatten_starts(value) for key, value in content.items()}
    return [flatten_starts(one) for one in content] if isinstance(content, list) else content
