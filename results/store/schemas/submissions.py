"""The files of a submission: what is submitted, and its job arrays."""

from typing import Any, Literal

from pydantic import FiniteFloat

from results.store.schemas.base import Count, Schema


class Submission(Schema):
    """The content of submissions/<campaign>/campaign.json: one submission. Its profile is validated elsewhere."""

    plans: list[str]
    profile: dict[str, Any]
    plugins: list[str]
    data_dir: str | None
    checkpoints: str | None = None
    keep_weights: Literal["all", "baseline", "none"] = "all"
    arms: str | list[str] = ["*"]
    folder: str = ""  #: The folder that the submission was made in, to which its jobs belong.
    code: str = ""  #: Digest of the code that its jobs run.
    cluster: str = ""  #: Name of the cluster that has its jobs.


class Private(Schema):
    """The content of submissions/<campaign>/private.json: the parts of a profile that may hold secrets."""

    environment: dict[str, str] = {}
    setup: list[str] = []


class Intent(Schema):
    """The content of submissions/<campaign>/arrays/<number>/intent.json, written before sbatch is called."""

    function: str  #: What each task calls, as 'module:name'.
    written: FiniteFloat  #: Seconds since 1970.
    progress: list[Count] = []  #: Progress of the trials, if the last job of a round submitted the array.


class GaveUp(Schema):
    """The content of submissions/<campaign>/gave-up.json: why a submission ended before its trials did."""

    said: str
