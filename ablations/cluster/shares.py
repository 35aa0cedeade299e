"""Split trials into shares and submit them as job arrays."""

import math
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ablations.cluster.campaign import PREFIX, SHARE, Campaign
from ablations.planning.jobs import Job
from slurm.profiles import profile as profiles
from slurm.queries import limits, queue
from slurm.queries.ask import Refused
from slurm.submission import arrays as submission


def chunks(shares: Sequence[Sequence[Job]], size: int) -> Iterator[Sequence[Sequence[Job]]]:
    return (shares[start : start + size] for start in range(0, len(shares), size))


def split_into_shares(todo: Sequence[Job], seconds: Mapping[str, float], free: int, least: float) -> list[list[Job]]:
    """Split trials into at most `free` shares of about equal length, at least `least` seconds each.

    Trials are taken seed by seed, the longest of a seed first.
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
    """Submit shares as one array; return its job id, None if the queue is full.

    Nodes to avoid are used if SLURM has no others.
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
    when: Mapping[str, str] = MappingProxyType({}),  # sbatch options
) -> int:
    """Submit tasks as one array; return its job id. Raises what slurm.submission.arrays.send raises."""

    def parameters(tag: str) -> dict[str, Any]:
        chosen = profiles.submitit_parameters(campaign.profile, tag, campaign.label, avoided)
        chosen["additional_parameters"] |= when
        return chosen if gpus else {key: value for key, value in chosen.items() if key not in ("gres", "nodes")}

    prefix, most = f"{PREFIX}:{campaign.folder.name}", len(tasks.shares)
    (job_id,) = submission.send_all(campaign.folder / "arrays", prefix, tasks, parameters, campaign.code, most)
    return job_id


def start_condition(after: Sequence[int], start: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """Return sbatch options to begin once the jobs `after` have ended in any way, not before `start` allows."""
    dependency = ",".join(filter(None, [queue.ends(after) if after else "", start.get("dependency")]))
    return {**start, "dependency": dependency} if dependency else dict(start)
