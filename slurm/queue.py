"""Jobs of this suite in SLURM's queue and accounting: functions that find, release and cancel them.

A job is identified by its tag, which ends the job's name. A job id does not identify a job for long, because SLURM may
lose accepted jobs and reuse their ids.
"""

import os
import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from slurm.ask import FIELD, TIMEOUT, Refused, Unreachable, ask

RECORD = "\x1e"  # an ASCII separator, as FIELD is: SLURM prints names as they are, with newlines
HELD = "launch failed requeued held"  # a hold by SLURM, after a failed prolog or a killed slurmctld
FULL = re.compile(r"MaxSubmitJob|GrpSubmitJob")  # a refusal because this user has too many jobs in the queue
ABSENT = ("", "N/A", "None", "None assigned", "Unknown", "(null)")
ENDED = re.compile("Invalid job id|already complet")  # scancel's messages for a job that has ended meanwhile
SQUEUE = ("%F", "%K", "%T", "%r", "%N", "%j")  # array's job id, index, state, reason, node, name
HEADER = "ARRAY_JOB_ID" + FIELD  # how squeue's first line begins
SACCT = "JobID,State,NodeList,ExitCode,Start,End,JobName"
STATES = "BF,CA,CD,DL,F,NF,OOM,PD,PR,R,RQ,S,TO"  # all: without a list, sacct leaves out jobs that never started


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
    def is_pending(self) -> bool:
        return self.state == "PENDING"


@dataclass(frozen=True)
class PastJob:
    """SLURM's accounting record of one run of a job or an array task."""

    job_id: int
    index: int | None
    state: str  # COMPLETED, FAILED, TIMEOUT, PREEMPTED, 'CANCELLED by 1000', NODE_FAIL, OUT_OF_MEMORY, RUNNING, ...
    node: str  # '' if the job never started
    exit_code: str = ""  # status and signal, such as '1:0'


def task_name(job: QueuedJob | PastJob) -> str:
    """Return a job id as SLURM's commands accept it, such as '123' or '123_4' for an array task."""
    if job.index is None:
        return str(job.job_id)
    return f"{job.job_id}_{job.index}"


def is_held(reason: str) -> bool:
    return reason.replace("_", " ").lower() == HELD


def jobs(*prefixes: str, ended: bool = False, timeout: float = TIMEOUT, users: Collection[int] = ()) -> list[QueuedJob]:
    """Return queued jobs and array tasks whose tag starts with one of `prefixes`. users: ids; () for this user."""
    options = [f"--user={','.join(map(str, sorted(users or [os.getuid()])))}"]
    if ended:
        options.append("--states=all")
    queued = []
    for record in records(options, timeout):
        job_id, index, state, reason, node, name, *_ = [*record.split(FIELD), *SQUEUE]  # a name may hold separators
        tag = find_tag(name, prefixes)
        if tag and job_id.isdigit():
            task = None
            if index.isdigit():
                task = int(index)
            queued.append(QueuedJob(int(job_id), task, tag, state, present(reason), present(node)))
    return sorted(queued, key=lambda job: (job.job_id, job.index or 0))


def present(word: str) -> str:
    """Return a column's text, or "" where SLURM prints that there is none."""
    return "" if word in ABSENT else word


def find_tag(name: str, prefixes: tuple[str, ...]) -> str:
    """Return the tag in a job's name ('tag' or 'label:tag'); "" if it begins with none of `prefixes`."""
    for prefix in prefixes:
        label, separator, rest = name.partition(prefix)
        if separator and (not label or label.endswith(":")):
            return separator + rest
    return ""


def records(options: Sequence[str], timeout: float) -> list[str]:
    """Return squeue's records, one string per job or array task, without other output such as a banner.

    Raises Unreachable if squeue's header is missing, because a failed wrapper would look like an empty queue.
    """
    form = RECORD + "".join(word + FIELD for word in SQUEUE)
    try:
        answer = ask("squeue", "--array", f"--format={form}", *options, timeout=timeout).stdout
    except Refused as error:
        raise Unreachable(f"SLURM does not answer: squeue says '{error}'") from None
    _, *listed = answer.split(RECORD)
    if not listed or not listed[0].startswith(HEADER):
        raise Unreachable("SLURM does not answer: squeue printed no list of jobs")
    return listed[1:]


