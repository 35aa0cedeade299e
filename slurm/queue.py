"""Jobs of this suite in SLURM's queue and accounting: functions that find, release and cancel them.

Unless a docstring says otherwise, all functions that ask SLURM raise Unreachable if it does not answer. They raise
NoSlurm if this machine has no SLURM.

A tag identifies a job of this suite. The job's name ends with the tag, or the job's comment begins with it. A job id
does not identify a job for long, because SLURM may lose accepted jobs and reuse their ids.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from slurm.ask import TIMEOUT, Refused, Unreachable, ask

FIELD, RECORD = "\x1f", "\x1e"  # ASCII separators: SLURM prints names and comments as they are, with newlines
HELD = "launch failed requeued held"  # a hold by SLURM, after a failed prolog or a killed slurmctld
ABSENT = ("", "N/A", "None", "None assigned", "Unknown", "(null)")
ENDED = re.compile("Invalid job id|already complet")  # scancel's messages for a job that has ended meanwhile
AT_ONCE = 500  # maximum number of ids on one command line


@dataclass(frozen=True)
class QueuedJob:
    """A job or an array task in the queue."""

    job_id: int
    index: int | None  # index in the job array, or None for a job outside an array
    tag: str
    state: str  # PENDING, RUNNING, SUSPENDED, COMPLETING, ... as SLURM says
    reason: str  # why the job waits, or '' if it does not wait
    node: str

    @property
    def name(self) -> str:
        """The job id as SLURM's commands accept it, such as '123' or '123_4' for an array task."""
        return str(self.job_id) if self.index is None else f"{self.job_id}_{self.index}"

    @property
    def is_pending(self) -> bool:
        return self.state == "PENDING"


def is_held(reason: str) -> bool:
    """Return whether SLURM itself holds a job for this reason, after a failed launch."""
    return reason.replace("_", " ").lower() == HELD


@dataclass(frozen=True)
class PastJob:
    """SLURM's accounting record of one run of a job or an array task."""

    job_id: int
    index: int | None
    name: str
    state: str  # COMPLETED, FAILED, TIMEOUT, PREEMPTED, 'CANCELLED by 1000', NODE_FAIL, OUT_OF_MEMORY, RUNNING, ...
    node: str  # '' if the job never started
    exit_code: str = ""  # status and signal, such as '1:0'

    @property
    def name_of_task(self) -> str:
        return str(self.job_id) if self.index is None else f"{self.job_id}_{self.index}"


SQUEUE = {"job_id": "%F", "index": "%K", "state": "%T", "reason": "%r", "node": "%N", "name": "%j", "comment": "%k"}
HEADER = "ARRAY_JOB_ID" + FIELD  # how squeue's first line begins
SACCT = {
    "job": "JobID",
    "state": "State",
    "node": "NodeList",
    "exit": "ExitCode",
    "start": "Start",
    "end": "End",
    "name": "JobName",
}
STATES = "BF,CA,CD,DL,F,NF,OOM,PD,PR,R,RQ,S,TO"  # all: without a list, sacct leaves out jobs that never started


def jobs(*prefixes: str, ended: bool = False, timeout: float = TIMEOUT, users: Collection[int] = ()) -> list[QueuedJob]:
    """Return the queued jobs and array tasks of users whose tag starts with one of `prefixes`.

    ended: whether to include ended jobs that SLURM still lists. users: ids of the users; () for this user.
    """
    found = []
    of = f"--user={','.join(map(str, sorted(users or [os.getuid()])))}"
    for record in records([of, *(["--states=all"] if ended else [])], timeout):
        fields = dict(zip(SQUEUE, record.split(FIELD), strict=False))
        tag = next(filter(None, (find_tag(fields.get(key, ""), prefixes) for key in ("name", "comment"))), None)
        if tag and fields["job_id"].isdigit():  # a name may hold separators too
            index = int(fields["index"]) if fields["index"].isdigit() else None
            known = {key: "" if fields[key] in ABSENT else fields[key] for key in ("state", "reason", "node")}
            found.append(QueuedJob(int(fields["job_id"]), index, tag, **known))
    return sorted(found, key=lambda job: (job.job_id, job.index or 0))


def find_tag(text: str, prefixes: tuple[str, ...]) -> str:
    """Return the tag in a job's name ('label:tag') or comment ('tag text'); "" if it begins with none of `prefixes`."""
    word = text.partition(" ")[0]
    starts = (word.find(prefix) for prefix in prefixes)
    return next((word[start:] for start in starts if start == 0 or (start > 0 and word[start - 1] == ":")), "")


def records(options: Sequence[str], timeout: float) -> list[str]:
    """Return squeue's records of jobs, one string per job or array task.

    options: further arguments of squeue. Other output, such as a banner of a site's wrapper around squeue, is left out.
    Also raises Unreachable if squeue's header is missing, because a failed wrapper would look like an empty queue.
    """
    form = RECORD + "".join(word + FIELD for word in SQUEUE.values())
    try:
        answer = ask("squeue", "--array", f"--format={form}", *options, timeout=timeout).stdout
    except Refused as error:
        raise Unreachable(f"SLURM does not answer: squeue says '{error}'") from None
    _, *found = answer.split(RECORD)
    if not found or not found[0].startswith(HEADER):
        raise Unreachable("SLURM does not answer: squeue printed no list of jobs")
    return found[1:]


