"""What a recipe states of itself: what its config reaches, takes and spreads by, and whose figures these are."""

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
    """One that was measured with this recipe, derived from what another takes, or cited for what is like it.

    source: by what, from what, or from where.
    """

    how: Literal["measured", "derived", "cited"]
    source: str

    @property
    def origin(self) -> str:
        return f"{self.how}: {self.source}"


class Expected(Figure):
    """What trials reach: the mean of the metric, over n of them where that is known.

    settings: what the command line has to set for it, as another length (epochs: 300); nothing: the recipe as it is.
    """

    settings: Json = {}
    metric: str = "test_accuracy"
    mean: float
    n: Count | None = None


class Took(Figure):
    """The training seconds of one trial of the recipe's own config, and on what."""

    device: str
    seconds: Positive


class Packed(Options):
    """The pack that `data` names: what there is to know of it for a plan, before it is made."""

    train: Count
    test: Count
    classes: Count
    image_size: Count = 224
    channels: Literal[1, 3] = 3

    def about(self, name: str) -> "About":
        from vitcore.data.datasets import About  # late: numpy

        return About(self.image_size, self.channels, self.classes, self.train, self.test, {"pack": name, "sha256": ""})


class Spread(Figure):
    """The standard deviation of per-seed differences between arms, from so many degrees of freedom."""

    metric: str = "test_accuracy"
    sd: Positive
    freedom: Count


class AtTwiceTheSteps(Figure):
    """How far arms are from the recipe's own config after twice its steps: differences of test_accuracy, as shares.

    One of another sign than at the recipe's steps tells how fast an arm learns, not how well.
    """

    n: Count | None = None
    differences: dict[str, Difference]  # by arm, named as in tables
    resolved: list[str] = []  # the arms whose difference is resolved there

    def of(self, arm: str) -> Json | None:
        """For an arm's entry in plan.json."""
        seeds = f", n = {self.n}" if self.n else ""
        if arm not in self.differences:
            return None
        origin = f"{self.origin}{seeds}"
        return {"difference": self.differences[arm], "origin": origin, "resolved": arm in self.resolved}


Costs = dict[Literal["cpu", "gpu"], Took]


def cost(costs: Costs, config: Json) -> Json | None:
    """For plan.json: with the training FLOPs that the seconds were for, so that arms are reckoned in proportion."""
    if not costs:
        return None
    from ablations.planning.past_trials import training_flops
    from vitcore.analysis.cost import measure  # late: torch
    from vitcore.config import Config

    own = Config(**config)
    return {"work": training_flops(measure(own)["flops"], own.model_dump())} | {
        kind: took.model_dump() for kind, took in costs.items()
    }
