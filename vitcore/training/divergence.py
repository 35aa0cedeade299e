"""Divergences, which are verified by recomputing the steps since the last checkpoint: hardware may be faulty."""

from __future__ import annotations

from dataclasses import dataclass

VERIFICATIONS = 3  # suspicions after which any divergence is confirmed: steps are not reproducible


class DivergedError(Exception):
    """The loss of a step, counted from 1, or of the validation images after it is not finite."""

    def __init__(self, step: int) -> None:
        super().__init__(f"diverged at step {step}")
        self.step = step


@dataclass(frozen=True)
class Suspicion:
    """A divergence to verify: training restarts from the last checkpoint and checks every step."""

    step: int = 0  # that diverged; 0: nothing is suspected
    refuted_step: int = 0  # whose loss was finite when it was recomputed; 0: none
    count: int = 0  # suspicions so far

    def confirmed_by(self, step: int) -> bool:
        """Return whether a divergence at `step` confirms this suspicion, as any divergence confirms the third."""
        return step == self.step or self.count == VERIFICATIONS

    def at_step(self, step: int) -> Suspicion:
        """Return the suspicion of a divergence at `step`; a step suspected before counts as refuted."""
        return Suspicion(step, self.step or self.refuted_step, self.count + 1)

    def refuted(self) -> Suspicion:
        return Suspicion(0, self.step, self.count)
