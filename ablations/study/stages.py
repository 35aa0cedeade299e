"""Stages: trials that other trials start from or learn from, as in pre-training and distillation.

stages: {pretrain: {steps: 1000}}          a stage: the recipe's settings, these settings, and the model of its children
baseline: {init_from: {stage: pretrain}}   an arm starts from the stage's trial with the same seed
curves: {pretrain.data_fraction: axis}     a stage's setting may vary; each of its trials runs once
baseline: {teacher: {stage: large}}        a stage may be a teacher instead; its model is then the recipe's

On the command line, `lr=1e-3` applies to arms and all stages, `pretrain.lr=1e-3` to that stage, and `finetune.lr=1e-3`
to the arms.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ablations.study.arms import Stage, Values, arm_name
from ablations.trainables.trainable import LINKS, Trainable

FINETUNE = "finetune"  # the key in recipes for the settings of arms that start from stages


@dataclass(frozen=True)
class Stages:
    """The stages of a study, and the rules by which an arm's settings select them.

    base: the settings that all stages begin with. own: stage name -> its own settings. varied: keys that differ between
    arms. shared: keys that the command line sets for all stages.
    """

    trainable: Trainable
    base: Values
    own: Mapping[str, Values]
    varied: Sequence[str] = ()
    shared: Collection[str] = ()

    def split_parent(self, written: Values) -> tuple[Values, Stage | None]:
        """Return (an arm's own settings, the stage that it starts or learns from, or None). written: all settings."""
        settings = {key: value for key, value in written.items() if key.partition(".")[0] not in self.own}
        return self.follow_link(settings, written, [])

    def follow_link(self, settings: Values, written: Values, followed: list[str]) -> tuple[Values, Stage | None]:
        """Return (settings without the link to a stage, that stage or None). followed: the stages before it."""
        links = [key for key in LINKS if settings.get(key) in self.own]
        if not links:
            return settings, None
        rest = dict(settings)
        name = str(rest.pop(links[0]))
        if len(links) > 1:
            raise ValueError(f"init_from={name}, teacher={rest['teacher']}: only one of them may be a stage")
        if name in followed:
            raise ValueError(f"stages: {' starts from '.join([*followed, name])}")
        return rest, self.stage(name, links[0], rest, written, [*followed, name])

    def stage(self, name: str, link: str, child: Values, written: Values, followed: list[str]) -> Stage:
        """Return the stage `name`, which a trial with the settings `child` names by `link`.

        Example: the recipe has {width: 192, lr: 1e-3} and the study `stages: {pretrain: {steps: 1000}}`. An arm is
        written {width: 384, init_from: pretrain, pretrain.lr: 2e-3}, and its stage is made of four layers. Each
        overrides the ones above it:

            base      {width: 192, lr: 1e-3}   the recipe's settings
            body      {width: 384}             the child's model, as it starts from these weights; {} for a teacher
            own       {steps: 1000}            the study's settings of the stage
            changed   {lr: 2e-3}               the arm's settings of the stage

        The stage trains with {width: 384, lr: 2e-3, steps: 1000}. If width and pretrain.lr vary in the study, it is
        called "pretrain,width=384,lr=0.002", because other arms have other stages.

        written, followed: as in `follow_link`.
        """
        base = {key: value for key, value in self.base.items() if key not in LINKS}
        body: Values = {}
        if link == "init_from":
            body = {key: value for key, value in child.items() if self.trainable.is_shared(key)}
        changed = stage_settings(name, written)
        layers = self.trainable.merge(base, body, self.own[name], changed)
        settings, parent = self.follow_link(layers, written, followed)
        written_here = changed.keys() | (self.own[name].keys() - set(self.shared))
        varied = {key: body[key] for key in self.varied if key in body and key not in changed}
        for key in stage_settings(name, dict.fromkeys(self.varied)):
            if key in changed:
                varied[key] = changed[key]
        return Stage(
            name=arm_name(name, varied),
            settings=settings,
            trainable=self.trainable,
            parent=parent,
            stage=name,
            link=link,
            own=frozenset(written_here),
        )


def stage_settings(name: str, written: Mapping[str, Any]) -> Values:
    """Return the settings of an arm that belong to the stage `name`, with keys such as lr for pretrain.lr."""
    prefix = f"{name}."
    return {key.removeprefix(prefix): value for key, value in written.items() if key.startswith(prefix)}


def flatten_starts(content: Any) -> Any:
    """Return the parsed YAML with every {stage: NAME} replaced by NAME, at any depth."""
    if isinstance(content, list):
        return [flatten_starts(value) for value in content]
    if not isinstance(content, dict):
        return content
    if content.keys() == {"stage"} and isinstance(content["stage"], str):
        return content["stage"]
    return {key: flatten_starts(value) for key, value in content.items()}
