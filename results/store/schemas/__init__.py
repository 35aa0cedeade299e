"""Schemas of the JSON files of a run directory, checked when a file is read. Here: trials, submissions, step times.

A file is broken if it lacks a required field, or if a value has the wrong type or is out of range. The error names the
file and the field. Unknown fields are accepted, because a later version may have written them.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, FiniteFloat

from results.store.schemas.base import AnySchema as AnySchema
from results.store.schemas.base import Count, Number, Seconds, Sha256, TrialId
from results.store.schemas.base import Fact as Fact
from results.store.schemas.base import Facts as Facts
from results.store.schemas.base import Plain as Plain
from results.store.schemas.base import Schema as Schema
from results.store.schemas.base import Settings as Settings
from results.store.schemas.base import unknown_field as unknown_field
from results.store.schemas.base import validated as validated
from results.store.schemas.metrics import Metric as Metric
from results.store.schemas.plans import Arm as Arm
from results.store.schemas.plans import Asked as Asked
from results.store.schemas.plans import Declaration as Declaration
from results.store.schemas.plans import DeclaredArm as DeclaredArm
from results.store.schemas.plans import Entry as Entry
from results.store.schemas.plans import Expected as Expected
from results.store.schemas.plans import Interaction as Interaction
from results.store.schemas.plans import LaterDifference as LaterDifference
from results.store.schemas.plans import Looks as Looks
from results.store.schemas.plans import Plan as Plan
from results.store.schemas.plans import PlannedData as PlannedData
from results.store.schemas.plans import PlannedTrial as PlannedTrial
from results.store.schemas.plans import Seal as Seal
from results.store.schemas.plans import SealedCode as SealedCode
from results.store.schemas.plans import Split as Split
from results.store.schemas.plans import Stage as Stage
from results.store.schemas.plans import Stated as Stated
from results.store.schemas.plans import StatedCost as StatedCost
from results.store.schemas.plans import StatedSpread as StatedSpread
from results.store.schemas.plans import Took as Took
from results.store.schemas.plans import Tuned as Tuned

Metrics = dict[str, FiniteFloat | None]


class Result(Schema):
    """The content of trials/<id>/result.json: how a trial ended."""

    id: TrialId  #: Id of the trial.
    attempt: Number  #: Number of the attempt that published this result.
    status: Literal["finished", "diverged"]  #: Whether training ended normally or its loss became infinite or NaN.
    metrics: Metrics  #: Name -> value.
    checksum: Sha256  #: SHA-256 of the rest of the file.
    weights_sha256: Sha256 | None = None  #: SHA-256 of the final weights, even if they were not kept.
    files: dict[str, Sha256] = {}  #: File name -> SHA-256, for config.json, env.json, metrics.jsonl and correct.npz.
    params: Count | None = None  #: Trainable parameters.
    flops: Count | None = None  #: FLOPs of one image through the model.
    steps: Count | None = None  #: Optimizer steps taken.
    images: Count | None = None  #: Training images seen, with repetition.
    train_seconds: Seconds | None = None  #: Seconds of training, over all attempts.
    images_per_second: Seconds | None = None  #: Training images per second.
    diverged_at_step: Count | None = None  #: The step at which the trial diverged.
    #: The step at which the loss was NaN, but finite when recomputed: the device may be faulty.
    suspect_hardware: Count | None = None
    micro_batch: Count = 0  #: Images per backward pass of a process. 0: its whole share of the batch.


class TrialConfig(Schema):
    """The content of trials/<id>/config.json: the resolved config."""

    config: Settings  #: Setting -> resolved value.


class ResumedFrom(Schema):
    attempt: Number  #: Number of the attempt that saved the checkpoint.
    step: Count  #: Step of the checkpoint.


class Environment(Schema):
    """The content of attempts/<n>/env.json: where an attempt ran."""

    started: str = ""  #: Time in UTC at which the attempt began.
    code: str = ""  #: Digest of the sources and plug-ins.
    revision: str | None = None  #: The git revision.
    plugins: dict[str, str] = {}  #: Plug-in file name -> digest.
    host: str = ""  #: The machine.
    node: str = ""  #: The SLURM node.
    device: str = ""  #: The processor or GPU.
    accelerator: str = ""  #: `cuda` or `cpu`.
    imported: str = ""  #: The export from which the trial was merged, or "" if it was trained here.
    threads: Count | None = None  #: Number of PyTorch's CPU threads.
    ranks: Count = 1  #: Number of processes that train the trial together.
    micro_batch: Count = 0  #: Images per backward pass of a process. 0: its whole share of the batch.
    resumed_from: ResumedFrom | None = None  #: Where the attempt started: a checkpoint, or step 0 of itself.


class Failure(Schema):
    """The content of attempts/<n>/failure.json: why an attempt failed."""

    cause: str  #: The error in one line.
    traceback: str = ""  #: Traceback of the error.
    code: str = ""  #: Digest of the sources and plug-ins. If it changes, the trial is tried again.
    kind: str = ""  #: The kind of fault: `bug`, `input`, `memory` or `machine`.
    where: list[str] = []  #: Frames of the traceback.
    again: bool = False  #: Whether the trial may be tried again with the same code.
    node: str | None = None  #: The SLURM node to blame, if it is not the attempt's.


class Lease(Schema):
    """The content of attempts/<n>/lease.json: the process that holds an attempt."""

    host: str  #: The machine.
    boot: str  #: Boot id of the machine.
    pids: str = ""  #: Namespace of the process id.
    pid: Count  #: Process id.
    started: str | None  #: Start time of the process, in clock ticks since boot.
    #: Random text that identifies the holder. It is part of the path of checkpoints in scratch space.
    nonce: Annotated[str, Field(pattern="^([0-9a-f]{32})?$")] = ""


class MetricsLine(Schema):
    """A line of metrics.jsonl: one evaluation during training. A number that was not recorded is None.

    Besides these fields, a line has any numbers that the trial measures, such as `train_loss` and `val_accuracy`.
    """

    step: Count  #: Optimizer steps taken.
    epoch: float | None = None  #: Passes over the training images.
    images: Count | None = None  #: Training images seen, with repetition.
    seconds: float | None = None  #: Seconds of training, without evaluation and compilation.

    def number(self, name: str) -> float | None:
        """Return a number that the trial measured, or None if it did not."""
        value = (self.model_extra or {}).get(name)
        return value if isinstance(value, int | float) else None


class Eval(Schema):
    """The content of trials/<id>/evals/<name>.json: numbers computed later from the weights of a trial."""

    id: TrialId  #: Id of the trial.
    name: str  #: Name of the eval: `fewshot`, `inspect`, `test@SIZE` or `test@patchP`.
    weights_sha256: Sha256 | None  #: SHA-256 of the weights from which the eval was computed.
    checksum: Sha256  #: SHA-256 of the rest of the file.
    metrics: Metrics = {}  #: Name -> value.
    notes: list[str] = []  #: Caveats for the reader.
    data_sha256: str = ""  #: Identifies the images of `test@DATA` or `dense@DATA`, which a name does not.
    arrays_sha256: Sha256 | None = None  #: SHA-256 of the .npz file beside this one.


class EvalSummary(Schema):
    """The part of an eval that tables show."""

    metrics: Metrics
    notes: list[str] = []
    data_sha256: str = ""


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
