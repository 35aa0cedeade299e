"""Speaking to a cluster: the commands of SLURM in its environment, and what tests ask most."""

import os
import re
import subprocess
from pathlib import Path

from slurm.devcluster import files, requirements
from slurm.devcluster.waiting import until

FOREIGN = re.compile("SLURM|SBATCH|SQUEUE|SINFO|SACCT|SALLOC|SRUN|SCANCEL")


class Client:
    """Speaks to the SLURM that lives in `folder`, and to no other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def environment(self) -> dict[str, str]:
        """This process's, with SLURM_CONF, and without what a job or profile of another SLURM may have set."""
        own = {key: value for key, value in os.environ.items() if not FOREIGN.match(key)}
        return own | {"SLURM_CONF": f"{self.folder}/slurm.conf", "PATH": requirements.PATH}

    def run(self, *command: str, timeout: float = 30.0, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A command in the cluster's environment and its folder `work`. Raises RuntimeError if it fails."""
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
        """Submits, and returns the job's id."""
        return int(self.run("sbatch", "--parsable", *arguments).stdout.partition(";")[0])

    def state(self, job: int | str) -> str:
        """As squeue has it (PENDING, RUNNING, ...), also a while after the end; empty once slurmctld has forgotten."""
        query = ["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T"]
        return self.run(*query, check=False).stdout.strip()

    def clear(self) -> None:
        """Cancels every job and waits until none is left, not even one completing."""
        self.run("scancel", f"--user={files.USER}")
        until(lambda: not self.run("squeue", "--noheader").stdout.strip(), "an empty queue")

    def limit_submissions(self, jobs: int | None) -> None:
        """Sets the user's MaxSubmitJobs, None for no limit, and waits until slurmctld knows."""
        user = ["where", "name=" + files.USER, "account=" + files.ACCOUNT]
        self.run("sacctmgr", "-iQ", "modify", "user", *user, "set", f"MaxSubmitJobs={-1 if jobs is None else jobs}")
        limit = "" if jobs is None else jobs
        known = re.compile(rf"Account={files.ACCOUNT} UserName={files.USER}\(.* MaxSubmitJobs={limit}[( ]")
        query = ["scontrol", "--oneliner", "show", "assoc_mgr", f"users={files.USER}", "flags=assoc"]
        until(lambda: known.search(self.run(*query).stdout), f"MaxSubmitJobs={jobs}")

    def hurry(self, job: int | str) -> None:
        """Lets a requeued job start in two seconds instead of after its delay.

        At once would kill it: for the rest of that second its node refuses it, "Job credential revoked".
        """
        query = ["squeue", "--noheader", f"--jobs={job}", "--format=%r"]
        until(lambda: self.run(*query).stdout.strip() == "BeginTime", f"job {job} held back")
        self.run("scontrol", "update", f"JobId={job}", "StartTime=now+2")
