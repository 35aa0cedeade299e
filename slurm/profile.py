"""Profiles: YAML files in which a user states what to request from a SLURM cluster.

The node runs the shell lines of `setup` before each job. `container` is a command that precedes Python. Its words and
the values of `environment` are quoted, so that no shell expands them. All other fields must match narrow patterns, so
that no value can add an option, a command or a path.
"""

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from commonfloor.messages import joined_names, one_line
from commonfloor.options import Options
from slurm import partitions, values
from slurm.partitions import Nodes, duration_text

ENDS = r"(after|afterany|afterok|afternotok)(:\d+(_\d+)?)+"
CLOCK = r"\d\d?:\d\d(:\d\d)?"
BEGIN = rf"{CLOCK}|\d{{4}}-\d\d-\d\d(T{CLOCK})?|now\+\d+(seconds|minutes|hours|days|weeks)?|midnight|noon|tomorrow"
Count = Annotated[int, Field(ge=1, le=1_000_000)]

# field -> (pattern, meaning)
TEXT = {
    "partition": (values.list_pattern(values.WORD), "the name of a partition, or several with commas"),
    "account": (values.WORD, "the name of an account"),
    "qos": (values.WORD, "the name of a quality of service"),
    "gpu_type": (r"[A-Za-z0-9_][\w.-]*", "a type of GPU as SLURM calls it, as in a100"),
    "memory": (values.SIZE, "a number and one of K M G T, as in 16G"),
    "constraint": (values.FEATURES, "features of nodes, as in a100&ib"),
    "checkpoints": (r"(/|~/)[\w./+@=,-]*", "an absolute folder, without blanks"),
    "data_dir": (r"(/|~/)[\w./+@=,-]*", "an absolute folder, without blanks"),
    "dependency": (values.list_pattern(ENDS), "ends of other jobs, as in afterok:1234"),
    "begin": (BEGIN, "a time, as in 20:00, 2030-01-31T20:00 or now+2hours"),
    "comment": (r"[A-Za-z0-9_][\w .:=@/+-]*", "letters, digits, blanks and . : = @ / + - _"),
}
# The keys that a recipe may set. Commands, folders, accounts and options depend on the user's cluster.
RESOURCES = ("nodes", "gpus", "gpu_type", "trials_per_gpu", "cpus", "memory", "time", "task_minutes")
TIME = re.compile(r"(\d{1,4}-)?\d{1,4}:[0-5]?\d:[0-5]?\d", re.ASCII)
OURS = ("SLURM", "SBATCH", "SRUN", "SUBMITIT")  # set by SLURM and submitit for each job


