"""The daemons: the command that starts each, and a query that it must answer."""

from dataclasses import dataclass
from pathlib import Path

from slurm.devcluster.settings import Settings

Command = tuple[str, ...]


@dataclass(frozen=True)
class Daemon:
    """A daemon. `command` starts it and returns; it works if the output of `question` matches `answer`."""

    name: str
    command: Command
    question: Command
    answer: str = ""  # a regular expression

    @property
    def program(self) -> str:
        return self.command[2] if self.command[0] == "setsid" else self.command[0]


def daemons(folder: Path, settings: Settings) -> list[Daemon]:
    """Return the daemons in the order of their dependencies."""
    names = [_munged(folder)]
    if settings.accounting:
        names += [_mariadbd(folder), _slurmdbd()]
    return names + [_slurmctld()] + [_slurmd(name) for name in settings.names]


def _munged(folder: Path) -> Daemon:
    socket = f"{folder}/run/munge.socket"
    files = (f"--pid-file={folder}/run/munged.pid", f"--log-file={folder}/log/munged.log")
    keys = (f"--key-file={folder}/munge.key", f"--seed-file={folder}/run/munge.seed")
    # --force: the directory is closed to other users, and munged would rather have its socket open to all
    command = ("munged", "--force", "--num-threads=10", f"--socket={socket}", *files, *keys)
    return Daemon("munged", command, ("munge", "--no-input", f"--socket={socket}"))


def _mariadbd(folder: Path) -> Daemon:
    command = ("setsid", "--fork", "mariadbd", f"--defaults-file={folder}/my.cnf")
    return Daemon("mariadbd", command, ("mariadb-admin", f"--socket={folder}/run/mariadb.socket", "ping"))


def _slurmdbd() -> Daemon:
    return Daemon("slurmdbd", ("slurmdbd",), ("sacctmgr", "--noheader", "show", "cluster"))


def _slurmctld() -> Daemon:
    return Daemon("slurmctld", ("slurmctld",), ("scontrol", "ping"), r"is UP")


def _slurmd(node: str) -> Daemon:
    state = ("sinfo", "--noheader", "--Node", "--partition=main", f"--nodes={node}", "--format=%T")
    # down*, idle*, unknown: not registered, or not answering
    return Daemon(node, ("slurmd", "-N", node), state, r"^(idle|mixed|allocated|completing|drain\w*)\s*$")
