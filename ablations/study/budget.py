"""The budget that all arms of a study have: equal steps, epochs or FLOPs, met by each arm's `steps`.

A longer run is never evaluated midway instead: its learning rate would not have decayed.
"""

from typing import Literal

from vitcore.config import Config

Budget = Literal["steps", "epochs", "flops"]
TOLERANCE = 0.02  # relative difference between the budgets of compared arms, as steps are whole
MEANT = {"steps": "steps", "epochs": "epochs", "flops": "training FLOPs"}


def steps_of(budget: Budget, reference: Config, config: Config) -> int:
    """Return the steps that give `config` the budget of `reference`.

    Raises ValueError if no whole number of steps comes within 2% of it.
    """
    if budget == "steps":
        return reference.steps
    spent = epochs if budget == "epochs" else training_flops
    exact = reference.steps * spent(reference) / spent(config)
    steps = max(1, round(exact))
    if abs(steps - exact) > TOLERANCE * exact:
        raise ValueError(
            f"budget={budget}: the same {MEANT[budget]} as the baseline's are {exact:.2f} steps, and no whole number "
            f"is within {TOLERANCE:.0%}: give more steps"
        )
    return steps


def epochs(config: Config) -> float:
    """Return the share of the training images that a step takes."""
    from vitcore.data.lookup import describe  # late: loads NumPy, which lists of studies do without

    train = describe(config.data).train_size * (1 - config.val_fraction) * config.data_fraction
    return config.batch / train


def training_flops(config: Config) -> int:
    """Return FLOPs per training step: 6 x the multiply-adds of a forward pass x images.

    The backward pass costs twice the forward pass. Where steps draw the size of their patches, the FLOPs are averaged
    over these sizes.
    """
    from vitcore.analysis.cost import measure  # late: loads torch

    each = [measure(config.model_copy(update={"patch": size})).flops for size in config.patches]
    return 3 * round(sum(each) / len(each)) * config.batch
