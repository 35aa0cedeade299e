"""The settings of a cluster, its configuration files and its daemons. All files lie in the cluster's directory."""

import re
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, model_validator

CLUSTER, ACCOUNT, USER = "dev", "lab", "root"
FILE = "settings.json"
FOLDERS = ("log", "run", "state", "spool", "work", "tmp")
LONGEST_PATH = 60  # characters; a socket's path has at most 107, and slurmd's lie below the directory
Count = Annotated[int, Field(ge=1)]


class Settings(BaseModel, frozen=True):
    """The size and limits of a cluster. cpus, memory, gpus: per node.

    The machine need not have these resources, because SLURM trusts its configuration.
    """

    nodes: Count = 2  # two, so that a job can start again while its first process lives on
    cpus: Count = 8
    memory: Count = 16000  # MB
    gpus: Annotated[int, Field(ge=0)] = 4  # links to /dev/null: CUDA_VISIBLE_DEVICES is set, but there is no GPU
    gpu_type: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")] = "fake"
    accounting: bool = True
    max_submit: int | None = None  # the user's MaxSubmitJobs
    max_array: Count = 1001  # MaxArraySize: the highest index is one less
    requeue_delay: Annotated[int, Field(ge=5)] = 20  # seconds before a requeued job may start; SLURM's default is 120
    port: int = 0  # first of nodes + 2 consecutive ports; 0: free ports are found
    extra: dict[str, str] = {}  # further or overriding values of slurm.conf

    @model_validator(mode="after")
    def _limits_need_accounting(self) -> "Settings":
        if self.max_submit is not None and not self.accounting:
            raise ValueError("max_submit: limits of a user need accounting")
        return self

    @property
    def names(self) -> list[str]:
        """The names of the nodes: node1, node2, ..."""
        return [f"node{number}" for number in range(1, self.nodes + 1)]

    @property
    def ports(self) -> range:
        """The ports of slurmctld, of slurmdbd and of each node, in this order."""
        return range(self.port, self.port + 2 + self.nodes)


def absolute_path(folder: Path) -> Path:
    """Return the absolute path of a directory, with links and `~` resolved.

    Raises ValueError if the path is too long for sockets or has characters that SLURM does not accept.
    """
    path = folder.expanduser().resolve()
    if len(str(path)) > LONGEST_PATH:
        raise ValueError(f"{path}: sockets need a directory of at most {LONGEST_PATH} characters")
    if not re.fullmatch(r"[A-Za-z0-9_./+-]+", str(path)):
        raise ValueError(f"{path}: SLURM takes only letters, digits and _ . / + - in a path")
    return path


# -- daemons -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Daemon:
    """A daemon of the cluster, with the commands that start it and that test whether it works."""

    name: str
    command: tuple[str, ...]  # starts the daemon in the background
    question: tuple[str, ...]  # a command that succeeds if the daemon works
    answer: str = ""  # a regular expression that the output of `question` then matches

    @property
    def program(self) -> str:
        return self.command[2] if self.command[0] == "setsid" else self.command[0]


def daemons(folder: Path, settings: Settings) -> list[Daemon]:
    """Return the daemons in the order in which they must be started."""
    run, log, socket = f"{folder}/run", f"{folder}/log", f"--socket={folder}/run/munge.socket"
    files = (f"--pid-file={run}/munged.pid", f"--log-file={log}/munged.log", f"--seed-file={run}/munge.seed")
    # --force: munged objects to a socket in a directory that is closed to other users
    munged = ("munged", "--force", "--num-threads=10", socket, *files, f"--key-file={folder}/munge.key")
    found = [Daemon("munged", munged, ("munge", "--no-input", socket))]
    if settings.accounting:
        mariadbd = ("setsid", "--fork", "mariadbd", f"--defaults-file={folder}/my.cnf")
        found.append(Daemon("mariadbd", mariadbd, ("mariadb-admin", f"--socket={run}/mariadb.socket", "ping")))
        found.append(Daemon("slurmdbd", ("slurmdbd",), ("sacctmgr", "--noheader", "show", "cluster")))
    found.append(Daemon("slurmctld", ("slurmctld",), ("scontrol", "ping"), "is UP"))
    for name in settings.names:
        state = ("sinfo", "--noheader", "--Node", "--partition=main", f"--nodes={name}", "--format=%T")
        # down*, idle*, unknown: not registered, or not answering
        working = r"^(idle|mixed|allocated|completing|drain\w*)\s*$"
        found.append(Daemon(name, ("slurmd", "-N", name), state, working))
    return found


# -- files -------------------------------------------------------------------------------------------------------------


def write(folder: Path, settings: Settings) -> None:
    for name in FOLDERS:
        (folder / name).mkdir()
    for name in settings.names:
        (folder / "spool" / name).mkdir()
    for number in range(settings.gpus):
        (folder / f"gpu{number}").symlink_to("/dev/null")  # SLURM requires device files and counts them by name
    _private(folder / "munge.key", secrets.token_bytes(128))
    _private(folder / "slurm.conf", _lines(slurm_conf(folder, settings)) + nodes(settings) + partitions(settings))
    devices = f"Name=gpu Type={settings.gpu_type} File={folder}/gpu[0-{settings.gpus - 1}]"
    gres = f"AutoDetect=off\nNodeName=node[1-{settings.nodes}] {devices}\n"
    _private(folder / "gres.conf", gres if settings.gpus else "")
    if settings.accounting:
        _private(folder / "slurmdbd.conf", _lines(slurmdbd_conf(folder, settings)))
        _private(folder / "my.cnf", "[mariadbd]\n" + _lines(mariadb_conf(folder)))


