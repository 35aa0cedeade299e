"""The files of a trial: its config and result, what its attempts write, and its evals."""

from typing import Annotated, Literal

from pydantic import Field, FiniteFloat

from results.store.schemas.base import Count, Number, Schema, Seconds, Settings, Sha256, TrialId

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
    """A line of metrics.jsonl: one evaluation during training, with any numbers that the trial measures.

    A number that was not recorded is None.
    """

    step: Count  #: Optimizer steps taken.
    epoch: float | None = None  #: Passes over the training images.
    images: Count | None = None  #: Training images seen, with repetition.
    seconds: float | None = None  #: Seconds of training, without evaluation and compilation.

    def number(self, name: str) -> float | None:
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
