"""submitit's SlurmExecutor, with a submission that survives a killed launcher and an unclear answer of sbatch.

submitit checks the parameters, renders the script, spells the command, reads the job id and makes the jobs. Two of its
methods are overridden, because SlurmExecutor's lose tasks:

    _internal_process_submissions    names the payload after the job id, so a launcher killed after sbatch leaves tasks
                                     without a payload. It waits for sbatch without limit, takes every failure for a
                                     refusal, and submits arrays with SlurmExecutor, whatever a subclass overrides.
    _submitit_command_str            runs a process that reads the payload and ignores SIGTERM. Ours reads the intent,
                                     which is on disk before sbatch is called.
"""

import re
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from submitit import Job, SlurmExecutor
from submitit.core.utils import DelayedSubmission, FailedSubmissionError

from slurm.queries import queue
from slurm.queries.ask import NoSlurm, Refused, Unreachable, ask
from slurm.submission import intent

SBATCH_SECONDS = 60.0
REFUSAL = "Batch job submission failed: "  # slurmctld's own answer, as sbatch prints it
STARTS = 10  # of a persistent task


class ArrayExecutor(SlurmExecutor):
    """Submit calls of `slurm.submission.job.run` as one array whose intent is on disk before sbatch is called."""

    def __init__(
        self, folder: Path, tag: str, function: str, container: Sequence[str] = (), persistent: bool = False
    ) -> None:
        """Set up an executor for one array in `folder`; the other arguments are as in slurm.submission.arrays."""
        super().__init__(folder / "logs", python=shlex.join([*container, sys.executable]))
        self.array, self.tag, self.function, self.persistent = folder, tag, function, persistent

    @classmethod
    def affinity(cls) -> int:
        """Report SLURM as available, so that a dry run shows the script on any machine."""
        return 1

    @property
    def _submitit_command_str(self) -> str:
        """The command of a task. With -P, nodes import the copy of the code, not their working directory."""
        command = f"{self.python} -u -P -m slurm.submission.job {shlex.join([str(self.array), self.function])}"
        if self.persistent:  # a status above 128 is a signal's
            again = f"for start in {{1..{STARTS}}}; do {command}; status=$?; [ $status -gt 128 ] || break; done"
            return f"{again}\nexit $status"
        return command

    def script(self, tasks: int) -> str:
        self.parameters["map_count"] = tasks
        return self._make_submission_file_text(self._submitit_command_str, uid="")

    def _internal_process_submissions(self, delayed_submissions: list[DelayedSubmission]) -> list[Job[Any]]:
        calls = [submission.args for submission in delayed_submissions]
        _, arguments, _ = calls[0]
        text = self.script(len(calls))
        self.folder.mkdir(parents=True)
        (self.array / "script.sh").touch(mode=0o600)  # holds the profile's environment, and tokens in it
        (self.array / "script.sh").write_text(text)
        intent.write(self.array, self.tag, self.function, arguments, [share for _, _, share in calls])
        job_id = self._submit(self.array / "script.sh")
        intent.acknowledge(self.array, job_id)
        return [self.job_class(self.folder, f"{job_id}_{index}") for index in range(len(calls))]

    def _submit(self, script: Path) -> int:
        """Call sbatch; return the job id. Raises Refused; Unreachable if it stays unknown whether SLURM has the job."""
        try:
            said = ask(*self._make_submission_command(script), timeout=SBATCH_SECONDS).stdout
            return int(self._get_job_id_from_submission_command(said))
        except Refused as error:
            if REFUSAL in str(error):
                intent.withdraw(self.array)
                raise
            return self._adopt(f"sbatch failed: {error}")
        except FailedSubmissionError:
            return self._adopt("sbatch printed no job id")
        except (Unreachable, NoSlurm) as error:
            return self._adopt(str(error))

    @staticmethod
    def _get_job_id_from_submission_command(string: bytes | str) -> str:
        """Return the job id in sbatch's own line. A site's banner may contain jobs and numbers too."""
        text = string if isinstance(string, str) else string.decode()
        own = re.findall(r"^Submitted batch job \d+", text, re.MULTILINE)
        return SlurmExecutor._get_job_id_from_submission_command("\n".join(own))

    def _adopt(self, problem: str) -> int:
        """Wait for the job with our tag to appear in the queue; return its id. Raises Unreachable if it does not."""
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