def accounting(names: Collection[str], timeout: float = TIMEOUT) -> list[PastJob] | None:
    """Return the last 7 days' records of this user's jobs with these names, newest last; None if there is no answer."""
    if not names:
        return []
    since = (datetime.now() - timedelta(days=7)).isoformat(timespec="seconds")
    chosen = [f"--user={os.getuid()}", f"--name={','.join(sorted(names))}", f"--starttime={since}", "--endtime=now"]
    form = [f"--format={','.join(SACCT.values())}", "--noheader", "--parsable2", f"--delimiter={FIELD}"]
    command = ["sacct", "--allocations", "--duplicates", f"--state={STATES}", *chosen, *form]
    try:
        answer = ask(*command, timeout=timeout).stdout
    except ValueError:  # NoSlurm, Unreachable, Refused: whatever the cause, nothing is known
        return None
    lines = [line.split(FIELD) for line in answer.splitlines() if line.count(FIELD) == len(SACCT) - 1]
    found = [dict(zip(SACCT, ("" if word in ABSENT else word for word in line), strict=True)) for line in lines]
    found.sort(key=lambda fields: ("[" not in fields["job"], fields["start"] or fields["end"]))
    return [job for fields in found for job in past_jobs(fields)]


def past_jobs(fields: dict[str, str]) -> Iterator[PastJob]:
    """Yield the jobs of an accounting record. Array tasks that never started share one record."""
    job, _, index = fields["job"].partition("_")
    for each in task_indices(index) if job.isdigit() else ():  # not '12+1', of a heterogeneous job
        yield PastJob(int(job), each, fields["name"], fields["state"], fields["node"], fields["exit"])


def task_indices(index: str) -> list[int | None]:
    """Return the task indices in SLURM's notation: [2, 4, 8] for '[2-4:2,8%2]', [None] outside an array.

    SLURM cuts long lists with dots: what is behind them is unknown.
    """
    if not index:
        return [None]
    spans = re.findall(r"(\d+)(?:-(\d+)(?::(\d+))?)?(?:,|$)", index.strip("[]").partition("%")[0])
    return [each for first, last, step in spans for each in range(int(first), int(last or first) + 1, int(step or 1))]


def release(jobs: Iterable[QueuedJob]) -> None:
    """Release every job in `jobs` that SLURM itself holds."""
    for job in jobs:
        if job.is_pending and is_held(job.reason):
            with suppress(Refused):  # released, or ended, meanwhile
                ask("scontrol", "release", job.name)


def dependency(jobs: Collection[int | str]) -> str:
    """Return the value of sbatch's --dependency that delays a job until the given jobs end, successfully or not."""
    return "afterany:" + ":".join(map(str, jobs))


def cancel(*prefixes: str) -> int:
    """Cancel the jobs that `jobs(*prefixes)` returns, and return their number. Raises Refused if scancel fails."""
    found = jobs(*prefixes)
    ids = sorted({str(job.job_id) for job in found})  # the tasks of an array share its tag
    for start in range(0, len(ids), AT_ONCE):
        try:
            ask("scancel", f"--user={os.getuid()}", *ids[start : start + AT_ONCE])
        except Refused as refusal:
            if not ENDED.search(str(refusal)):
                raise
    return len(found)


def cancel_task(job_id: int, index: int) -> None:
    """Cancel a task of a job array, if it is there still."""
    with suppress(Refused):
        ask("scancel", f"{job_id}_{index}")


def cancel_named(name: str) -> None:
    """Cancel this user's jobs with this name, if any, without listing the queue."""
    with suppress(Refused):  # there is no job with this name
        ask("scancel", f"--user={os.getuid()}", f"--name={name}")


def own_job_cancelled() -> bool:
    """Return whether scancel ended the job of this process.

    SLURM sends the same signals for scancel, preemption, the time limit and a requeue. slurmctld distinguishes them at
    once, with or without accounting. Raises the errors of `ask`.
    """
    array, index = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    job = f"{array}_{index}" if array else os.environ["SLURM_JOB_ID"]
    known = dict(word.partition("=")[::2] for word in ask("scontrol", "show", "job", job).stdout.split())
    return shows_scancel(known, os.environ.get("SLURM_RESTART_COUNT", "0"))


def shows_scancel(known: dict[str, str], starts: str) -> bool:
    """Return whether the output of `scontrol show job` shows that scancel ended the job.

    known: fields of the output. starts: number of restarts of the job when this process started. Other causes are
    visible. A time limit or a lost node sets Reason, preemption sets PreemptTime, and a requeue increments Restarts.
    """
    ended = known.get("JobState") in ("CANCELLED", "COMPLETING")
    unasked = known.get("PreemptTime", "None") == "None" and known.get("Restarts", "0") == starts
    return ended and unasked and known.get("Reason") == "None"
