"""The jobs that run on the nodes: tasks, which pull trials, and the helper jobs (ablations.cluster.rounds)."""

import json
import os
import signal
import time
from dataclasses import asdict
from pathlib import Path

from ablations import machine, provenance
from ablations.cluster import campaign as campaigns
from ablations.cluster import no_progress, rounds, staging
from ablations.cluster.campaign import Campaign
from ablations.execution import runner
from ablations.plain_output import plain_output
from results import store
from results.store.standing import Kind, Standings
from slurm import arrays, queue
from slurm.ask import NoSlurm, Refused, Unreachable

FAILED = 1  # exit status of a task that SLURM then reports as FAILED
NOTICE_SECONDS = 150.0  # SLURM signals the time limit up to 90 s (submitit's default) + 60 s (man sbatch) early
RETRY_SECONDS, LONGEST_RETRY = 5.0, 60.0
LOOK_SECONDS = 10.0


@plain_output()
def work(folder: str) -> int:
    """Train unclaimed trials until none is left or time is up; return the exit status of the task.

    The status is FAILED if a trial failed, was interrupted or is blocked here, else 0. folder: the campaign's folder.
    Raises ValueError if this is not the code of the campaign, and the errors of `campaigns.load` and `runner.pull`.
    """
    campaign = campaigns.load(Path(folder))
    if campaign.cancelled:
        return 0
    check_code(campaign)
    mark_node(campaign)
    end = time_limit(campaign)
    signal.signal(signal.SIGUSR2, lambda *_: stop_on_notice(end))
    place = campaign.place
    if place.data_dir:
        os.environ["ABLATE_DATA"] = str(place.data_dir)
    jobs = campaign.jobs()
    deadline = machine.stop_time(end - time.monotonic())
    with staging.staged(jobs, campaign.runs, campaign.profile.stage, lambda line: print(line, flush=True)):
        summary = runner.pull(
            jobs,
            place,
            machine.process_name(),
            deadline=deadline,
            called_off=lambda: campaign.cancelled,
        )
    interrupted = f"{len(summary.interrupted)} interrupted, " if summary.interrupted else ""
    done = f"{len(summary.done)} done here, {len(summary.failed)} failed, {interrupted}{summary.left} left"
    print(done, flush=True)
    if summary.stopped and not campaign.cancelled and ended_by_scancel():
        campaigns.write_mark(own_array() / "cancelled.json")
        print("cancelled by scancel: `ablate submit` continues", flush=True)
    return FAILED if summary.failed or summary.interrupted or summary.blocked else 0


def check_code(campaign: Campaign) -> None:
    """Raise ValueError if this process runs other code than the campaign was submitted with."""
    if campaign.digest and provenance.source_digest() != campaign.digest:
        raise ValueError(f"{campaign.code}: was changed or removed since the submission, and no other code is run")


def own_array() -> Path:
    """Return the folder of the array that this task belongs to."""
    return Path(os.environ[arrays.FOLDER])


def mark_node(campaign: Campaign) -> None:
    """Record that a task has begun on this node, and so sees the run directory."""
    node = os.environ.get("SLURMD_NODENAME", "")
    if node and arrays.FOLDER in os.environ:
        mark = own_array() / "nodes" / node
        mark.parent.mkdir(exist_ok=True)
        mark.touch()


def ended_by_scancel() -> bool:
    """Return whether scancel ended this task; False if SLURM does not say."""
    try:
        return queue.own_job_cancelled()
    except (NoSlurm, Unreachable, Refused) as error:
        print(f"cannot tell scancel from preemption, assuming preemption: {error}", flush=True)
        return False


def time_limit(campaign: Campaign) -> float:
    """Return the time at which SLURM will end this job, in seconds of the monotonic clock."""
    projected, now = os.environ.get("SLURM_JOB_END_TIME", ""), time.time()  # set by newer versions of SLURM
    began = int(os.environ.get(arrays.BEGAN, now))
    end = int(projected) if projected.isdecimal() and int(projected) else began + campaign.profile.seconds
    return time.monotonic() + end - now


