"""A cluster whose daemons can be started, killed, frozen and ended, and on which SLURM's commands can be run."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from pydantic import ValidationError

from devcluster import config, processes, requirements
from devcluster.config import ACCOUNT, CLUSTER, FILE, USER, Daemon, Settings
from devcluster.processes import wait_until

TESTS = Path(__file__).parents[1]
START_SECONDS = 60.0
FOREIGN = re.compile("SLURM|SBATCH|SQUEUE|SINFO|SACCT|SALLOC|SRUN|SCANCEL")
# Runs `down` if its standard input ends without a line, as it does if the parent process is killed.
GUARD = ("sh", "-c", 'read -r line || exec "$@"', "sh", sys.executable, "-m", "devcluster", "down", "--dir")


class Cluster:
    """A SLURM cluster on this machine, which writes only to its directory `folder`.

    Used as a context manager, it ends with the block, even if this process is killed. Raises ValueError if `folder` is
    not a path that SLURM can use. Unless a docstring says otherwise, methods that wait raise TimeoutError after 30 s.
    """

    def __init__(self, folder: Path, settings: Settings | None = None) -> None:
        self.folder = config.absolute_path(folder)
        self.settings = settings or Settings()
        self._guard: subprocess.Popen[bytes] | None = None

    @classmethod
    def load(cls, folder: Path) -> "Cluster":
        """Return the cluster that was started in this directory. Raises ValueError if it holds no cluster."""
        try:
            settings = Settings.model_validate_json((config.absolute_path(folder) / FILE).read_bytes())
        except (OSError, ValidationError):
            raise ValueError(f"{folder}: no cluster here") from None
        return cls(folder, settings)

    def __enter__(self) -> "Cluster":
        self.up(guarded=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    # -- up and down -------------------------------------------------------------------------------------------------

    def up(self, guarded: bool = False) -> None:
        """Start all daemons and wait until a job could run. After an error nothing is left behind.

        guarded: whether the cluster ends with this process. Raises ValueError if the directory is not empty or a port
        is taken. Raises RuntimeError if the machine lacks a program, root or free ports, or if a daemon does not start.
        """
        if reason := requirements.unmet_requirement(self.settings.accounting):
            raise RuntimeError(reason)
        if not (port := self.settings.port):
            port = requirements.free_ports(len(self.settings.ports))
        elif taken := requirements.ports_in_use(self.settings.ports):
            raise ValueError(f"port {taken[0]} is taken: choose another, or none and free ones are found")
        self.settings = self.settings.model_copy(update={"port": port})
        self._claim()
        try:
            if guarded:
                command = [*GUARD, str(self.folder)]
                self._guard = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=TESTS, start_new_session=True)
            processes.kill_all(self.folder)  # left by an earlier cluster whose directory was removed
            config.write(self.folder, self.settings)
            for daemon in self.daemons:
                if daemon.name == "mariadbd":
                    root = ("--auth-root-authentication-method=socket", f"--auth-root-socket-user={USER}")
                    defaults = f"--defaults-file={self.folder}/my.cnf"
                    self._launch("mariadb-install-db", ("mariadb-install-db", defaults, *root, "--skip-test-db"))
                self.start(daemon.name)
                if daemon.name == "slurmdbd":
                    self._create_account()
        except BaseException:
            self.down()
            raise

    def _claim(self) -> None:
        """Claim the directory by creating the settings file. Raises ValueError if the directory is not empty."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if any(path.name != FILE for path in self.folder.iterdir()) and not (self.folder / FILE).exists():
            raise ValueError(f"{self.folder}: not empty, and no cluster: choose another directory")
        try:
            with open(self.folder / FILE, "x") as file:
                file.write(self.settings.model_dump_json(indent=1))
        except FileExistsError:
            raise ValueError(f"{self.folder}: taken; if by a cluster, `down` ends it, dead or alive") from None
        self.folder.chmod(0o700)

    def down(self) -> None:
        """End the cluster's processes, as `kill_all` does, and remove its directory.

        Raises ValueError if `folder` is a file, or a directory with files but no cluster.
        """
        foreign = self.folder.is_dir() and any(self.folder.iterdir()) and not (self.folder / FILE).exists()
        if foreign or (self.folder.exists() and not self.folder.is_dir()):
            raise ValueError(f"{self.folder}: holds no cluster, nothing is removed")
        processes.kill_all(self.folder)
        rest = [path for path in self.folder.glob("*") if path.name != FILE]
        for path in (*rest, self.folder):  # the settings go last: without them a killed `down` could not be repeated
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        if self._guard:
            self._guard.communicate(b"down already\n")
            self._guard = None

    def _create_account(self) -> None:
        self.run("sacctmgr", "-iQ", "add", "cluster", CLUSTER)
        self.run("sacctmgr", "-iQ", "add", "account", ACCOUNT)
        limit = [] if self.settings.max_submit is None else [f"MaxSubmitJobs={self.settings.max_submit}"]
        user = ["name=" + USER, "account=" + ACCOUNT, "defaultaccount=" + ACCOUNT]
        self.run("sacctmgr", "-iQ", "add", "user", *user, *limit)

    # -- daemons -----------------------------------------------------------------------------------------------------

    @property
    def daemons(self) -> list[Daemon]:
        return config.daemons(self.folder, self.settings)

    def named(self, name: str) -> list[Daemon]:
        """Return the daemon of a program or node; for "slurmd", those of all nodes. Raises ValueError for others."""
        found = [each for each in self.daemons if each.name == name or (name == "slurmd" and each.program == name)]
        if not found:
            raise ValueError(f"{name}: no daemon; there are {', '.join(each.name for each in self.daemons)}, slurmd")
        return found

    def start(self, name: str) -> None:
        """Start the daemons called `name` unless they run. Raises RuntimeError if one does not start or answer."""
        for daemon in self.named(name):
            if self.pid(daemon) is None:
                self._launch(daemon.name, daemon.command)
        self.wait(name)

    def kill(self, name: str) -> None:
        """Kill the daemons called `name` with SIGKILL, and wait until they have ended."""
        self.send(name, signal.SIGKILL)
        wait_until(lambda: all(self.pid(each) is None for each in self.named(name)), f"{name}: its end", every=0.02)

    def freeze(self, name: str) -> None:
        """Suspend the daemons called `name` with SIGSTOP, so that they exist but do not answer."""
        self.send(name, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self.send(name, signal.SIGCONT)

    def restart(self, name: str) -> None:
        self.kill(name)
        self.start(name)

    def send(self, name: str, number: signal.Signals) -> None:
        for daemon in self.named(name):
            pid = self.pid(daemon)
            for process in processes.cluster_processes(self.folder):
                # the helper of slurmctld would outlive it
                if process.pid == pid or (process.parent == pid and process.name == "slurmscriptd"):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process.pid, number)

    def wait(self, name: str | None = None) -> None:
        """Wait until all daemons, or those called `name`, answer. Raises RuntimeError with the log if one does not."""
        for daemon in self.named(name) if name else self.daemons:
            begun = time.monotonic()
            while not self.is_answering(daemon):
                waited = time.monotonic() - begun
                runs = daemon.program in {process.name for process in processes.cluster_processes(self.folder)}
                if waited > (START_SECONDS if runs else 1.0):
                    raise RuntimeError(f"{daemon.name} is {'silent' if runs else 'dead'}{self._log_end(daemon.name)}")
                time.sleep(0.1)

    def is_answering(self, daemon: Daemon) -> bool:
        try:
            reply = self.run(*daemon.question, timeout=5.0, check=False)
        except subprocess.TimeoutExpired:
            return False
        return reply.returncode == 0 and re.search(daemon.answer, reply.stdout, re.MULTILINE) is not None

    def pid(self, daemon: Daemon) -> int | None:
        """Return the daemon's process id, or None if it is not running."""
        with contextlib.suppress(OSError, ValueError):
            pid = int((self.folder / "run" / f"{daemon.name}.pid").read_text())
            if any(one.pid == pid and one.name == daemon.program for one in processes.cluster_processes(self.folder)):
                return pid
        return None

    def _launch(self, name: str, command: tuple[str, ...]) -> None:
        environment = self.environment | {"MYSQL_UNIX_PORT": f"{self.folder}/run/mariadb.socket"}
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
                raise RuntimeError(f"{name} did not start{self._log_end(name)}") from None

    def _log_end(self, name: str) -> str:
        lines: list[str] = []
        for suffix in ("log", "out"):
            with contextlib.suppress(OSError):
                lines += (self.folder / "log" / f"{name}.{suffix}").read_text(errors="replace").splitlines()
        words = [line for line in lines if "fatal" in line] or [line for line in lines if "error" in line.lower()]
        return f": {words[-1].strip()}" if words else ""

    # -- commands ----------------------------------------------------------------------------------------------------

    @property
    def environment(self) -> dict[str, str]:
        """This process's environment with sbin in PATH, the cluster's SLURM_CONF and no other variable of SLURM."""
        own = {key: value for key, value in os.environ.items() if not FOREIGN.match(key)}
        return own | {"SLURM_CONF": f"{self.folder}/slurm.conf", "PATH": requirements.PATH}

    def run(self, *command: str, timeout: float = 30.0, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command in the cluster's environment and folder `work`, and return the finished process.

        Raises subprocess.TimeoutExpired after `timeout` seconds, and with `check`, RuntimeError if the command fails.
        """
        done = subprocess.run(
            command,
            env=self.environment,
            cwd=self.folder / "work",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if check and done.returncode:
            words = " ".join((done.stderr or done.stdout).split())
            raise RuntimeError(f"{command[0]}: {words or f'exit status {done.returncode}'}")
        return done

    def sbatch(self, *arguments: str) -> int:
        return int(self.run("sbatch", "--parsable", *arguments).stdout.partition(";")[0])

    def state(self, job: int | str) -> str:
        """Return a job's state in squeue, such as PENDING, or "" if slurmctld forgot the job or does not answer."""
        query = ["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T"]
        return self.run(*query, check=False).stdout.strip()

    def clear(self) -> None:
        """Cancel all jobs and wait until the queue is empty."""
        self.run("scancel", f"--user={USER}")
        wait_until(lambda: not self.run("squeue", "--noheader").stdout.strip(), "an empty queue")

    def limit_submissions(self, jobs: int | None) -> None:
        """Set the user's MaxSubmitJobs and wait until slurmctld applies it. jobs: the limit, None for no limit."""
        user = ["where", "name=" + USER, "account=" + ACCOUNT]
        self.run("sacctmgr", "-iQ", "modify", "user", *user, "set", f"MaxSubmitJobs={-1 if jobs is None else jobs}")
        limit = "" if jobs is None else jobs
        known = re.compile(rf"Account={ACCOUNT} UserName={USER}\(.* MaxSubmitJobs={limit}[( ]")
        query = ["scontrol", "--oneliner", "show", "assoc_mgr", f"users={USER}", "flags=assoc"]
        wait_until(lambda: known.search(self.run(*query).stdout), f"MaxSubmitJobs={jobs}")

    def start_soon(self, job: int | str) -> None:
        """Let a requeued job start in two seconds. In the second of its requeue, the node would refuse it."""
        query = ["squeue", "--noheader", f"--jobs={job}", "--format=%r"]
        wait_until(lambda: self.run(*query).stdout.strip() == "BeginTime", f"job {job} held back")
        self.run("scontrol", "update", f"JobId={job}", "StartTime=now+2")
