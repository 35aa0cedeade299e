"""Recomputes the steps before a divergence, to tell a real one from faulty hardware."""

from __future__ import annotations

from dataclasses import dataclass

VERIFICATIONS = 3  # where the steps are not reproducible, so many divergences are one


class DivergedError(Exception):
    """The loss, or the output for the validation images, is no longer finite."""

    def __init__(self, step: int) -> None:
        super().__init__(f"diverged at step {step}")
        self.step = step


@dataclass(frozen=True)
class Suspicion:
    """A divergence to verify: training repeats from the last checkpoint and checks every step.

    step: where it was seen, 0: none. refuted_step: a loss that was NaN and finite when recomputed: faulty hardware.
    """

    step: int = 0
    refuted_step: int = 0
    count: int = 0

    def confirmed_by(self, step: int) -> bool:
        return step == self.step or self.count == VERIFICATIONS

    def moved(self, step: int) -> Suspicion:
        """Return a suspicion of another step, which refutes the earlier one."""
        return Suspicion(step, self.step or self.refuted_step, self.count + 1)

    def refuted(self) -> Suspicion:
        return Suspicion(0, self.step, self.count)
