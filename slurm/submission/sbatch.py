"""The call of sbatch, and the search for its job in the queue if no job id is reported.

sbatch may fail, hang or print no job id although slurmctld accepted the job. The queue then shows the job by its tag.
"""

import re
import time
from pathlib import Path

from slurm.queries import queue
from slurm.queries.ask import NoSlurm, Refused, Unreachable, ask
from slurm.submission import intent

SBATCH_SECONDS = 60.0
REFUSAL = "Batch job submission failed: "  # slurmctld's answer, as sbatch prints it


def submit(script: Path, tag: str) -> int:
    """Submit a script, and return the job id. tag: the tag of the script's job.

    Raises Refused if slurmctld rejects the job, and Unreachable if it is unknown whether SLURM has the job.
    """
    try:
        said = ask("sbatch", str(script), timeout=SBATCH_SECONDS).stdout
    except Refused as error:
        if REFUSAL in str(error):
            raise
        return find_in_queue(tag, f"sbatch failed: {error}")  # a site's wrapper around sbatch may have failed
    except (Unreachable, NoSlurm) as error:
        return find_in_queue(tag, str(error))
    # a banner of the cluster may also contain numbers and the word job
    own = re.search(r"^Submitted batch job (\d+)", said, re.MULTILINE)
    return int(own[1]) if own else find_in_queue(tag, "sbatch printed no job id")


def find_in_queue(tag: str, problem: str) -> int:
    """Wait until a job with this tag is in the queue, and return its job id.

    problem: why the job id is unknown. Raises Unreachable with this reason if the job does not appear in time.
    """
    deadline, found = time.monotonic() + intent.SETTLE_SECONDS, "whether the job was submitted is unknown"
    while time.monotonic() < deadline:
        time.sleep(1)
        try:
            mine = [job for job in queue.jobs(tag, ended=True) if job.tag == tag]
        except (Unreachable, NoSlurm, Refused):  # a failure of squeue says nothing about the job
            continue
        if mine:
            return mine[0].job_id
        found = "the queue does not have the job"
    raise Unreachable(f"{problem}; {found}: submit again when SLURM answers")
