"""The commands `ablate submit`, `ablate cancel` and `ablate profile check`, and their messages."""

import shutil
import signal
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from ablations import machine
from ablations.cluster import arrays, rounds
from ablations.cluster import campaign as campaigns
from ablations.cluster.arrays import LAST, WATCH, WORK
from ablations.cluster.campaign import Campaign
from ablations.cluster.node import CHECK, FAILED_CHECK, LAST_LINE
from ablations.cluster.rounds import Round
from ablations.execution import reopen, slots
from ablations.execution.launch import Place
from ablations.execution.race import open_jobs
from ablations.execution.runner import signal_handler
from ablations.jobs import Job
from ablations.output import output_to_file
from ablations.planning import estimate
from ablations.study import strict_yaml
from results import store
from results.store import lease
from results.store.schemas.plans import Plan
from results.units import amount_text
from slurm import arrays as slurm_arrays
from slurm import preflight as slurm_preflight
from slurm import queue
from slurm.arrays import JobArray, job_name, require_folder, script
from slurm.ask import NoSlurm, Refused, Unreachable, cluster_name
from slurm.profile import Profile, find_profile, is_known

CHECK_MINUTES = 5  # importing torch from a busy file system may take more than one
VISIBLE_SECONDS = 15.0  # until what a node wrote is visible on this machine


def read_profile(name: str, resources: Mapping[str, Any] | None = None) -> Profile:
    """Return a cluster's profile, by name or file, or this machine's. resources: values of keys that it omits."""
    if is_this_machine(name):
        return Profile(gpus=len(machine.gpus()), time="366-00:00:00")
    path = find_profile(name)
    content = {key: value for key, value in strict_yaml.read(path).items() if value is not None}
    return Profile.parse({**(resources or {}), **content}, str(path))


def is_this_machine(name: str) -> bool:
    """Return whether a profile's name stands for this machine, because the user has no profile of this name."""
    return name == campaigns.LOCAL and not is_known(name)


def trials_to_submit(plans: Sequence[Plan], place: Place, arms: Sequence[str]) -> list[Job]:
    return reopen.trials_to_run(place.runs, open_jobs(place.runs, plans, arms), place.code)


def check_gpus(profile: Profile, trials: Sequence[Job]) -> None:
    """Raise ValueError if a profile's jobs cannot run a trial, or leave a node idle."""
    slots.check_gpus(trials, profile.gpus, profile.nodes, "in a job of the profile")
    if profile.nodes > 1 and any(job.ranks == 1 for job in trials):
        raise ValueError(f"nodes={profile.nodes} of the profile: a trial of gpus=1 uses one of them")


def preflight(profile: Profile, runs: Path) -> None:
    """Check a profile with SLURM, and warn if its jobs cannot start now. Raises ValueError if they never can."""
    require_folder(runs)
    warning = slurm_preflight.check(profile)
    if warning:
        print(f"ablate: {warning}", file=sys.stderr)
    slurm_preflight.check_helper(profile)


def preview(plans: Sequence[Plan], place: Place, profile: Profile, arms: Sequence[str]) -> str:
    """Return the scripts that a submission would pass to sbatch, below a comment with trials, tasks and cost."""
    trials = trials_to_submit(plans, place, arms)
    if not trials:
        return "# 0 trials: nothing is left to submit"
    device = campaigns.device(profile)
    campaign = Campaign(place.runs / "submissions" / "CAMPAIGN", tuple(plan.name for plan in plans), profile, place)
    count = rounds.wanted_tasks([job.id for job in trials], estimate.seconds(plans, place.runs, device), profile)
    total = estimate.cost(plans, place.runs, device, {job.id for job in trials}).text
    lines = [f"# {amount_text(len(trials), 'trial')} in {amount_text(count, 'task')}, {total}"]
    tasks = arrays.job_array(campaign, WORK, profile.start)
    lines.append(script(replace(tasks, count=count)))
    comments = {LAST: "# once the jobs above (JOBS) have ended:", WATCH: "# if the last job fails:"}
    for number, (function, when) in enumerate(rounds.helper_starts(profile, ["JOBS"]).items(), start=2):
        lines += [comments[function], script(arrays.job_array(campaign, function, when, number))]
    return "\n".join(lines)


