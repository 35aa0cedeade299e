"""Suspicions: divergences not yet confirmed.

The steps since the last checkpoint are recomputed, to distinguish a diverged training from faulty hardware.
"""

from __future__ import annotations

from dataclasses import dataclass

VERIFICATIONS = 3  # suspicions after which any divergence is confirmed: steps are not reproducible


class DivergedError(Exception):
    """The error that the loss of a step or of the validation images is not finite.

    step: number of steps taken, including the step that diverged.
    """

    def __init__(self, step: int) -> None:
        super().__init__(f"diverged at step {step}")
        self.step = step


@dataclass(frozen=True)
class Suspicion:
    """A divergence to verify: training restarts from the last checkpoint and checks every step.

    step: the step that diverged, or 0 if nothing is suspected. refuted_step: a step whose loss was finite when it was
    recomputed, which suggests faulty hardware, or 0 if there is none. count: suspicions so far.
    """

    step: int = 0
    refuted_step: int = 0
    count: int = 0

    def confirmed_by(self, step: int) -> bool:
        """Return whether a divergence at `step` confirms this suspicion.

        A divergence at the suspected step does. Any divergence confirms the third suspicion.
        """
        return step == self.step or self.count == VERIFICATIONS

    def moved(self, step: int) -> Suspicion:
        """Return the suspicion of a divergence at `step`. The step suspected before, if any, counts as refuted."""
        return Suspicion(step, self.step or self.refuted_step, self.count + 1)

    def refuted(self) -> Suspicion:
        """Return the state after the suspected step was recomputed without a divergence."""
        return Suspicion(0, self.step, self.count)
