"""The daemons of a cluster: the command that starts each daemon, and a query that a working daemon answers."""

from dataclasses import dataclass
from pathlib import Path

from slurm.devcluster.settings import Settings

Command = tuple[str, ...]


@dataclass(frozen=True)
class Daemon:
    """A daemon of the cluster.

    command: starts the daemon in the background. question: a command that succeeds if the daemon works. answer: a
    regular expression that the output of `question` then matches.
    """

    name: str
    command: Command
    question: Command
    answer: str = ""

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
