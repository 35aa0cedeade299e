"""Verification of divergences. Hardware may be faulty, so the steps since the last checkpoint are recomputed."""

from __future__ import annotations

from dataclasses import dataclass

VERIFICATIONS = 3  # number of suspicions after which any divergence counts, because steps are not reproducible


class DivergedError(Exception):
    """Raised if a loss is not finite. step: the training step, from 1, of the loss or before the validation loss."""

    def __init__(self, step: int) -> None:
        super().__init__(f"diverged at step {step}")
        self.step = step


@dataclass(frozen=True)
class Suspicion:
    """The divergence to verify, if any, and the outcome of earlier verifications.

    To verify a divergence, training restarts from its last checkpoint and checks the loss of every step.
    """

    step: int = 0  # the step that diverged, or 0 if nothing is suspected
    refuted_step: int = 0  # the latest step whose loss was finite when recomputed, or 0
    count: int = 0  # number of suspicions so far

    def confirmed_by(self, step: int) -> bool:
        """Return whether a divergence at `step` confirms this suspicion. Any divergence confirms a third suspicion."""
        return step == self.step or self.count == VERIFICATIONS

    def at_step(self, step: int) -> Suspicion:
        """Return the suspicion of a divergence at `step`. The step that was suspected before counts as refuted."""
        return Suspicion(step, self.step or self.refuted_step, self.count + 1)

    def refuted(self) -> Suspicion:
        return Suspicion(0, self.step, self.count)
