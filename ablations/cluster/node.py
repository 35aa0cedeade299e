"""What runs on the nodes: a share of the trials, and the last job, which looks at what is left."""

import json
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ablations.cluster import campaign as campaigns
from ablations.cluster import job_outcomes, no_progress, staging
from ablations.cluster.campaign import Campaign, Look
from ablations.execution import runner
from ablations.planning.jobs import Job
from ablations.reporting.output import plain_output
from results import store
from slurm.queries.ask import NoSlurm, Refused, Unreachable
from slurm.submission import arrays, ending

FAILED = 1  # exit status: SLURM then calls the task FAILED
NOTICE_SECONDS = 150.0  # SLURM signals the time limit up to 90 s (submitit's default) + 60 s (man sbatch) early
RETRY_SECONDS, LONGEST_RETRY = 5.0, 60.0


@plain_output()
def share(folder: str, *ids: str) -> int:
    """Trains the trials, until they are over or the time is; on the way out makes sure of a last job."""
    campaign = campaigns.load(Path(folder))
    if campaign.cancelled:
        return 0
    end = time_limit(campaign)
    signal.signal(signal.SIGUSR2, lambda *_: on_notice(end))
    make_sure_of_last(campaign, begins=True)
    planned = {job.id: job for job in campaign.jobs()}  # what was pruned since is not trained
    jobs = [planned[key] for key in ids if key in planned]
    deadline = end - margin(campaign)
    if campaign.data_dir:
        os.environ["ABLATE_DATA"] = campaign.data_dir
    most, place = workers(campaign, jobs), campaign.place()
    with staging.staged(jobs, campaign.runs, campaign.profile.stage, lambda line: print(line, flush=True)):
        tally = runner.run(jobs, place, Lines(), most, deadline=deadline, called_off=lambda: campaign.cancelled)
    interrupted = f"{len(tally.interrupted)} interrupted, " if tally.interrupted else ""
    blocked = f"{len(tally.blocked)} blocked, " if tally.blocked else ""
    print(f"{len(tally.done)} over, {len(tally.failed)} failed, {blocked}{interrupted}of {len(jobs)}", flush=True)
    if tally.stopped and not campaign.cancelled and is_cancelled():
        job_outcomes.mark_own(campaign, ids)
        print("cancelled by scancel: `ablate submit` goes on", flush=True)
    else:
        make_sure_of_last(campaign)
    return FAILED if tally.failed or tally.interrupted or tally.blocked else 0


def make_sure_of_last(campaign: Campaign, begins: bool = False) -> None:
    """Where SLURM does not answer, has no room, or is not there, as in a container, another job will."""
    try:
        campaigns.make_sure_of_last(campaign, begins)
    except (NoSlurm, Unreachable, Refused, TimeoutError) as error:
        print(f"no last job from here: {error}", flush=True)


def is_cancelled() -> bool:
    """Whether somebody's scancel stopped this share; where SLURM cannot tell, it counts as preempted."""
    try:
        return ending.cancelled()
    except (NoSlurm, Unreachable, Refused) as error:
        print(f"cancelled or preempted is unknown, taken for preempted: {error}", flush=True)
        return False


def time_limit(campaign: Campaign) -> float:
    """When SLURM will end this job, on this process's monotonic clock."""
    projected, now = os.environ.get("SLURM_JOB_END_TIME", ""), time.time()  # newer versions of SLURM say it
    began = int(os.environ.get(arrays.BEGAN, now))
    end = int(projected) if projected.isdecimal() and int(projected) else began + campaign.profile.seconds
    return time.monotonic() + end - now


def margin(campaign: Campaign) -> float:
    """Seconds before the limit at which the trials are stopped, for their last checkpoint."""
    return min(60.0, max(10.0, campaign.profile.seconds / 10))


def on_notice(end: float) -> None:
    """USR2: near the limit it is the limit's early notice, and the deadline sees to that; else it is preemption."""
    if end - time.monotonic() > NOTICE_SECONDS:
        os.kill(os.getpid(), signal.SIGTERM)


def workers(campaign: Campaign, jobs: Sequence[Job]) -> int | None:
    """The pool's default on GPUs; without them one for each core that SLURM gave to the task."""
    cores, ranks = int(os.environ.get("SLURM_CPUS_PER_TASK", "1")), max((job.ranks for job in jobs), default=1)
    return None if campaign.profile.gpus else max(1, cores // ranks)


class Lines:
    """A display for the log: a line an event."""

    def running(self, slot: int, job: Job, step: int | None, accuracy: float | None) -> None: ...
    def idle(self, slot: int) -> None: ...

    def compiling(self, slot: int, job: Job) -> None:
        print(f"{store.now()} {job.id} compiling the first step", flush=True)

    def over(self, job: Job, event: str, detail: dict[str, Any]) -> None:
        print(f"{store.now()} {job.id} {event} {detail.get('cause', '')}", flush=True)

    def say(self, text: str) -> None:
        print(f"{store.now()} {text}", flush=True)


@plain_output()
def last(folder: str) -> int:
    """Once all else has ended: resubmits what is missing while there is progress, then writes the report."""
    campaign = campaigns.load(Path(folder))
    if campaign.cancelled:
        return 0
    found = patiently(campaign)
    if found is None:
        print(f"{no_progress.give_up(campaign)}: `ablate submit` goes on")
        return FAILED
    print(json.dumps(asdict(found)), flush=True)
    if found.settled:
        from ablations.reporting.publish import publish_all  # late: shares draw nothing

        publish_all(campaign.runs, campaign.plans)
        campaigns.dismiss_lasts(campaign)
    return FAILED if found.failed or found.blocked or found.cancelled else 0


@plain_output()
def watch(folder: str) -> int:
    """The same while others may still be at work; another one watches then, unless the queue is full."""
    campaign = campaigns.load(Path(folder))
    ended = last(folder)
    if not campaign.cancelled and campaigns.has_shares(campaign):
        make_sure_of_last(campaign)
    return ended


def patiently(campaign: Campaign) -> Look | None:
    """A look, again and again while SLURM does not answer or has no room; the time limit's error is raised.

    None where the rounds of shares that ended so far led nowhere.
    """
    end, pause = time_limit(campaign) - margin(campaign), RETRY_SECONDS
    while True:
        try:
            with campaigns.turn(campaign.runs):
                if not campaigns.has_shares(campaign) and no_progress.stalled(campaign):
                    return None
                return campaigns.reconcile(campaign, inside=True, withheld=job_outcomes.cancelled(campaign.runs))
        except (Unreachable, Refused, TimeoutError) as error:
            if time.monotonic() + pause > end:
                raise
            print(f"{store.now()} {error}; trying again", flush=True)
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_RETRY)