def submit(plans: Sequence[Plan], place: Place, profile: Profile, arms: Sequence[str]) -> str:
    """Submit the trials that are still to train and not queued; return a summary for the user.

    If nothing is left to train, tables and report are brought up to date, and SLURM is not asked.
    """
    with campaigns.launcher_lock(place.runs):
        if trials_to_submit(plans, place, arms):
            names = [plan.name for plan in plans]
            done = rounds.submit_round(campaigns.new(names, profile, place, arms=arms, cluster=cluster_name()))
        else:
            done = rounds.count_trials(rounds.read_standings(open_jobs(place.runs, plans, arms), place))
        message = submission_message(done, profile)
        if not done.left:
            message += "\n" + publish_pending(place.runs, plans)
    return message.rstrip()


def start_here(plans: Sequence[Plan], place: Place, profile: Profile, arms: Sequence[str]) -> str:
    """Start a background process of this machine for the trials that are still to train; return a summary.

    It trains what no other process has claimed, then writes tables and report. One works at a time.
    """
    from slurm import local  # imported here because it loads submitit

    trials = trials_to_submit(plans, place, arms)
    if not trials:
        return publish_pending(place.runs, plans) or "nothing is left to train"
    names = [plan.name for plan in plans]
    count = amount_text(len(trials), "trial")
    with campaigns.launcher_lock(place.runs):
        at_work = process_here(place.runs, names)
        if at_work:
            return f"{count} to train; process {at_work} of an earlier submission is at work: submit again after it"
        campaign = campaigns.write(campaigns.new(names, profile, place, arms=arms, cluster=campaigns.LOCAL))
        array = arrays.job_array(campaign, arrays.HERE, {})
        arrays.write_intent(array)
        with output_to_file(array.folder / "process.log"):  # a pipe of this process would stay open for hours
            process = local.start(array)
        store.write_json(array.folder / lease.NAME, lease.own_lease(process).content())
    return f"{count} to train on this machine, by process {process}; log: {array.folder / 'logs'}"


def process_here(runs: Path, plans: Collection[str]) -> int:
    """Return the id of a process of this machine that works on a submission of one of these plans, or 0."""
    for campaign in campaigns.campaigns(runs):
        if campaign.cluster == campaigns.LOCAL and set(plans) & set(campaign.plans):
            for array in arrays.task_arrays(campaign):
                held = lease.read(array.folder)
                if held and lease.holder_state(held) in ("lives", "stopped"):
                    return held.pid
    return 0


def publish_pending(runs: Path, plans: Sequence[Plan]) -> str:
    """Write tables and report if out of date; return a message, or "" if not."""
    if not any(campaigns.awaits_reports(runs, plan) for plan in plans):
        return ""
    campaigns.write_reports(runs, [plan.name for plan in plans])
    return f"tables and report written: {runs / 'report.html'}"


def submission_message(done: Round, profile: Profile) -> str:
    parts = [f"{done.over} done", f"{done.left} to train"]
    parts.append(f"{amount_text(done.queued, 'task')} already queued, {done.submitted} submitted")
    if done.failed:
        parts.append(f"{done.failed} failed (`ablate retry`)")
    if done.blocked:
        parts.append(f"{done.blocked} blocked by their parents (`ablate status` says why)")
    lines = [", ".join(parts), *filter(None, [reopen.renewal_line(done.renewed)])]
    if done.submitted:
        lines.append(f"cost: {estimate.EstimatedCost(done.hours, campaigns.device(profile), {}).text}")
    if done.left and not done.queued and not done.submitted:
        again = f"give the command again in {rounds.SETTLE_SECONDS:.0f} s"
        lines.append(f"tasks were submitted just now, and squeue does not show them yet: if they have ended, {again}")
    if done.avoided:
        lines.append(f"avoiding {', '.join(done.avoided)}: tasks there failed within a day")
    if done.no_last_job:
        lines.append(f"no last job is queued ({done.no_last_job}): submit again when the tasks have ended")
    elif done.submitted and profile.helper == "none":
        lines.append("no last job is queued (helper: none): submit again when the tasks have ended")
    elif done.submitted:
        lines.append("when these have ended, a last job checks again and writes tables and report")
    return "\n".join(lines)


