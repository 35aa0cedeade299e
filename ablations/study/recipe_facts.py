"""Statements of a recipe: what its config reaches, how long it takes, how much it varies, and who measured it."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from vitcore.options import Options

if TYPE_CHECKING:
    from vitcore.data.datasets import About

Json = dict[str, Any]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Difference = Annotated[float, Field(gt=-1, lt=1)]


class Figure(Options):
    """A figure that was measured with this recipe, derived from another or cited.

    source: who measured it, what it derives from, or the citation.
    """

    how: Literal["measured", "derived", "cited"]
    source: str

    @property
    def origin(self) -> str:
        return f"{self.how}: {self.source}"


class Expected(Figure):
    """The mean of the metric over n trials, if n is known.

    settings: overrides of the command line that it holds for, such as {epochs: 300}; empty: the recipe as it is.
    """

    settings: Json = {}
    metric: str = "test_accuracy"
    mean: float
    n: Count | None = None


class Took(Figure):
    """The training seconds of one trial of the recipe's config, and the device."""

    device: str
    seconds: Positive


class Packed(Options):
    """The facts about the pack in `data` that a plan needs before the pack is made."""

    train: Count
    test: Count
    classes: Count
    image_size: Count = 224
    channels: Literal[1, 3] = 3

    def about(self, name: str) -> "About":
        from vitcore.data.datasets import About  # late: numpy

        return About(self.image_size, self.channels, self.classes, self.train, self.test, {"pack": name, "sha256": ""})


class Spread(Figure):
    """The standard deviation of per-seed differences between arms, with its degrees of freedom."""

    metric: str = "test_accuracy"
    sd: Positive
    freedom: Count


class AtTwiceTheSteps(Figure):
    """Differences of test accuracy from the recipe's config after twice its steps, as fractions.

    Another sign than at the recipe's steps means that an arm learns faster, not better.
    """

    n: Count | None = None
    differences: dict[str, Difference]  # by arm, named as in tables
    resolved: list[str] = []  # the arms whose difference is resolved there

    def of(self, arm: str) -> Json | None:
        """The entry for an arm in plan.json."""
        seeds = f", n = {self.n}" if self.n else ""
        if arm not in self.differences:
            return None
        origin = f"{self.origin}{seeds}"
        return {"difference": self.differences[arm], "origin": origin, "resolved": arm in self.resolved}


Costs = dict[Literal["cpu", "gpu"], Took]


def cost(costs: Costs, config: Json) -> Json | None:
    """The cost for plan.json, with the training FLOPs that it stands for."""
    if not costs:
        return None
    from ablations.planning.past_trials import training_flops
    from vitcore.analysis.cost import measure  # late: torch
    from vitcore.config import Config

    own = Config(**config)
    return {"work": training_flops(measure(own)["flops"], own.model_dump())} | {
        kind: took.model_dump() for kind, took in costs.items()
    }
