"""The settings of a cluster, chosen before it starts and stored in its directory as JSON."""

import dataclasses
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

FILE = "settings.json"
LONGEST_PATH = 60  # characters; a socket's path has at most 107, and slurmd's lie below the directory


@dataclass(frozen=True)
class Settings:
    """The size and limits of a cluster. cpus, memory, gpus: per node.

    The machine need not have these resources, because SLURM trusts its configuration.
    """

    nodes: int = 2  # two, so that a job can start again while its first process lives on
    cpus: int = 8
    memory: int = 16000  # MB
    gpus: int = 4  # links to /dev/null: CUDA_VISIBLE_DEVICES is set, but there is no GPU
    gpu_type: str = "fake"
    accounting: bool = True
    max_submit: int | None = None  # the user's MaxSubmitJobs
    max_array: int = 1001  # MaxArraySize: the highest index is one less
    requeue_delay: int = 20  # seconds before a requeued job may start again; SLURM's default is 120
    port: int = 0  # first of nodes + 2 consecutive ports; 0: free ports are found
    extra: dict[str, str] = field(default_factory=dict)  # further or overriding values of slurm.conf

    def __post_init__(self) -> None:
        for name, lowest in {"nodes": 1, "cpus": 1, "memory": 1, "gpus": 0, "max_array": 1, "requeue_delay": 5}.items():
            if getattr(self, name) < lowest:
                raise ValueError(f"{name}={getattr(self, name)}: at least {lowest}")
        if self.max_submit is not None and not self.accounting:
            raise ValueError("max_submit: limits of a user need accounting")
        if not re.fullmatch(r"[A-Za-z0-9_-]+", self.gpu_type):
            raise ValueError(f"gpu_type={self.gpu_type!r}: letters, digits, - and _")

    @property
    def names(self) -> list[str]:
        """The names of the nodes: node1, node2, ..."""
        return [f"node{number}" for number in range(1, self.nodes + 1)]

    @property
    def ports(self) -> range:
        """The ports of slurmctld, of slurmdbd and of each node, in this order."""
        return range(self.port, self.port + 2 + self.nodes)

    def save(self, folder: Path) -> None:
        """Write the settings into the directory, which claims it for this cluster.

        Raises FileExistsError if the directory has settings already.
        """
        with open(folder / FILE, "x") as file:
            json.dump(dataclasses.asdict(self), file, indent=1)


def load(folder: Path) -> Settings:
    """Return the settings of the cluster in `folder`. Raises ValueError if the folder holds no cluster."""
    try:
        return Settings(**json.loads((folder / FILE).read_text()))
    except (OSError, TypeError, ValueError):
        raise ValueError(f"{folder}: no cluster here") from None


def resolved(folder: Path) -> Path:
    """Return the absolute path of the directory, without links and `~`.

    Raises ValueError if the path is too long for sockets or has characters that SLURM does not take.
    """
    path = folder.expanduser().resolve()
    if len(str(path)) > LONGEST_PATH:
        raise ValueError(f"{path}: sockets need a directory of at most {LONGEST_PATH} characters")
    if not re.fullmatch(r"[A-Za-z0-9_./+-]+", str(path)):
        raise ValueError(f"{path}: SLURM takes only letters, digits and _ . / + - in a path")
    return path
