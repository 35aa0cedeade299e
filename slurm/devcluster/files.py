"""The configuration files of a cluster, all in the cluster's directory."""

import os
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path

from slurm.devcluster.settings import Settings

CLUSTER, ACCOUNT, USER = "dev", "lab", "root"
FOLDERS = ("log", "run", "state", "spool", "work", "tmp")


def write(folder: Path, settings: Settings) -> None:
    for name in FOLDERS:
        (folder / name).mkdir()
    for name in settings.names:
        (folder / "spool" / name).mkdir()
    for number in range(settings.gpus):
        (folder / f"gpu{number}").symlink_to("/dev/null")  # SLURM requires device files and counts them by name
    _private(folder / "munge.key", secrets.token_bytes(128))
    _private(folder / "slurm.conf", _lines(slurm(folder, settings)) + nodes(settings) + partitions(settings))
    _private(folder / "gres.conf", gres(folder, settings))
    if settings.accounting:
        _private(folder / "slurmdbd.conf", _lines(slurmdbd(folder, settings)))
        _private(folder / "my.cnf", "[mariadbd]\n" + _lines(mariadb(folder)))


def slurm(folder: Path, settings: Settings) -> dict[str, str]:
    values = {
        "ClusterName": CLUSTER,
        "SlurmctldHost": f"{_host()}(127.0.0.1)",
        "SlurmctldPort": str(settings.ports[0]),
        "MailProg": "/bin/true",
        "SlurmUser": USER,
        "SlurmdUser": USER,
        "CommunicationParameters": "NoCtldInAddrAny",  # slurmctld listens on this machine only
        "AuthType": "auth/munge",
        # cred_expire is also the delay before a requeued or preempted job may start again
        "AuthInfo": f"socket={folder}/run/munge.socket,cred_expire={settings.requeue_delay}",
        "CredType": "cred/munge",
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
        "MpiDefault": "none",
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
        "KillWait": "5",
        "MinJobAge": "10",
        "MessageTimeout": "10",
        "SlurmdTimeout": "60",
    }
    return values | _accounting(folder, settings) | settings.extra


def _accounting(folder: Path, settings: Settings) -> dict[str, str]:
    if not settings.accounting:
        return {"AccountingStorageType": "accounting_storage/none"}
    return {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": "127.0.0.1",
        "AccountingStoragePort": str(settings.ports[1]),
        "AccountingStoragePass": f"{folder}/run/munge.socket",  # AuthInfo does not apply to this connection
        "AccountingStorageEnforce": "associations,limits",
        "AccountingStorageTRES": "gres/gpu",
    }


def nodes(settings: Settings) -> str:
    """Return the lines of slurm.conf that define the nodes: this machine under several names and ports."""
    gpus = f" Gres=gpu:{settings.gpu_type}:{settings.gpus}" if settings.gpus else ""
    return "".join(
        f"NodeName={name} NodeHostname={_host()} NodeAddr=127.0.0.1 Port={port}"
        f" CPUs={settings.cpus} RealMemory={settings.memory} Feature=dev{gpus}\n"
        for name, port in zip(settings.names, settings.ports[2:], strict=True)
    )


def partitions(settings: Settings) -> str:
    """Return the lines of slurm.conf that define the partitions.

    When jobs of the partition `urgent` need nodes, jobs of `main` are requeued and jobs of `cancel` are cancelled.
    """
    common = "Nodes=ALL MaxTime=1-00:00:00"
    return (
        f"PartitionName=main Default=YES {common} PriorityTier=1 PreemptMode=REQUEUE\n"
        f"PartitionName=cancel {common} PriorityTier=1 PreemptMode=CANCEL\n"
        f"PartitionName=urgent {common} PriorityTier=10 PreemptMode=OFF\n"
    )


def gres(folder: Path, settings: Settings) -> str:
    if not settings.gpus:
        return ""
    files = f"{folder}/gpu[0-{settings.gpus - 1}]"
    return f"AutoDetect=off\nNodeName=node[1-{settings.nodes}] Name=gpu Type={settings.gpu_type} File={files}\n"


def slurmdbd(folder: Path, settings: Settings) -> dict[str, str]:
    return {
        "DbdHost": _host(),
        "DbdAddr": "127.0.0.1",
        "DbdPort": str(settings.ports[1]),
        "SlurmUser": USER,
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={folder}/run/munge.socket",
        "PidFile": f"{folder}/run/slurmdbd.pid",
        "LogFile": f"{folder}/log/slurmdbd.log",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "localhost",  # through MariaDB's socket, where root needs no password
        "StorageUser": USER,
        "StorageLoc": "slurm",
    }


def mariadb(folder: Path) -> dict[str, str]:
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
    data = content.encode() if isinstance(content, str) else content
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
