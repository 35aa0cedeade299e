"""The jobs that run on the nodes: shares (ablations.cluster.shares) and last jobs (ablations.cluster.last_jobs)."""

import json
import os
import signal
import time
from dataclasses import asdict
from pathlib import Path

from ablations.cluster import array_tasks, last_jobs, no_progress, reconciliation, staging
from ablations.cluster import campaign as campaigns
from ablations.cluster.campaign import Campaign
from ablations.cluster.reconciliation import Reconciliation
from ablations.execution import runner
from ablations.reporting.lines import Lines
from ablations.reporting.output import plain_output
from results import store
from slurm.queries import queue
from slurm.queries.ask import NoSlurm, Refused, Unreachable
from slurm.submission import arrays

FAILED = 1  # exit status of a task that SLURM then reports as FAILED
NOTICE_SECONDS = 150.0  # SLURM signals the time limit up to 90 s (submitit's default) + 60 s (man sbatch) early
RETRY_SECONDS, LONGEST_RETRY = 5.0, 60.0


@plain_output()
def share(folder: str, *ids: str) -> int:
    """Train the trials `ids` until they are over or time is up; return the exit status of the task.

    The status is FAILED if a trial failed, was interrupted or is blocked, else 0. Unless scancel or `ablate cancel`
    stops it, the share ensures at its beginning and end that last jobs wait. folder: the campaign's folder. Raises
    the errors of `campaigns.load` and `runner.run`.
    """
    campaign = campaigns.load(Path(folder))
    if campaign.cancelled:
        return 0
    end = time_limit(campaign)
    signal.signal(signal.SIGUSR2, lambda *_: stop_on_notice(end))
    ensure_last_jobs(campaign, begins=True)
    planned = {job.id: job for job in campaign.jobs()}  # pruned trials are not trained
    jobs = [planned[key] for key in ids if key in planned]
    deadline = end - stop_margin(campaign)
    place = campaign.place
    if place.data_dir:
        os.environ["ABLATE_DATA"] = str(place.data_dir)
    with staging.staged(jobs, campaign.runs, campaign.profile.stage, lambda line: print(line, flush=True)):
        summary = runner.run(jobs, place, Lines(), deadline=deadline, called_off=lambda: campaign.cancelled)
    interrupted = f"{len(summary.interrupted)} interrupted, " if summary.interrupted else ""
    blocked = f"{len(summary.blocked)} blocked, " if summary.blocked else ""
    print(f"{len(summary.done)} done, {len(summary.failed)} failed, {blocked}{interrupted}of {len(jobs)}", flush=True)
    if summary.stopped and not campaign.cancelled and ended_by_scancel():
        own = [task for task in array_tasks.campaign_tasks(campaign) if task.share == ids]
        campaigns.write_mark(max(own, key=lambda task: task.written).cancel_mark)
        print("cancelled by scancel: `ablate submit` continues", flush=True)
    else:
        ensure_last_jobs(campaign)
    return FAILED if summary.failed or summary.interrupted or summary.blocked else 0


def ensure_last_jobs(campaign: Campaign, begins: bool = False) -> None:
    """Ensure that last jobs wait. If SLURM or the lock prevents this, print why and leave it to other jobs."""
    try:
        last_jobs.ensure_last_jobs_from_share(campaign, begins)
    except (NoSlurm, Unreachable, Refused, TimeoutError) as error:
        print(f"no last job submitted from here: {error}", flush=True)


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


def stop_margin(campaign: Campaign) -> float:
    """Return the number of seconds before the time limit at which trials save a checkpoint and stop."""
    return min(60.0, max(10.0, campaign.profile.seconds / 10))


def stop_on_notice(end: float) -> None:
    """Stop the run on SIGUSR2. Near the time limit `end`, do nothing, because the run has its own deadline."""
    if end - time.monotonic() > NOTICE_SECONDS:
        os.kill(os.getpid(), signal.SIGTERM)


@plain_output()
def last(folder: str) -> int:
    """Submit missing trials or, if none is left to train, write tables and report; return the job's exit status.

    The status is FAILED if the campaign gives up (ablations.cluster.no_progress), or if trials failed, are blocked or
    were cancelled. Raises the errors of `campaigns.load`, `reconcile_patiently` and `publish_all`.
    """
    campaign = campaigns.load(Path(folder))
    if campaign.cancelled:
        return 0
    found = reconcile_patiently(campaign)
    if found is None:
        print(f"{no_progress.give_up(campaign)}: `ablate submit` continues")
        return FAILED
    print(json.dumps(asdict(found)), flush=True)
    if found.is_settled:
        from ablations.reporting.publish import publish_all  # imported here because shares draw nothing

        publish_all(campaign.runs, campaign.plans)
        last_jobs.cancel_last_jobs(campaign)
    return FAILED if found.failed or found.blocked or found.cancelled else 0


@plain_output()
def watch(folder: str) -> int:
    """Do the work of `last`, with its status and errors. If shares are still queued, ensure that last jobs wait."""
    campaign = campaigns.load(Path(folder))
    ended = last(folder)
    if not campaign.cancelled and last_jobs.has_queued_shares(campaign):
        ensure_last_jobs(campaign)
    return ended


def reconcile_patiently(campaign: Campaign) -> Reconciliation | None:
    """Submit the campaign's missing trials with `reconcile`, and return its findings.

    Returns None and submits nothing if no shares are queued and `is_stalled` is true. Tries again after Refused and
    Unreachable, and while another process submits. Shortly before the time limit, raises the last Refused, Unreachable
    or TimeoutError.
    """
    end, pause = time_limit(campaign) - stop_margin(campaign), RETRY_SECONDS
    while True:
        try:
            with campaigns.launcher_lock(campaign.runs):
                if not last_jobs.has_queued_shares(campaign) and no_progress.is_stalled(campaign):
                    return None
                return reconciliation.reconcile(
                    campaign, inside=True, withheld=array_tasks.cancelled_trials(campaign.runs)
                )
        except (Unreachable, Refused, TimeoutError) as error:
            if time.monotonic() + pause > end:
                raise
            print(f"{store.timestamp()} {error}; trying again", flush=True)
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_RETRY)