def slurm_conf(folder: Path, settings: Settings) -> dict[str, str]:
    values = {
        "ClusterName": CLUSTER,
        "SlurmctldHost": f"{_host()}(127.0.0.1)",
        "SlurmctldPort": str(settings.ports[0]),
        "MailProg": "/bin/true",
        "SlurmUser": USER,
        "SlurmdUser": USER,
        "CommunicationParameters": "NoCtldInAddrAny",  # slurmctld listens only on this machine
        # cred_expire is also the delay before a requeued or preempted job may start again
        "AuthInfo": f"socket={folder}/run/munge.socket,cred_expire={settings.requeue_delay}",
        "StateSaveLocation": f"{folder}/state",
        "SlurmdSpoolDir": f"{folder}/spool/%n",
        "SlurmctldPidFile": f"{folder}/run/slurmctld.pid",
        "SlurmdPidFile": f"{folder}/run/%n.pid",
        "SlurmctldLogFile": f"{folder}/log/slurmctld.log",
        "SlurmdLogFile": f"{folder}/log/%n.log",
        # neither cgroups nor systemd: this works in a container
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "JobAcctGatherType": "jobacct_gather/linux",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory",
        "SlurmdParameters": "config_overrides",  # CPUs and memory as configured, whatever the machine has
        "GresTypes": "gpu",
        "DefMemPerCPU": str(max(1, settings.memory // settings.cpus)),
        "MaxArraySize": str(settings.max_array),
        "EnforcePartLimits": "ALL",
        "PreemptType": "preempt/partition_prio",
        "PreemptMode": "REQUEUE",
        "SchedulerType": "sched/backfill",
        "SchedulerParameters": "batch_sched_delay=0,sched_interval=2,bf_interval=2",
        "ReturnToService": "2",
        "KillWait": "15",
        "MinJobAge": "10",
        "MessageTimeout": "10",
        "SlurmdTimeout": "60",
    }
    accounting = {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": "127.0.0.1",
        "AccountingStoragePort": str(settings.ports[1]),
        "AccountingStoragePass": f"{folder}/run/munge.socket",  # AuthInfo does not apply to this connection
        "AccountingStorageEnforce": "associations,limits",
        "AccountingStorageTRES": "gres/gpu",
    }
    none = {"AccountingStorageType": "accounting_storage/none"}
    return values | (accounting if settings.accounting else none) | settings.extra


def nodes(settings: Settings) -> str:
    """Return the lines of slurm.conf that define the nodes: this machine under several names and ports."""
    gpus = f" Gres=gpu:{settings.gpu_type}:{settings.gpus}" if settings.gpus else ""
    return "".join(
        f"NodeName={name} NodeHostname={_host()} NodeAddr=127.0.0.1 Port={port}"
        f" CPUs={settings.cpus} RealMemory={settings.memory} Feature=dev{gpus}\n"
        for name, port in zip(settings.names, settings.ports[2:], strict=True)
    )


def partitions(settings: Settings) -> str:
    """Return the lines of slurm.conf that define the partitions. Jobs in `urgent` preempt jobs in other partitions."""
    common = "Nodes=ALL MaxTime=1-00:00:00"
    return (
        f"PartitionName=main Default=YES {common} PriorityTier=1 PreemptMode=REQUEUE\n"
        f"PartitionName=cancel {common} PriorityTier=1 PreemptMode=CANCEL\n"
        f"PartitionName=urgent {common} PriorityTier=10 PreemptMode=OFF\n"
    )


def slurmdbd_conf(folder: Path, settings: Settings) -> dict[str, str]:
    return {
        "DbdHost": _host(),
        "DbdAddr": "127.0.0.1",
        "DbdPort": str(settings.ports[1]),
        "SlurmUser": USER,
        "AuthInfo": f"socket={folder}/run/munge.socket",
        "PidFile": f"{folder}/run/slurmdbd.pid",
        "LogFile": f"{folder}/log/slurmdbd.log",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "localhost",  # through MariaDB's socket, where root needs no password
        "StorageUser": USER,
        "StorageLoc": "slurm",
    }


def mariadb_conf(folder: Path) -> dict[str, str]:
    return {
        "user": USER,
        "datadir": f"{folder}/mysql",
        "tmpdir": f"{folder}/tmp",
        "socket": f"{folder}/run/mariadb.socket",
        "pid-file": f"{folder}/run/mariadbd.pid",
        "log-error": f"{folder}/log/mariadbd.log",
        "skip-networking": "1",
        "skip-name-resolve": "1",
        "performance-schema": "0",
        "innodb-buffer-pool-size": "64M",
        "innodb-log-file-size": "8M",
        # the database need not survive a crash, so it does not wait for the disk
        "innodb-flush-method": "nosync",
        "innodb-flush-log-at-trx-commit": "0",
    }


def _host() -> str:
    return socket.gethostname().partition(".")[0]


def _lines(values: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in values.items())


def _private(path: Path, content: str | bytes) -> None:
    """Write a file with mode 0600, because SLURM and munge refuse keys and passwords that other users can read."""
    path.touch(mode=0o600)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
