"""A client that runs SLURM's commands on a cluster, with the queries that tests often need."""

import os
import re
import subprocess
from pathlib import Path

from slurm.devcluster import files, requirements
from slurm.devcluster.waiting import until

FOREIGN = re.compile("SLURM|SBATCH|SQUEUE|SINFO|SACCT|SALLOC|SRUN|SCANCEL")


class Client:
    """A client of one cluster. folder: the directory of the cluster."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def environment(self) -> dict[str, str]:
        """The variables of this process's environment, with SLURM_CONF set to the cluster's slurm.conf.

        PATH is extended by the directories of daemons. Other variables of SLURM, which an enclosing job may have set,
        are left out.
        """
        own = {key: value for key, value in os.environ.items() if not FOREIGN.match(key)}
        return own | {"SLURM_CONF": f"{self.folder}/slurm.conf", "PATH": requirements.PATH}

    def run(self, *command: str, timeout: float = 30.0, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command with the cluster's environment, in the cluster's folder `work`. Return the completed process.

        timeout: in seconds. Raises RuntimeError if the command fails and `check` is true. Raises TimeoutExpired if it
        takes too long.
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
        """Submit a job. Return its id."""
        return int(self.run("sbatch", "--parsable", *arguments).stdout.partition(";")[0])

    def state(self, job: int | str) -> str:
        """Return the state of a job in squeue (PENDING, RUNNING, ...), or "" once slurmctld has forgotten the job."""
        query = ["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T"]
        return self.run(*query, check=False).stdout.strip()

    def clear(self) -> None:
        """Cancel all jobs and wait until the queue is empty."""
        self.run("scancel", f"--user={files.USER}")
        until(lambda: not self.run("squeue", "--noheader").stdout.strip(), "an empty queue")

    def limit_submissions(self, jobs: int | None) -> None:
        """Set the user's MaxSubmitJobs and wait until slurmctld applies it. jobs: the limit, None for no limit."""
        user = ["where", "name=" + files.USER, "account=" + files.ACCOUNT]
        self.run("sacctmgr", "-iQ", "modify", "user", *user, "set", f"MaxSubmitJobs={-1 if jobs is None else jobs}")
        limit = "" if jobs is None else jobs
        known = re.compile(rf"Account={files.ACCOUNT} UserName={files.USER}\(.* MaxSubmitJobs={limit}[( ]")
        query = ["scontrol", "--oneliner", "show", "assoc_mgr", f"users={files.USER}", "flags=assoc"]
        until(lambda: known.search(self.run(*query).stdout), f"MaxSubmitJobs={jobs}")

    def hurry(self, job: int | str) -> None:
        """Let a requeued job start in two seconds instead of after the cluster's requeue delay.

        An immediate start would kill the job: the node refuses a job in the second of its requeue, with the error
        "Job credential revoked".
        """
        query = ["squeue", "--noheader", f"--jobs={job}", "--format=%r"]
        until(lambda: self.run(*query).stdout.strip() == "BeginTime", f"job {job} held back")
        self.run("scontrol", "update", f"JobId={job}", "StartTime=now+2")
