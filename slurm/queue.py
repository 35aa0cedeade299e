"""Which of our jobs SLURM has now, had before, and must forget.

Jobs are known by their tag, which they carry as name and comment; a job id is only an address for the moment, since
SLURM may lose acknowledged jobs and give their ids to others.
"""

import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from slurm import clock
from slurm.ask import Refused, ask

FIELD, RECORD = "\x1f", "\x1e"  # ASCII's own separators: SLURM prints whatever a name or comment holds, newlines too
ABSENT = ("", "N/A", "None", "None assigned", "Unknown", "(null)")
AT_ONCE = 500  # ids on one command line


@dataclass(frozen=True)
class QueuedJob:
    """A job, or one element of a job array, that SLURM has not finished with."""

    job_id: int
    index: int | None  # in its array
    tag: str
    state: str  # PENDING, RUNNING, SUSPENDED, COMPLETING, ... as SLURM says
    reason: str  # why it waits; '' where it does not
    partition: str
    node: str
    elapsed: int  # seconds
    start: str  # when it started or is expected to; '' where SLURM does not know

    @property
    def name(self) -> str:
        """As SLURM's commands take it."""
        return str(self.job_id) if self.index is None else f"{self.job_id}_{self.index}"

    @property
    def waits(self) -> bool:
        return self.state == "PENDING"

    @property
    def ending(self) -> bool:
        """Over but for the last processes, unless it was preempted or requeued: then it waits again in seconds."""
        return self.state == "COMPLETING"


@dataclass(frozen=True)
class PastJob:
    """What the accounting kept of a job or an element of an array that was started: one record each time."""

    job_id: int
    index: int | None
    tag: str
    state: str  # COMPLETED, FAILED, TIMEOUT, PREEMPTED, CANCELLED, NODE_FAIL, OUT_OF_MEMORY, RUNNING, ...
    exit_code: str
    node: str
    start: str
    end: str


SQUEUE = {"job_id": "%F", "index": "%K", "state": "%T", "reason": "%r", "partition": "%P", "node": "%N"}
SQUEUE |= {"elapsed": "%M", "start": "%S", "name": "%j", "comment": "%k"}
SACCT = {"job": "JobID", "state": "State", "exit_code": "ExitCode", "node": "NodeList", "start": "Start", "end": "End"}
SACCT |= {"tag": "JobName"}


def jobs(prefix: str) -> list[QueuedJob]:
    """Our jobs whose tag starts with `prefix`, array elements one by one. Raises Unreachable, NoSlurm."""
    form = RECORD + FIELD.join(SQUEUE.values())
    answer = ask("squeue", "--noheader", "--array", f"--user={os.getuid()}", f"--format={form}").stdout
    found = []
    for record in answer.split(RECORD)[1:]:
        fields = dict(zip(SQUEUE, record.removesuffix("\n").split(FIELD), strict=False))
        tag = next((fields[key] for key in ("name", "comment") if fields.get(key, "").startswith(prefix)), None)
        if tag is not None:
            found.append(queued(fields, tag))
    return sorted(found, key=lambda job: (job.job_id, job.index or 0))


def queued(fields: dict[str, str], tag: str) -> QueuedJob:
    known = {key: "" if value in ABSENT else value for key, value in fields.items()}
    return QueuedJob(
        job_id=int(known["job_id"]),
        index=int(known["index"]) if known["index"] else None,
        tag=tag,
        elapsed=clock.seconds(known["elapsed"]) or 0,
        **{key: known[key] for key in ("state", "reason", "partition", "node", "start")},
    )


def accounting(tags: Collection[str], days: int = 7) -> list[PastJob] | None:
    """What became of the jobs with these tags, lately; None where the accounting is off or does not answer."""
    if not tags:
        return []
    since = (datetime.now() - timedelta(days=days)).isoformat(timespec="seconds")
    chosen = [f"--user={os.getuid()}", f"--name={','.join(sorted(tags))}", f"--starttime={since}"]
    form = [f"--format={','.join(SACCT.values())}", "--noheader", "--parsable2", f"--delimiter={FIELD}"]
    try:
        answer = ask("sacct", "--allocations", "--duplicates", *chosen, *form).stdout
    except ValueError:  # NoSlurm, Unreachable, Refused: whatever the cause, nothing is known
        return None
    records = [dict(zip(SACCT, line.split(FIELD), strict=False)) for line in answer.splitlines()]
    return [past(fields) for fields in records if len(fields) == len(SACCT) and fields["start"] not in ABSENT]


def past(fields: dict[str, str]) -> PastJob:
    job, _, index = fields["job"].partition("_")
    state = fields["state"].partition(" ")[0]  # 'CANCELLED by 1000'
    known = {key: "" if fields[key] in ABSENT else fields[key] for key in ("node", "start", "end")}
    return PastJob(
        job_id=int(job),
        index=int(index) if index.isdigit() else None,
        state=state,
        tag=fields["tag"],
        exit_code=fields["exit_code"],
        **known,
    )


def postpone(job_id: int, after: Collection[int]) -> bool:
    """Lets a waiting job wait for the ends of these as well; whether SLURM took it. Raises Unreachable, NoSlurm."""
    try:
        ask("scontrol", "update", f"JobId={job_id}", f"Dependency={ends(after)}")
    except Refused:  # it started, or ended, meanwhile
        return False
    return True


def ends(jobs: Collection[int]) -> str:
    """The dependency on their ends, however they end."""
    return "afterany:" + ":".join(map(str, jobs))


def cancel(prefix: str) -> int:
    """Ends our jobs whose tag starts with `prefix`, waiting and running; how many. Raises Unreachable, NoSlurm."""
    found = jobs(prefix)
    ids = sorted({str(job.job_id) for job in found})  # an array's elements share its tag
    for start in range(0, len(ids), AT_ONCE):
        with suppress(Refused):  # one that ended by itself meanwhile
            ask("scancel", f"--user={os.getuid()}", *ids[start : start + AT_ONCE])
    return len(found)
