"""Measured durations of training steps, by device."""

from results.store.schemas.base import Count, Schema, Seconds


class StepTime(Schema):
    """The duration of a training step, and how it was measured."""

    seconds: Seconds
    steps: Count | None = None
    arm: str = ""
    when: str = ""
    code: str = ""


class StepTimes(Schema):
    """The content of probes/<device>.json: measured step times. Earlier versions also wrote other measurements."""

    device: str
    gpu: bool
    paces: dict[str, StepTime] = {}  #: Digest of the settings that the step time depends on -> step time.
