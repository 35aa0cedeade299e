"""Suspected divergences: steps are recomputed to distinguish a diverged training from faulty hardware."""

from __future__ import annotations

from dataclasses import dataclass

VERIFICATIONS = 3  # this many divergences at different steps count as one: the steps are not reproducible


class DivergedError(Exception):
    """The loss, or the output for the validation images, is no longer finite."""

    def __init__(self, step: int) -> None:
        super().__init__(f"diverged at step {step}")
        self.step = step


@dataclass(frozen=True)
class Suspicion:
    """A divergence to verify: training repeats from the last checkpoint and checks every step.

    step: the step that diverged; 0: none. refuted_step: a step whose loss was NaN but finite when recomputed, which
    suggests faulty hardware. count: the number of suspicions so far.
    """

    step: int = 0
    refuted_step: int = 0
    count: int = 0

    def confirmed_by(self, step: int) -> bool:
        """Tell whether a divergence at `step` confirms this suspicion."""
        return step == self.step or self.count == VERIFICATIONS

    def moved(self, step: int) -> Suspicion:
        """Return the suspicion of another step, which refutes this one."""
        return Suspicion(step, self.step or self.refuted_step, self.count + 1)

    def refuted(self) -> Suspicion:
        """Return the record of this suspicion once its step has passed."""
        return Suspicion(0, self.step, self.count)