def accounting(names: Collection[str], timeout: float = TIMEOUT) -> list[PastJob] | None:
    """Return the last 7 days' records of this user's jobs with these names, newest last; None if there is no answer."""
    if not names:
        return []
    since = (datetime.now() - timedelta(days=7)).isoformat(timespec="seconds")
    chosen = [f"--user={os.getuid()}", f"--name={','.join(sorted(names))}", f"--starttime={since}", "--endtime=now"]
    form = [f"--format={SACCT}", "--noheader", "--parsable2", f"--delimiter={FIELD}"]
    command = ["sacct", "--allocations", "--duplicates", f"--state={STATES}", *chosen, *form]
    try:
        answer = ask(*command, timeout=timeout).stdout
    except ValueError:  # NoSlurm, Unreachable, Refused: whatever the cause, nothing is known
        return None
    rows = [line.split(FIELD) for line in answer.splitlines() if line.count(FIELD) == SACCT.count(",")]
    rows.sort(key=lambda row: ("[" not in row[0], present(row[4]) or row[5]))  # those that never started first
    past = []
    for job, state, node, exit_code, *_ in rows:
        job_id, _, index = job.partition("_")
        if job_id.isdigit():  # not '12+1', of a heterogeneous job
            past += [PastJob(int(job_id), task, state, present(node), exit_code) for task in task_indices(index)]
    return past


def task_indices(index: str) -> list[int | None]:
    """Return the task indices in SLURM's notation: [2, 4, 8] for '[2-4:2,8%2]', [None] outside an array.

    SLURM cuts long lists with dots: what is behind them is unknown.
    """
    if not index:
        return [None]
    indices: list[int | None] = []
    spans = re.findall(r"(\d+)(?:-(\d+)(?::(\d+))?)?(?:,|$)", index.strip("[]").partition("%")[0])
    for first, last, step in spans:
        indices.extend(range(int(first), int(last or first) + 1, int(step or 1)))
    return indices


def release(queued: Iterable[QueuedJob]) -> None:
    """Release every queued job that SLURM itself holds."""
    for job in queued:
        if job.is_pending and is_held(job.reason):
            with suppress(Refused):  # released, or ended, meanwhile
                ask("scontrol", "release", task_name(job))


def cancel(*prefixes: str) -> int:
    """Cancel the jobs that `jobs(*prefixes)` returns, and return their number. Raises Refused if scancel fails."""
    queued = jobs(*prefixes)
    ids = sorted({str(job.job_id) for job in queued})  # the tasks of an array share its tag
    try:
        if ids:
            ask("scancel", f"--user={os.getuid()}", *ids)
    except Refused as refusal:
        if not ENDED.search(str(refusal)):
            raise
    return len(queued)


def cancel_task(job_id: int, index: int) -> None:
    with suppress(Refused):
        ask("scancel", f"{job_id}_{index}")


def own_job_cancelled() -> bool:
    """Return whether scancel ended the job of this process.

    SLURM sends the same signals for scancel, preemption, the time limit and a requeue. slurmctld distinguishes them.
    """
    job = os.environ["SLURM_JOB_ID"]
    if "SLURM_ARRAY_JOB_ID" in os.environ:  # whose id may be the task's own
        job = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    shown = dict(word.partition("=")[::2] for word in ask("scontrol", "show", "job", job).stdout.split())
    return shows_scancel(shown, os.environ.get("SLURM_RESTART_COUNT", "0"))


def shows_scancel(shown: dict[str, str], starts: str) -> bool:
    """Return whether fields of `scontrol show job` show that scancel ended the job. starts: its restarts before.

    A time limit or a lost node sets Reason, preemption sets PreemptTime, and a requeue increments Restarts.
    """
    ended = shown.get("JobState") in ("CANCELLED", "COMPLETING")
    unasked = shown.get("PreemptTime", "None") == "None" and shown.get("Restarts", "0") == starts
    return ended and unasked and shown.get("Reason") == "None"