def cancel(runs: Path, names: set[str]) -> str:
    """Mark this user's campaigns of the plans `names` as cancelled, then cancel their jobs; return a message.

    Jobs of campaigns that were marked earlier are cancelled too. Raises ValueError if unfinished trials of other plans
    would be cancelled.
    """
    fresh: list[Campaign] = []
    others: set[str] = set()
    queued: list[str] = []  # prefixes of the tags of jobs that may be in the queue
    done = []
    for campaign in campaigns.campaigns(runs):
        if names & set(campaign.plans) and campaign.is_own:
            if campaign.cluster != campaigns.LOCAL:
                queued.append(campaign.tags)
            if not campaign.cancelled:
                fresh.append(campaign)
                others.update(other_open_plans(campaign, names))
    if others:
        listed = ", ".join(sorted(others))
        raise ValueError(
            f"{listed}: would be cancelled too, as they were submitted together: name all of them, or none"
        )
    for campaign in fresh:
        campaigns.write_mark(campaign.folder / "cancelled.json")
        if campaign.cluster == campaigns.LOCAL:
            done = ["the process on this machine ends by itself"]
    removed = 0
    try:
        if queued:
            removed = queue.cancel(*queued)
    except Unreachable as error:
        raise Unreachable(
            f"{error}; running jobs stop by themselves; to cancel pending ones, give the command again"
        ) from None
    if queued or not done:
        done.insert(0, f"{amount_text(removed, 'job')} removed from the queue")
    done.insert(0, f"{amount_text(len(fresh), 'submission')} cancelled")
    return f"{', '.join(done)}; finished trials stay"


def other_open_plans(campaign: Campaign, names: set[str]) -> list[str]:
    names_left = []
    for plan in campaign.read_plans():
        if plan.name not in names and trials_to_submit([plan], campaign.place, campaign.arms):
            names_left.append(plan.name)
    return names_left


def check(profile: Profile, place: Place, patience: float = 600.0) -> tuple[list[str], bool]:
    """Submit a short job that runs the checks of a node; return (what it printed, whether no check failed)."""

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    short = profile.model_copy(update={"time": CHECK_MINUTES, "parallel": None})
    preflight(short, place.runs)
    campaign = campaigns.write(campaigns.new((), short, place, "check"))
    array = arrays.job_array(campaign, CHECK, {})
    try:
        with signal_handler(leave, signal.SIGTERM, signal.SIGHUP):
            slurm_arrays.run(array, patience)
            lines = await_last_line(array)
    finally:  # also after Ctrl-C
        cancel_check(array)
        shutil.rmtree(campaign.folder)
    return lines, not any(line.startswith(FAILED_CHECK) for line in lines)


def await_last_line(array: JobArray) -> list[str]:
    """Return what the ended job of a check printed. Raises ValueError if its last line does not come."""
    printed = arrays.log_lines(array.folder)
    if LAST_LINE not in printed:  # ask now, because SLURM soon forgets ended jobs
        ends = [f"{job.state} on {job.node}" for job in queue.jobs(array.tag, ended=True) if job.node]
        where = "; ".join(["the job ended before all was checked", *ends])
    deadline = time.monotonic() + VISIBLE_SECONDS
    while LAST_LINE not in printed:
        if time.monotonic() > deadline:
            nothing = f"it printed nothing; perhaps {array.folder} is not there on the node"
            raise ValueError(f"{where}: {' '.join(printed[-1:]) or nothing}")
        time.sleep(1)
        printed = arrays.log_lines(array.folder)
    return printed[: printed.index(LAST_LINE)]


def cancel_check(array: JobArray) -> None:
    try:
        queue.cancel(array.tag)
    except (NoSlurm, Unreachable, Refused) as error:
        name = job_name(array.label, array.tag)
        print(f"{error}; the job of the check may still be queued: scancel --name={name}", file=sys.stderr)