def stop_on_notice(end: float) -> None:
    """Stop the run on SIGUSR2. Near the time limit `end`, do nothing, because the run has its own deadline."""
    if end - time.monotonic() > NOTICE_SECONDS:
        os.kill(os.getpid(), signal.SIGTERM)


@plain_output()
def last(folder: str) -> int:
    """Finish the round whose tasks have all ended; return the job's exit status, as `finish_patiently` does."""
    await_holders(campaigns.load(Path(folder)), time.monotonic() + machine_seconds() / 2)
    return finish_patiently(Path(folder), own_array().name)


def await_holders(campaign: Campaign, deadline: float) -> None:
    """Wait until one of the trials that are left is held no more. deadline: seconds of the monotonic clock.

    For a minute after a kill on another machine, a trial seems to be held, and tasks would end at once.
    """
    while time.monotonic() < deadline and not campaign.cancelled:
        standings = Standings(campaign.runs, campaign.place.code)
        left = [found for job in campaign.jobs() if (found := job.standing(standings)).is_pending]
        if not left or any(found.kind is not Kind.RUNNING for found in left):
            return
        time.sleep(LOOK_SECONDS)


def finish_patiently(folder: Path, after: str) -> int:
    """Submit what is left or, if nothing is left to train, write tables and report; return the job's exit status.

    Tries again after full disks, stale handles, refusals and silence of SLURM until its own time is over. The status is
    FAILED if the campaign gives up (ablations.cluster.no_progress), or if trials failed, are blocked or were cancelled.
    after: as for `rounds.submit_round`.
    """
    end = time.monotonic() + machine_seconds() - LONGEST_RETRY
    pause = RETRY_SECONDS
    while True:
        try:
            return finish_round(folder, after)
        except (Unreachable, Refused, OSError) as error:  # OSError: a full disk, a stale handle, the launcher's lock
            if time.monotonic() + pause > end:
                raise
            print(f"{store.timestamp()} {error}; trying again", flush=True)
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_RETRY)


def machine_seconds() -> float:
    """Return the time that is left of this job; ten minutes if SLURM does not say."""
    left = machine.seconds_left()
    return 600.0 if left == float("inf") else left


def finish_round(folder: Path, after: str) -> int:
    """Do the work of `finish_patiently` once. Raises the errors of `submit_round` and `publish_all`."""
    campaign = campaigns.load(folder)
    if campaign.cancelled:
        return 0
    check_code(campaign)
    with campaigns.launcher_lock(campaign.runs):
        if not has_queued_tasks(campaign) and no_progress.is_stalled(campaign):
            print(f"{no_progress.give_up(campaign)}: `ablate submit` continues")
            return FAILED
        found = rounds.submit_round(campaign, inside=True, after=after)
    print(json.dumps(asdict(found)), flush=True)
    if not found.left or found.is_cancelled:
        from results.publish import publish_all  # imported here because tasks draw nothing

        publish_all(campaign.runs, campaign.plans)
        cancel_helpers(campaign)
    return FAILED if found.failed or found.blocked or found.is_cancelled else 0


@plain_output()
def watch(folder: str) -> int:
    """Do the work of `last`. If tasks are still queued, submit again which of the two helper jobs does not wait."""
    status = finish_patiently(Path(folder), "")
    campaign = campaigns.load(Path(folder))
    if not campaign.cancelled:
        rounds.ensure_helpers(campaign)
    return status


def has_queued_tasks(campaign: Campaign) -> bool:
    found = rounds.queued_tasks(campaign.runs)
    return any(task.array.campaign == campaign for task in found if not task.array.is_helper)


def cancel_helpers(campaign: Campaign) -> None:
    """Try to cancel the pending helper jobs. A job that remains finds nothing to do."""
    try:
        for task in rounds.waiting_helpers(campaign):
            queue.cancel(campaigns.tag(task.array.folder))
    except (NoSlurm, Unreachable, Refused) as error:
        print(f"a job that watches may still wait: {error}", flush=True)
