"""The jobs that run on the nodes: tasks, which pull trials, and the helper jobs (ablations.cluster.rounds)."""

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from ablations import machine, provenance
from ablations.cluster import arrays, rounds
from ablations.cluster import campaign as campaigns
from ablations.cluster.campaign import Campaign
from ablations.execution import runner
from ablations.execution.race import Races, open_jobs
from ablations.output import plain_output
from ablations.trainables.trainable import NodeCheck, find
from commonfloor.files import check_hard_links
from commonfloor.messages import one_line
from results import store
from results.store.standing import Kind
from slurm import queue
from slurm.ask import NoSlurm, Refused, Unreachable, ask

FAILED = 1  # exit status of a task that SLURM then reports as FAILED
RETRY_SECONDS, LONGEST_RETRY = 5.0, 60.0
LOOK_SECONDS = 10.0
CHECK = "ablations.cluster.node:check_node"
FAILED_CHECK = "FAILED"  # how the line of a failed check begins
LAST_LINE = "all was checked"


@plain_output()
def work(folder: str) -> int:
    """Train unclaimed trials until none is left or time is up; return FAILED if one failed or is blocked, else 0."""
    array = Path(folder)
    campaign = campaign_of(array)
    if campaign.cancelled:
        return 0
    check_code(campaign)
    mark_node(array)
    place = campaign.place
    if place.data_dir:
        os.environ["ABLATE_DATA"] = str(place.data_dir)
    races = Races(place.runs, campaign.read_plans())
    summary = runner.pull(
        campaign.jobs(),
        place,
        machine.process_name(),
        deadline=machine.stop_time(machine.seconds_left()),
        called_off=lambda: campaign.cancelled,
        left_out=races.left_out,
        is_race=races.are_there,
    )
    counts = f"{len(summary.done)} done here, {len(summary.failed)} failed, {len(summary.interrupted)} interrupted"
    print(f"{counts}, {summary.left} left", flush=True)
    has_slurm = campaign.cluster != campaigns.LOCAL
    if has_slurm and summary.stopped and not campaign.cancelled and ended_by_scancel():
        campaigns.write_mark(array / "cancelled.json")
        print("cancelled by scancel: `ablate submit` continues", flush=True)
    if summary.failed or summary.interrupted or summary.blocked:
        return FAILED
    return 0


def campaign_of(array: Path) -> Campaign:
    return campaigns.load(array.parent.parent)


def check_code(campaign: Campaign) -> None:
    if campaign.digest and provenance.source_digest() != campaign.digest:
        raise ValueError(f"{campaign.code}: was changed or removed since the submission, and no other code is run")


def mark_node(array: Path) -> None:
    """Record that a task has begun on this node, and so sees the run directory."""
    node = os.environ.get("SLURMD_NODENAME", "")
    if node:
        mark = array / "nodes" / node
        mark.parent.mkdir(exist_ok=True)
        mark.touch()


def ended_by_scancel() -> bool:
    """Return whether scancel ended this task; False if SLURM does not say."""
    try:
        return queue.own_job_cancelled()
    except (NoSlurm, Unreachable, Refused) as error:
        print(f"cannot tell scancel from preemption, assuming preemption: {error}", flush=True)
        return False


@plain_output()
def here(folder: str) -> int:
    """Do the work of a task on this machine, then write tables and report; return the exit status of the task."""
    status = work(folder)
    campaign = campaign_of(Path(folder))
    if not campaign.cancelled:
        campaigns.write_reports(campaign.runs, campaign.plans)
    return status


@plain_output()
def last(folder: str) -> int:
    """Finish the round whose tasks have all ended; return the job's exit status, as `finish_patiently` does."""
    return finish_patiently(Path(folder), after=Path(folder).name)


@plain_output()
def watch(folder: str) -> int:
    """Do the work of `last`. If tasks are still queued, submit again which of the two helper jobs does not wait."""
    status = finish_patiently(Path(folder))
    campaign = campaign_of(Path(folder))
    if not campaign.cancelled:
        rounds.ensure_helpers(campaign, arrays.queued_tasks(campaign.runs))
    return status