class Profile(Options):
    """What each job of a submission requests. Raises a ValueError that names an invalid key and its allowed values."""

    partition: str | None = None  #: The partition, or several with commas.
    account: str | None = None  #: The account that is charged.
    qos: str | None = None  #: The quality of service.
    nodes: Count = 1  #: Nodes of a job. `gpus`, `cpus` and `memory` are per node.
    gpus: Annotated[int, Field(ge=0, le=1000)] = 1  #: GPUs per node. 0: train on the CPU.
    gpu_type: str | None = None  #: A type of GPU as SLURM calls it, such as `a100`.
    trials_per_gpu: Annotated[int, Field(ge=1, le=100)] = 1  #: Trials at a time on each GPU, for small models.
    cpus: Count = 1  #: Cores per node.
    memory: str | None = None  #: Memory per node, such as `16G`.
    time: str | int = "4:00:00"  #: The time limit of one job. The next job continues its trials.
    constraint: str | None = None  #: Required features of the nodes, such as `a100&ib`.
    parallel: Count | None = None  #: Maximum number of jobs that run at once. Unless set, SLURM decides.
    task_minutes: Annotated[float, Field(gt=0)] = 10.0  #: Small trials share a task of about this many minutes.
    setup: tuple[str, ...] = ()  #: Shell lines that the node runs before each job, such as `module load cuda`.
    environment: dict[str, str] = {}  #: Environment variables of the jobs. No shell expands them.
    #: A command before Python, such as `apptainer exec --nv IMAGE`. No shell reads it.
    container: str | None = None
    dependency: str | None = None  #: Dependencies of the submitted jobs on other jobs, such as `afterok:1234`.
    begin: str | None = None  #: Earliest start of the submitted jobs, such as `20:00` or `now+2hours`.
    comment: str | None = None  #: Text after the submission's tag in the comment of each job.
    extra: values.SlurmOptions = {}  #: Further options of `sbatch`, such as `mail-type: END`.
    srun: values.SlurmOptions = {}  #: Options of `srun`, such as `cpu-bind: cores`.
    #: What the helper jobs request instead of one core, 2 GB and 15 minutes. `none`: there are no helper jobs.
    helper: dict[str, Any] | Literal["none"] = {}
    checkpoints: str | None = None  #: Folder of checkpoints. By default, the run directory.
    data_dir: str | None = None  #: Folder of data sets. By default, ablate.toml or `ABLATE_DATA` names it.
    keep_weights: Literal["all", "baseline", "none"] | None = None  #: Arms whose final weights are kept.

    @classmethod
    def parse(cls, content: Mapping[str, Any], origin: str) -> "Profile":
        """Return the profile in a file's content, ignoring keys without a value. Raises a ValueError with `origin`."""
        try:
            return cls(**{key: value for key, value in content.items() if value is not None})
        except ValueError as error:
            raise ValueError(one_line(f"{origin}: {error}")) from None

    @classmethod
    def check_resources(cls, content: Mapping[str, Any]) -> None:
        for key in content:
            if key in cls.model_fields and key not in RESOURCES:
                raise ValueError(f"resources.{key}: only a profile says this; a recipe may say {', '.join(RESOURCES)}")
        cls.parse(content, "resources")

    @field_validator(*TEXT)
    @classmethod
    def _word(cls, value: str | None, about: Any) -> str | None:
        if value is not None:
            values.require(about.field_name, value, *TEXT[about.field_name])
        return value

    @field_validator("setup", mode="before")
    @classmethod
    def _setup(cls, lines: object) -> tuple[str, ...]:
        if not isinstance(lines, list | tuple) or not all(isinstance(line, str) for line in lines):
            raise ValueError(f"setup={values.quoted_value(lines)}: a list of shell lines")
        for line in lines:
            values.require_printable("setup", line, "one shell line an entry, without tabs or control characters")
            if line.lstrip().startswith("#"):
                shown = values.quoted_value(line)
                raise ValueError(f"setup={shown}: no comments (SLURM reads #SBATCH lines as options)")
        return tuple(lines)

    @field_validator("environment", mode="before")
    @classmethod
    def _environment(cls, variables: object) -> dict[str, str]:
        if not isinstance(variables, dict):
            raise ValueError(f"environment={values.quoted_value(variables)}: names and values")
        return {name: exported_value(name, value) for name, value in variables.items()}

    @field_validator("extra", "srun", mode="before")
    @classmethod
    def _options(cls, options: object, about: Any) -> values.SlurmOptions:
        allowed = {"extra": values.SBATCH, "srun": values.SRUN}[about.field_name]
        return values.checked_options(about.field_name, allowed, options)

    @model_validator(mode="after")
    def _check(self) -> "Profile":
        in_seconds(self.time)
        if self.container is not None:
            container_words(self.container)
        if self.helper and self.helper != "none":
            try:
                Profile(**{"gpus": 0, **self.helper})
            except ValueError as error:
                raise ValueError(f"helper: {error}") from None
        if self.gpu_type and not self.gpus:
            raise ValueError(f"gpu_type={self.gpu_type} with gpus=0: leave it out, or ask for a GPU")
        if re.search(r"\bgpu\b", str(self.extra.get("gres", ""))):
            raise ValueError(f"extra.gres={self.extra['gres']}: GPUs are the key 'gpus'")
        shares = [name for name in ("mem-per-cpu", "mem-per-gpu") if name in self.extra]
        if len(shares) + bool(self.memory) > 1:
            raise ValueError(f"extra.{shares[0]}={self.extra[shares[0]]}: only one of memory, mem-per-cpu, mem-per-gpu")
        return self

    @property
    def helper_profile(self) -> "Profile":
        """The profile of the last job and of the job that watches, which work for seconds on one core."""
        settings = self.model_dump(include={"partition", "account", "qos", "setup", "environment", "comment"})
        settings |= {"gpus": 0, "cpus": 1, "memory": "2G", "time": 15}
        settings["extra"] = {name: self.extra[name] for name in ("reservation", "wckey") if name in self.extra}
        if self.helper != "none":
            settings |= self.helper
        return Profile(**settings)

    @property
    def seconds(self) -> int:
        return in_seconds(self.time)

    @property
    def minutes(self) -> int:
        """The time limit of one job in minutes, rounded up because SLURM knows whole minutes only."""
        return -(-self.seconds // 60)

    @property
    def prefix(self) -> tuple[str, ...]:
        """The words of the command `container`, or () without a container."""
        if self.container is None:
            return ()
        return container_words(self.container)

    @property
    def start(self) -> dict[str, str]:
        """The options of sbatch that say when the submitted jobs may begin: `begin` and `dependency`, if set."""
        return self.model_dump(include={"begin", "dependency"}, exclude_none=True)

    @property
    def gres(self) -> str | None:
        """The value of sbatch's --gres (GPUs and other resources), or None. Every SelectType supports --gres."""
        parts = []
        if self.gpus:
            parts.append(":".join(filter(None, ["gpu", self.gpu_type, str(self.gpus)])))
        if "gres" in self.extra:
            parts.append(str(self.extra["gres"]))
        return ",".join(parts) or None


def container_words(container: str) -> tuple[str, ...]:
    meaning = "a command and its options, as in 'apptainer exec --nv /images/torch.sif'"
    try:
        words = shlex.split(values.require_printable("container", container, meaning))
    except ValueError:
        words = []
    if not words or words[0].startswith("-"):
        raise ValueError(f"container={values.quoted_value(container)}: {meaning}")
    return tuple(words)


def in_seconds(time: str | int) -> int:
    """Return a time limit in seconds. time: minutes, or text such as 4:00:00. Raises ValueError if not allowed."""
    meaning = "hours:minutes:seconds as in 4:00:00, with days as in 2-00:00:00, or a number of minutes"
    if isinstance(time, int):
        seconds = time * 60
    elif TIME.fullmatch(time):
        seconds = partitions.seconds(time) or 0
    else:
        raise ValueError(f"time={values.quoted_value(time)}: {meaning}")
    if not 60 <= seconds <= 366 * 86400:
        raise ValueError(f"time={values.quoted_value(time)}: at least a minute and at most a year")
    return seconds


def exported_value(name: object, value: object) -> str:
    key = f"environment.{values.quoted_value(name)}"
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,99}", name, re.ASCII):
        raise ValueError(f"unknown name '{key}': letters, digits and _, 100 at most")
    if name.startswith(OURS):
        raise ValueError(f"{key}: names that start with {', '.join(OURS)} are SLURM's and submitit's own")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{key}={values.quoted_value(value)}: a string or a number")
    return values.require_printable(key, str(value), "one line without control characters")


