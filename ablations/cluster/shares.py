"""Divide trials into shares and submit the shares. One task of a job array trains the trials of a share."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ablations.cluster.campaign import SHARE, Campaign, tag
from ablations.planning.jobs import Job
from slurm.profiles import profile as profiles
from slurm.queries import limits, queue
from slurm.queries.ask import Refused
from slurm.submission import arrays as submission

NOTHING: Mapping[str, str] = MappingProxyType({})


def split_into_shares(todo: Sequence[Job], seconds: Mapping[str, float], free: int, least: float) -> list[list[Job]]:
    """Return the trials divided into shares of about equal length.

    seconds: trial id -> estimated time. free: the maximum number of shares. least: seconds that a share should last;
    shares are longer if trials are longer or `free` is small. Trials are taken seed by seed, the longest first.
    """
    if not todo or not free:
        return []
    total = sum(seconds[job.id] for job in todo)
    count = min(len(todo), free, max(1, math.ceil(total / least)))
    shares: list[list[Job]] = [[] for _ in range(count)]
    lengths = [0.0] * count
    for job in sorted(todo, key=lambda job: (job.config["seed"], -seconds[job.id])):
        shortest = lengths.index(min(lengths))
        shares[shortest].append(job)
        lengths[shortest] += seconds[job.id]
    return shares


def send_shares(
    campaign: Campaign, shares: Sequence[Sequence[Job]], avoided: Sequence[str], when: Mapping[str, str]
) -> int | None:
    """Submit shares as one array; return the array's job id, or None if the queue is full.

    avoided: nodes to avoid. If SLURM refuses the array, it is submitted again with all nodes allowed. when: sbatch
    options for the start. Raises Refused after any other refusal, or another error of `send`.
    """
    try:
        return send(campaign, share_tasks(campaign, shares), avoided=avoided, when=when)
    except Refused as refusal:
        if limits.FULL.search(str(refusal)):
            return None
        if not avoided:
            raise
        return send_shares(campaign, shares, (), when)


def share_tasks(campaign: Campaign, shares: Sequence[Sequence[Job]]) -> submission.Tasks:
    ids = [[job.id for job in share] for share in shares]
    return submission.Tasks(SHARE, [str(campaign.folder)], ids, container=campaign.profile.prefix)


def send(
    campaign: Campaign,
    tasks: submission.Tasks,
    gpus: bool = True,
    avoided: Sequence[str] = (),
    when: Mapping[str, str] = NOTHING,
) -> int:
    """Submit tasks as one array, in a new folder of the campaign, and return the array's job id.

    For the other arguments and errors, see `script_parameters`. Also raises the errors of arrays.send.
    """
    folder = submission.next_folder(campaign.folder / "arrays")
    parameters = script_parameters(campaign, folder, gpus, avoided, when)
    return submission.send(folder, tag(folder), tasks, parameters, campaign.code)


def script_parameters(
    campaign: Campaign, folder: Path, gpus: bool, avoided: Sequence[str] = (), when: Mapping[str, str] = NOTHING
) -> dict[str, Any]:
    """Return the parameters from which submitit renders the script of an array.

    folder: the array's. gpus: False for a task on one node without GPUs. avoided: names of nodes to avoid. when: sbatch
    options for the start. Raises the errors of `submitit_parameters`.
    """
    parameters = profiles.submitit_parameters(campaign.profile, tag(folder), campaign.label, avoided)
    parameters["additional_parameters"] |= when
    if not gpus:
        parameters = {key: value for key, value in parameters.items() if key not in ("gres", "nodes")}
    return parameters


def start_condition(after: Sequence[int | str], start: Mapping[str, str] = NOTHING) -> dict[str, str]:
    """Return the sbatch options that hold a job until all jobs in `after` have ended in any state.

    start: further options, such as `begin`. A dependency among them must hold as well.
    """
    dependency = ",".join(filter(None, [queue.dependency(after) if after else "", start.get("dependency")]))
    return {**start, "dependency": dependency} if dependency else dict(start)
