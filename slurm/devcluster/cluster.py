"""The cluster: starting and stopping it, and killing, freezing and restarting its daemons."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType

from slurm.devcluster import files, processes, requirements, teardown
from slurm.devcluster.client import Client
from slurm.devcluster.daemons import Command, Daemon, daemons
from slurm.devcluster.requirements import Unavailable
from slurm.devcluster.settings import FILE, Settings, load, resolved
from slurm.devcluster.waiting import until

ROOT = Path(__file__).parents[2]
START_SECONDS = 60.0


class Cluster(Client):
    """A cluster in a directory that was empty or missing before. SLURM writes only there.

    As a context manager the cluster ends with the block, and with the process if the process is killed.
    """

    def __init__(self, folder: Path, settings: Settings | None = None) -> None:
        super().__init__(resolved(folder))
        self.settings = settings or Settings()
        self._guard: subprocess.Popen[bytes] | None = None

    @classmethod
    def at(cls, folder: Path) -> "Cluster":
        """Return the cluster in this directory. Raises ValueError if there is none."""
        folder = resolved(folder)
        return cls(folder, load(folder))

    def __enter__(self) -> "Cluster":
        self.up(guarded=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.down()

    # -- up and down -------------------------------------------------------------------------------------------------

    def up(self, guarded: bool = False) -> None:
        """Start all daemons; return when a job would run. guarded: end the cluster with this process.

        Raises Unavailable if the machine lacks something, ValueError if the directory or a port is taken, and
        RuntimeError with the log of a daemon that does not start. After an error nothing is left behind.
        """
        if reason := requirements.unmet(self.settings.accounting):
            raise Unavailable(reason)
        self._choose_ports()
        self._claim()
        try:
            if guarded:
                self._watch()
            with teardown.lock(self.folder):
                teardown.kill_all(self.folder)  # of a cluster whose directory somebody removed
                files.write(self.folder, self.settings)
                self._start_all()
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """End all processes of the cluster and remove its directory, as far as they exist."""
        teardown.tear_down(self.folder)
        if self._guard:
            self._guard.communicate(b"down already")
            self._guard = None

    def _choose_ports(self) -> None:
        if not self.settings.port:
            self.settings = replace(self.settings, port=requirements.free_ports(len(self.settings.ports)))
        elif taken := requirements.taken(self.settings.ports):
            raise ValueError(f"port {taken[0]} is taken: choose another, or none and free ones are found")

    def _claim(self) -> None:
        """Claim the directory by creating the settings file. Raises ValueError if the directory is taken."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if any(path.name != FILE for path in self.folder.iterdir()) and not (self.folder / FILE).exists():
                raise ValueError(f"{self.folder}: not empty, and no cluster: choose another directory")
            self.settings.save(self.folder)
        except FileExistsError:
            raise ValueError(f"{self.folder}: taken; if by a cluster, `down` ends it, dead or alive") from None
        self.folder.chmod(0o700)

    def _watch(self) -> None:
        """Start a process that takes the cluster down after the end of this process."""
        command = [sys.executable, "-m", "slurm.devcluster.guard", str(self.folder)]
        self._guard = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=ROOT, start_new_session=True)

    def _start_all(self) -> None:
        for daemon in self.daemons:
            if daemon.name == "mariadbd":
                self._create_database()
            self.start(daemon.name)
            if daemon.name == "slurmdbd":
                self._create_account()

    def _create_database(self) -> None:
        options = ["--auth-root-authentication-method=socket", f"--auth-root-socket-user={files.USER}"]
        defaults = f"--defaults-file={self.folder}/my.cnf"
        self._launch("mariadb-install-db", ("mariadb-install-db", defaults, *options, "--skip-test-db"))

    def _create_account(self) -> None:
        self.run("sacctmgr", "-iQ", "add", "cluster", files.CLUSTER)
        self.run("sacctmgr", "-iQ", "add", "account", files.ACCOUNT)
        limit = [] if self.settings.max_submit is None else [f"MaxSubmitJobs={self.settings.max_submit}"]
        user = ["name=" + files.USER, "account=" + files.ACCOUNT, "defaultaccount=" + files.ACCOUNT]
        self.run("sacctmgr", "-iQ", "add", "user", *user, *limit)

    # -- daemons -----------------------------------------------------------------------------------------------------

    @property
    def daemons(self) -> list[Daemon]:
        return daemons(self.folder, self.settings)

    def named(self, name: str) -> list[Daemon]:
        """Return the daemons of a name, such as slurmctld or a node's; slurmd stands for all nodes."""
        found = [each for each in self.daemons if each.name == name or (name == "slurmd" and each.program == name)]
        if not found:
            raise ValueError(f"{name}: no daemon; there are {', '.join(each.name for each in self.daemons)}, slurmd")
        return found

    def start(self, name: str, wait: bool = True) -> None:
        """Start the daemons that do not run; wait until they answer. slurmctld keeps its saved state."""
        for daemon in self.named(name):
            if self.pid(daemon) is None:
                self._launch(daemon.name, daemon.command)
        if wait:
            self.wait(name)

    def kill(self, name: str) -> None:
        """Kill daemons with SIGKILL, and wait for their end."""
        self.send(name, signal.SIGKILL)
        until(lambda: all(self.pid(each) is None for each in self.named(name)), f"{name}: its end", every=0.02)

    def freeze(self, name: str) -> None:
        """Stop daemons with SIGSTOP, so that they do not answer."""
        self.send(name, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self.send(name, signal.SIGCONT)

    def restart(self, name: str) -> None:
        self.kill(name)
        self.start(name)

    def send(self, name: str, number: signal.Signals) -> None:
        for daemon in self.named(name):
            pid = self.pid(daemon)
            for process in processes.owned(self.folder):
                # slurmctld's helper would outlive it
                if process.pid == pid or (process.parent == pid and process.name == "slurmscriptd"):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process.pid, number)

    def wait(self, name: str | None = None, timeout: float = START_SECONDS) -> None:
        """Wait until the daemons of a name answer; without a name, until all daemons do.

        Raises RuntimeError with the log of a daemon that does not answer or has died.
        """
        for daemon in self.named(name) if name else self.daemons:
            try:
                until(partial(self._answers_or_died, daemon, time.monotonic()), f"{daemon.name} answers", timeout)
            except TimeoutError as error:
                raise RuntimeError(f"{error}{self._last_words(daemon.name)}") from None

    def _answers_or_died(self, daemon: Daemon, since: float) -> bool:
        if self.answers(daemon):
            return True
        names = {process.name for process in processes.owned(self.folder)}
        if time.monotonic() - since > 1.0 and daemon.program not in names:
            raise RuntimeError(f"{daemon.name} is dead{self._last_words(daemon.name)}")
        return False

    def answers(self, daemon: Daemon, timeout: float = 5.0) -> bool:
        try:
            reply = self.run(*daemon.question, timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            return False
        return reply.returncode == 0 and re.search(daemon.answer, reply.stdout, re.MULTILINE) is not None

    def pid(self, daemon: Daemon) -> int | None:
        """Return the daemon's process id if it runs. A pid file alone is not enough: the number may be reused."""
        try:
            pid = int((self.folder / "run" / f"{daemon.name}.pid").read_text())
        except (OSError, ValueError):
            return None
        alive = {process.pid: process.name for process in processes.owned(self.folder)}
        return pid if alive.get(pid) == daemon.program else None

    def _launch(self, name: str, command: Command) -> None:
        environment = self.environment | {processes.MARK: str(self.folder)}
        environment["MYSQL_UNIX_PORT"] = f"{self.folder}/run/mariadb.socket"
        with open(self.folder / "log" / f"{name}.out", "ab") as output:
            try:
                subprocess.run(
                    command,
                    env=environment,
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    timeout=START_SECONDS,
                    check=True,
                )
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
                raise RuntimeError(f"{name} did not start{self._last_words(name)}") from None

    def _last_words(self, name: str) -> str:
        lines: list[str] = []
        for suffix in ("log", "out"):
            with contextlib.suppress(OSError):
                lines += (self.folder / "log" / f"{name}.{suffix}").read_text(errors="replace").splitlines()
        words = [line for line in lines if "fatal" in line] or [line for line in lines if "error" in line.lower()]
        return f": {words[-1].strip()}" if words else ""