def await_holders(campaign: Campaign, deadline: float) -> None:
    """Wait until one of the trials that are left is held no more.

    For a minute after a kill on another machine, a trial seems to be held, and tasks would end at once.
    """
    while time.monotonic() < deadline and not campaign.cancelled:
        trials = open_jobs(campaign.runs, campaign.read_plans(), campaign.arms)
        standings = rounds.read_standings(trials, campaign.place).values()
        if {standing.kind for standing in standings if standing.is_pending} != {Kind.RUNNING}:
            return
        time.sleep(LOOK_SECONDS)


def finish_patiently(array: Path, after: str = "") -> int:
    """Submit what is left or, if nothing is left to train, write tables and report; return the job's exit status.

    Tries again after full disks, stale handles, refusals and silence of SLURM until its own time is over. after: as
    for `submit_round`.
    """
    left = machine.seconds_left()
    began = time.monotonic()
    end = began + left - LONGEST_RETRY
    pause = RETRY_SECONDS
    while True:
        try:
            campaign = campaign_of(array)
            if after:
                await_holders(campaign, began + left / 2)
            return finish_round(campaign, after)
        except (Unreachable, Refused, OSError) as error:  # OSError: a full disk, a stale handle, the launcher's lock
            if time.monotonic() + pause > end:
                raise
            with suppress(OSError):  # the log may be on the full disk
                print(f"{store.timestamp()} {error}; trying again", flush=True)
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_RETRY)


def finish_round(campaign: Campaign, after: str) -> int:
    """Do the work of `finish_patiently` once. Raises the errors of `submit_round` and `publish_all`."""
    if campaign.cancelled:
        return 0
    check_code(campaign)
    with campaigns.launcher_lock(campaign.runs):
        done = rounds.submit_round(campaign, inside=True, after=after)
    print(json.dumps(asdict(done)), flush=True)
    if not done.left or done.is_cancelled:
        campaigns.write_reports(campaign.runs, campaign.plans)
        cancel_helpers(campaign)
    if done.failed or done.blocked or done.is_cancelled or done.given_up:
        return FAILED
    return 0


def cancel_helpers(campaign: Campaign) -> None:
    """Try to cancel the pending helper jobs. A job that remains finds nothing to do."""
    try:
        tasks = rounds.own_tasks(campaign, arrays.queued_tasks(campaign.runs))
        waiting = [task.job.tag for task in tasks if task.array.is_helper and task.job.is_pending]
        if waiting:
            queue.cancel(*waiting)
    except (NoSlurm, Unreachable, Refused) as error:
        print(f"a job that watches may still wait: {error}", flush=True)


# -- the checks of `ablate profile check` ------------------------------------------------------------------------------


def check_node(folder: str) -> int:
    """Run all checks on this node and print a line about each, then LAST_LINE. Return 0."""
    campaign = campaign_of(Path(folder))
    for name, check in checks(campaign).items():
        try:
            check.run(bool(campaign.profile.gpus))
            print(f"ok      {name}")
        except Exception as error:  # any failure is a finding
            reason = one_line(f"{type(error).__name__}: {error}")
            if check.without:
                print(f"warning {name}: {reason}; {check.without}")
            else:
                print(f"{FAILED_CHECK}  {name}: {reason}")
    print(LAST_LINE, flush=True)
    return 0


def checks(campaign: Campaign) -> Mapping[str, NodeCheck]:
    """Return the checks of a node, by name: those of the default trainable, and then the engine's own."""

    def check_data(needs_gpu: bool) -> None:
        folder = campaign.place.data_dir
        if folder and not os.listdir(folder):
            raise ValueError(f"--data-dir {folder}: is empty on the node")

    def check_link(needs_gpu: bool) -> None:
        """Check that os.link, which publishes results, works in the run directory."""
        check_hard_links(campaign.folder)

    def check_sbatch(needs_gpu: bool) -> None:
        """Check that sbatch works on the node, because last jobs run it there."""
        (script,) = (campaign.folder / "arrays").glob("*/script.sh")
        ask("sbatch", "--test-only", str(script), timeout=30)

    return {
        **find("").node_checks,
        "data": NodeCheck(check_data),
        "link() in the run directory": NodeCheck(check_link),
        "sbatch from the node": NodeCheck(check_sbatch),
    }