# -- the files of profiles ---------------------------------------------------------------------------------------------


def folder() -> Path:
    """Return the folder of profiles, below $XDG_CONFIG_HOME or ~/.config."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "ablate" / "profiles"


def path_to_write(name: str) -> Path:
    if name.endswith((".yaml", ".yml")):
        raise ValueError(f"profile {values.quoted_value(name)}: a name without its ending, or --out FILE")
    values.require("profile", name, values.WORD, "a name of letters, digits and . _ @ + -")
    return folder() / f"{name}.yaml"


def is_known(name: str) -> bool:
    return os.path.isfile(folder() / f"{name}.yaml")


def find_profile(name_or_file: str) -> Path:
    if "/" in name_or_file or name_or_file.endswith((".yaml", ".yml")):
        path = Path(os.path.expanduser(name_or_file))
        if not os.path.isfile(path):  # also False for an impossible file name, where Path.is_file raises
            raise ValueError(f"profile {values.quoted_value(name_or_file)}: there is no such file")
        return path
    files = {file.stem: file for file in folder().glob("*.yaml")}
    if name_or_file not in files:
        names = joined_names(sorted(files)) or "none yet (ablate profile init NAME)"
        raise ValueError(f"profile {values.quoted_value(name_or_file)}: not in {folder()}: {names}")
    return files[name_or_file]


# -- the draft of a profile --------------------------------------------------------------------------------------------

LONGEST = Profile().seconds  # seconds; short jobs start sooner, and the next job continues their trials
MOST_CPUS, MOST_GIGABYTES = 4, 16
DRAFT = """\
# How this cluster is asked for a job. A key that is left out is left to SLURM.
#
{offers}
#
partition: {partition}
# account: my-lab       # who pays; else your default account
gpus: {gpus}  # a job trains one model at a time; types: {types}
cpus: {cpus}  # a node has {all_cpus}
memory: {memory}G  # a node has {all_memory}G
time: {time}  # of one job; longer trials go on in the next
# constraint: a100      # features of nodes: {features}
# parallel: 8           # jobs at once; else as many as SLURM starts
# setup:                # shell, run on the node before each job
#   - module load cuda
# environment:          # exported as written; of your own variables only what jobs need goes along
#   OMP_NUM_THREADS: 1
# extra:                # options of sbatch: mail-type, exclude, tmp, ...
#   mail-type: END
"""


def draft(groups: Sequence[Nodes]) -> str:
    """Return the draft of a profile as commented YAML, for nodes of an open partition: with GPUs, default, many."""
    opened = [nodes for nodes in groups if nodes.open]
    if not opened:
        raise ValueError("SLURM has no partition that takes jobs: sinfo shows none that is up")
    best = max(opened, key=lambda nodes: (bool(nodes.gpus), nodes.default, nodes.count))
    gigabytes = best.memory // 1024
    share = max(1, best.gpu_count())  # jobs that fit on a node
    return DRAFT.format(
        offers="\n".join(f"#   {partitions.description(nodes)}" for nodes in opened),
        partition=json.dumps(best.partition) if values.matches(best.partition, values.WORD) else "",
        gpus=min(1, best.gpu_count()),
        types=values.quoted_names(best.gpus),
        cpus=max(1, min(MOST_CPUS, best.cpus // share)),
        all_cpus=best.cpus,
        memory=max(1, min(MOST_GIGABYTES, gigabytes // share)),
        all_memory=gigabytes,
        time=duration_text(min(LONGEST, best.limit or LONGEST)),
        features=values.quoted_names(best.features),
    )
