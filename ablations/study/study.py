"""The keys of a study's YAML file, which names no recipe. This module loads no torch."""

import re
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from ablations.study.arms import Values
from ablations.trainables.trainable import LINKS
from commonfloor.options import Options
from results.claim_text import parse_claim
from results.store.schemas.metrics import Margin

Budget = Literal["steps", "epochs", "flops"]
# "axis": the recipe's values. "all": every variant of a slot. A list may contain "axis" among its values.
Axis = list[Any] | Literal["axis", "all"]
RECIPE_ARM = "recipe_arm"  # the key of a study or a named arm for the arm of the recipe that it extends
AXIS_INDEX = re.compile(r"([^,=]+)=axis\[(-?\d+)\]")  # a setting at one of the recipe's values, in names of arms


class Study(Options):
    """A study: a question, the settings that vary to answer it, and the metric."""

    name: str  #: Name of the study, by default the file's name.
    question: str  #: What the study asks, which is the title of its table and figure.
    source: str = ""  #: The publication that the question comes from.
    found: str = ""  #: What the source found.
    #: Trials that arms start from by `init_from: {stage: NAME}`, as in `pretrain: {steps: 1000}`, or learn from by
    #: `teacher: {stage: NAME}`. Each is trained once.
    stages: dict[str, Values] = {}
    baseline: Values  #: The settings that every arm is compared with, on top of the recipe's.
    recipe_arm: str = ""  #: The recipe's arm that the baseline begins with.
    #: Values that vary one at a time: a list, `axis` (the recipe's) or `all` (every variant, plug-ins included).
    #: `data: [A, B]` gives every arm on every data set, compared with the baseline on the same data, and an average.
    factors: dict[str, Axis] = {}
    #: Full products of at least two factors. The table shows their interactions, and each cross of two as a grid.
    crosses: list[dict[str, Axis]] = []
    curves: dict[str, Axis] = {}  #: Every arm is trained at each value and compared with the baseline at that value.
    #: Curves of numbers. Every arm is also compared at its best value, chosen by the validation metric of other seeds.
    tune: dict[str, Axis] = {}
    #: Named arms, each with several settings. `axis`: the recipe's arm of the same name. `{recipe_arm: NAME, ...}`: the
    #: recipe's arm NAME with further settings.
    arms: dict[str, Values | Literal["axis"]] = {}
    #: Settings that change along with an arm, as in `pool=gap: {lr: 3e-4}` or `width=axis[0]: {mlp_ratio: 16.0}`.
    #: Tables footnote them.
    co_changes: dict[str, Values] = Field(default={}, alias="with")
    exclude: list[Values] = []  #: Arms and points that are left out, by their values or by `{arm: NAME}`.
    budget: Budget = "steps"  #: Training budget that all arms share: steps, epochs or FLOPs.
    #: Lines of a figure over compute: a name, and the settings of its arms, as in `ResNet: {model: timm/*}`.
    families: dict[str, Values] = {}
    metric: str = ""  #: The metric that arms are compared by: by default `test_accuracy`, or a command's first metric.
    #: Several metrics instead of one: the first is the study's metric. An arm is tested by the others only where its
    #: difference in the first is resolved. `params` and `flops` may follow too.
    metrics: list[str] = []
    #: Evals, which workers compute from the weights: `fewshot`, `inspect`, `test@SIZE`, `test@patchP`.
    #: `test@axis` and `test@patch-axis` use the recipe's image sizes and patch sizes.
    evals: list[str] = []
    #: The equivalence margin, by default the recipe's: a difference, or a share of the baseline's error as in `25%`.
    margin: Margin | None = None
    #: Whether seeds may be added after a table. The first table is then corrected for later ones too.
    grows: bool = False
    #: Whether arms race: one that can hardly become better takes no more seeds. `ablate run --race` declares it too.
    race: bool = False
    published: dict[str, float] = {}  #: Published numbers by arm. `width=axis[-1]` is the recipe's last width.
    published_of: str = ""  #: The publication and setting of the published numbers, by default the source.
    claims: list[str] = []  #: Claims of the source about two arms: `a < b` or `a ~ b`.
    figure: str = "intervals"  #: The kind of figure that shows the results.

    @field_validator("claims")
    @classmethod
    def _claims(cls, claims: list[str]) -> list[str]:
        for claim in claims:
            parse_claim(claim)
        return claims

    @model_validator(mode="after")
    def _metrics(self) -> "Study":
        if self.metric and self.metrics:
            raise ValueError(f"metric={self.metric}: beside 'metrics', whose first is the study's metric")
        twice = [name for name in self.metrics if self.metrics.count(name) > 1]
        if twice:
            raise ValueError(f"metrics: {twice[0]} occurs twice")
        return self

    @property
    def primary_metric(self) -> str:
        """The metric that arms are compared by first, or "" for the trainable's default."""
        return self.metrics[0] if self.metrics else self.metric

    def axes(self) -> list[tuple[str, dict[str, Axis]]]:
        """Return (key, setting -> values) for factors, each cross, curves and tune."""
        crosses = [("crosses", cross) for cross in self.crosses]
        return [("factors", self.factors), *crosses, ("curves", self.curves), ("tune", self.tune)]

    @property
    def varied_settings(self) -> list[str]:
        """The keys of all settings that vary, each once: factors, crosses, curves and tuned settings."""
        return list(dict.fromkeys(key for _, group in self.axes() for key in group))

    def along_data(self, key: str) -> "Study":
        """Return the study with the factor `key` as a curve. Numbers on different test images are never compared."""
        factors = {name: values for name, values in self.factors.items() if name != key}
        if len(factors) == len(self.factors):
            return self
        return self.model_copy(update={"factors": factors, "curves": {**self.curves, key: self.factors[key]}})

    def layers(self) -> list[tuple[str, Values]]:
        """Return (name, settings) for the baseline, stages, co-changes and named arms, as written in the study."""
        layers = [("baseline", self.baseline), *self.stages.items(), *self.co_changes.items()]
        for name, settings in self.arms.items():
            if isinstance(settings, dict):
                layers.append((name, without_recipe_arm(settings)))
        return layers

    def starts(self) -> list[tuple[str, Any]]:
        """Return (key, value) for each value of init_from or teacher, which may name a stage."""
        starts: list[tuple[str, Any]] = []
        for key in LINKS:
            for _, axis in self.axes():
                if isinstance(axis.get(key), list):
                    starts += [(key, value) for value in axis[key]]
            starts += [(key, layer[key]) for _, layer in self.layers() if key in layer]
        return starts


def without_recipe_arm(settings: Values) -> Values:
    return {key: value for key, value in settings.items() if key != RECIPE_ARM}
