"""submitit's SlurmExecutor, changed so that no task is lost if the launcher is killed or sbatch gives no clear answer.

submitit checks the parameters, renders the script and builds the command. Two of its methods can lose tasks and are
overridden. `_internal_process_submissions` names the file of a task's arguments after the job id, so that a launcher
killed after sbatch leaves tasks without arguments. It also waits for sbatch without a time limit, and takes every
failure as a refusal. `_submitit_command_str` runs a process that reads that file and ignores SIGTERM. Here, tasks read
intent.json, which is on disk before sbatch is called.
"""

import re
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from submitit import Job, SlurmExecutor
from submitit.core.utils import DelayedSubmission

from slurm.queries import queue
from slurm.queries.ask import NoSlurm, Refused, Unreachable, ask
from slurm.submission import intent, job

if TYPE_CHECKING:
    from slurm.submission.arrays import Tasks

SBATCH_SECONDS = 60.0
REFUSAL = "Batch job submission failed: "  # slurmctld's answer, as sbatch prints it
STARTS = 10  # maximum starts of a persistent task


class ArrayExecutor(SlurmExecutor):
    """An executor that submits calls of `slurm.submission.job.run` as one job array."""

    def __init__(self, folder: Path, tag: str, tasks: "Tasks") -> None:
        super().__init__(folder / "logs", python=shlex.join([*tasks.container, sys.executable]))
        self.array, self.tag, self.tasks = folder, tag, tasks

    @classmethod
    def affinity(cls) -> int:
        return 1  # SLURM is available: a dry run works on any machine

    @property
    def _submitit_command_str(self) -> str:
        # -P: nodes import the copied code and not files of their working directory
        command = f"{self.python} -u -P -m slurm.submission.job {shlex.join([str(self.array), self.tasks.function])}"
        if self.tasks.persistent:  # a status above 128: a signal ended it
            again = f"for start in {{1..{STARTS}}}; do {command}; status=$?; [ $status -gt 128 ] || break; done"
            return f"{again}\nexit $status"
        return command

    def send(self) -> int:
        """Submit the tasks and return the array's job id."""
        count = len(self.tasks.shares)
        calls = [self.tasks.function] * count, [self.tasks.arguments] * count, self.tasks.shares
        first, *_ = self.map_array(job.run, *calls)
        return int(first.job_id.partition("_")[0])

    def script(self) -> str:
        self.parameters["map_count"] = len(self.tasks.shares)
        return self._make_submission_file_text(self._submitit_command_str, uid="")

    def _internal_process_submissions(self, delayed_submissions: list[DelayedSubmission]) -> list[Job[Any]]:
        text = self.script()
        self.folder.mkdir(parents=True)
        (self.array / "script.sh").touch(mode=0o600)  # private, as the profile's environment may hold tokens
        (self.array / "script.sh").write_text(text)
        intent.write(self.array, self.tag, self.tasks.function, self.tasks.arguments, self.tasks.shares)
        job_id = self._submit(self.array / "script.sh")
        intent.acknowledge(self.array, job_id)
        return [self.job_class(self.folder, f"{job_id}_{index}") for index in range(len(delayed_submissions))]

    def _submit(self, script: Path) -> int:
        """Call sbatch with `script` and return the job id. Raises the errors of `arrays.send`."""
        try:
            said = ask(*self._make_submission_command(script), timeout=SBATCH_SECONDS).stdout
        except Refused as error:
            if REFUSAL in str(error):
                intent.withdraw(self.array)
                raise
            return self._adopt(f"sbatch failed: {error}")
        except (Unreachable, NoSlurm) as error:
            return self._adopt(str(error))
        # a banner of the cluster may also contain numbers and the word job
        own = re.search(r"^Submitted batch job (\d+)", said, re.MULTILINE)
        return int(own[1]) if own else self._adopt("sbatch printed no job id")

    def _adopt(self, problem: str) -> int:
        """Wait until a job with this array's tag is in the queue, and return its job id.

        problem: why the job id is unknown. Raises Unreachable, with the problem, if the job does not appear in time.
        """
        deadline, found = time.monotonic() + intent.SETTLE_SECONDS, "whether the job was submitted is unknown"
        while time.monotonic() < deadline:
            time.sleep(1)
            try:
                mine = [job for job in queue.jobs(self.tag, ended=True) if job.tag == self.tag]
            except (Unreachable, NoSlurm):
                continue
            if mine:
                return mine[0].job_id
            found = "the queue does not have the job"
        raise Unreachable(f"{problem}; {found}: submit again when SLURM answers")
