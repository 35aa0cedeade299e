"""A divergence is verified once: hardware that computes wrongly looks the same, until it computes again."""

from __future__ import annotations

from dataclasses import dataclass

VERIFICATIONS = 3  # where the steps are not reproducible, so many divergences are one


class DivergedError(Exception):
    """The loss, or what the weights make of the validation images, is no longer a number."""

    def __init__(self, step: int) -> None:
        super().__init__(f"diverged at step {step}")
        self.step = step


@dataclass(frozen=True)
class Suspicion:
    """A divergence to be verified: all is done again from the last checkpoint, every step looked at.

    step: where it was seen; 0: none. refuted_step: one that did not come back: the hardware is suspect.
    """

    step: int = 0
    refuted_step: int = 0
    count: int = 0

    def confirmed_by(self, step: int) -> bool:
        return step == self.step or self.count == VERIFICATIONS

    def moved(self, step: int) -> Suspicion:
        """To another step; where there was one, it did not come back."""
        return Suspicion(step, self.step or self.refuted_step, self.count + 1)

    def refuted(self) -> Suspicion:
        return Suspicion(0, self.step, self.count)
