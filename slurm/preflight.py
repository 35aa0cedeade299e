"""A check before a submission: whether SLURM accepts a job of a profile and, if not, which key is wrong.

`sbatch --test-only` judges the batch script. It is stricter than sbatch, which would queue a job even if the only
fitting nodes are drained or reserved. Its refusals rarely name the setting ("Requested node configuration is not
available"). If a refusal is about nodes, a key is blamed only if no node satisfies it. Otherwise a key is blamed if
leaving it out changes the refusal. A key that is not set is blamed if the refusal names it. A refusal because the user
has too many jobs in the queue is ignored. Any other refusal becomes a warning, and sbatch decides.

SLURM accepts some requests but never starts them, such as a time limit above every maximum. This check refuses them.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from slurm import arrays, limits, partitions
from slurm.ask import Refused, ask
from slurm.grammar import joined_names
from slurm.partitions import Nodes
from slurm.profile import Profile, submitit_parameters

WITHOUT: dict[str, dict[str, int | None]] = {  # key -> changes that drop the key, the most likely cause first
    "gpu_type": {"gpu_type": None},
    "gpus": {"gpus": 0, "gpu_type": None},
    "nodes": {"nodes": 1},
    "memory": {"memory": None},
    "cpus": {"cpus": 1},
    "constraint": {"constraint": None},
    "time": {"time": 1},
    "qos": {"qos": None},
    "account": {"account": None},
    "partition": {"partition": None},
}
NEEDED = {"account": "account", "partition": "partition", "qos": "qos", "time limit": "time"}  # refusal -> missing key
WOULD_START = re.compile(r"Job \d+ to start at")
# Refusals that may be temporary, because nodes are down, drained or reserved.
OF_NODES = re.compile(r"(?i)node configuration is not available|node not available|nodes .*(busy|reserv)|available now")
MEGABYTES = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}


def check(profile: Profile) -> str:
    """Return a warning if SLURM could start no job of the profile now, or "" if SLURM accepts the job.

    It does not warn if the user has too many jobs in the queue. Raises the errors of `ask`, and Refused if a setting is
    wrong or a required setting is missing. The message has the key, the reason and any values that SLURM offers.
    """
    refusal = test_only(profile)
    if limits.FULL.search(refusal):
        refusal = ""
    if refusal and (fault := blame(profile, refusal)):
        raise Refused(fault)
    for key, problem in blocking_settings(profile):
        raise Refused(f"{setting_text(profile, key)}: {problem}")
    if not refusal:
        return ""
    names = dict.fromkeys(
        nodes.partition for nodes in partitions.partition_nodes(profile.partition, partitions.nodes())
    )
    states = f"; nodes: {', '.join(partitions.states(names))}" if names else ""
    return f"SLURM could start no such job now ('{refusal}'{states}): it waits until that changes"


def check_helper(profile: Profile) -> None:
    """Raise Refused if SLURM would refuse the helper jobs of a profile. Raises the errors of `ask`."""
    if profile.helper == "none":
        return
    refusal = test_only(profile.helper_profile)
    if refusal and not limits.FULL.search(refusal) and not OF_NODES.search(refusal):
        raise Refused(f"helper: the last job asks for what SLURM refuses: '{refusal}'; set keys of `helper:`, or none")


def test_only(profile: Profile) -> str:
    """Return SLURM's refusal of a job of the profile, or "" if SLURM accepts it."""
    tasks = arrays.Tasks("", [], [[]])
    script = arrays.script(Path("/tmp"), tasks, submitit_parameters(profile, "preflight"), Path("/tmp"))
    try:
        ask("sbatch", "--test-only", text=script)
    except Refused as refusal:
        return "" if WOULD_START.search(str(refusal)) else str(refusal)
    return ""


def blame(profile: Profile, refusal: str) -> str:
    """Return an error message that names the setting that causes the refusal, or "" if none can be singled out."""
    decisive = (key for key, other in variations(profile) if test_only(other) != refusal)
    for key in unsatisfiable_keys(profile) if OF_NODES.search(refusal) else decisive:
        return f"{setting_text(profile, key)}: SLURM says '{refusal}'{offered_values(profile, key)}"
    for sign, key in NEEDED.items():
        if sign in refusal.lower() and getattr(profile, key) is None:
            return f"{key} is not set: SLURM says '{refusal}'{offered_values(profile, key)}"
    return ""


def unsatisfiable_keys(profile: Profile) -> Iterator[str]:
    """Yield the keys that the nodes of the profile's partitions cannot satisfy, even if all nodes were up and idle."""
    if not (mine := partitions.partition_nodes(profile.partition, partitions.nodes())):
        return
    if profile.gpu_type and all(profile.gpu_type not in nodes.gpus for nodes in mine):
        yield "gpu_type"
    kind = profile.gpu_type
    if all(profile.gpus > (nodes.gpus.get(kind, 0) if kind else sum(nodes.gpus.values())) for nodes in mine):
        yield "gpus"
    megabytes = int(profile.memory[:-1]) * MEGABYTES[profile.memory[-1]] if profile.memory else 0
    if all(megabytes > nodes.memory for nodes in mine):
        yield "memory"
    if all(profile.cpus > nodes.cpus for nodes in mine):
        yield "cpus"
    if profile.nodes > sum(nodes.count for nodes in mine):
        yield "nodes"


def variations(profile: Profile) -> Iterator[tuple[str, Profile]]:
    """Yield (key, profile without the key or with its minimum) for each set key of WITHOUT and of `extra`."""
    for key, change in WITHOUT.items():
        other = profile.model_copy(update=change)
        if other != profile:
            yield key, other
    for name in profile.extra:
        rest = {option: value for option, value in profile.extra.items() if option != name}
        yield f"extra.{name}", profile.model_copy(update={"extra": rest})


def setting_text(profile: Profile, key: str) -> str:
    """Return a setting as text, such as 'memory=16G' or 'extra.nice=1'."""
    field, _, option = key.partition(".")
    value = getattr(profile, field)
    return f"{key}={value[option] if option else value}"


def blocking_settings(profile: Profile) -> Iterator[tuple[str, str]]:
    """Yield (key, reason) for each setting with which SLURM accepts a job but never starts it."""
    qualities = limits.all_qualities(limits.records())
    if profile.qos and qualities and profile.qos not in qualities:
        yield "qos", f"SLURM knows {', '.join(qualities)}"
    longest = [nodes.limit for nodes in partitions.partition_nodes(profile.partition, partitions.nodes())]
    if longest and all(limit is not None and limit < profile.seconds for limit in longest):
        most = partitions.duration_text(max(limit for limit in longest if limit is not None))
        yield "time", f"the longest that partition {profile.partition or '(default)'} allows is {most}"
    for name, record in limits.applying_records(profile):
        wall = record.get("MaxWallPJ", "")
        if wall.isdigit() and int(wall) < profile.minutes:
            yield "time", f"the longest that {name} allows is {partitions.duration_text(int(wall) * 60)}"
        most_a_job = dict(part.partition("=")[::2] for part in record.get("MaxTRESPJ", "").split(","))
        for key, resource, wanted in (("gpus", "gres/gpu", profile.gpus), ("cpus", "cpu", profile.cpus)):
            if (most := most_a_job.get(resource, "")).isdigit() and int(most) < wanted:
                yield key, f"the most that {name} allows a job is {most}"


# -- the values that SLURM has -----------------------------------------------------------------------------------------


def offered_values(profile: Profile, key: str) -> str:
    """Return the values that SLURM has for a key, as the end of an error message, or "" if unknown."""
    known = partitions.nodes()
    mine = partitions.partition_nodes(profile.partition, known)
    match key:
        case "partition":
            there = "there are " + (joined_names(nodes.partition for nodes in known) or "none")
        case "account":
            there = "yours are " + (joined_names(limits.accounts(limits.records())) or "none")
        case "qos":
            there = "there are " + (joined_names(limits.all_qualities(limits.records())) or "none")
        case "gpus" | "gpu_type":
            there = "a node has " + " or ".join(dict.fromkeys(gpus_as_text(nodes) for nodes in mine))
        case "cpus":
            there = f"a node has at most {max((nodes.cpus for nodes in mine), default=0)}"
        case "memory":
            there = f"a node has at most {max((nodes.memory for nodes in mine), default=0)}M"
        case "time":
            longest = max((nodes.limit for nodes in mine if nodes.limit is not None), default=None)
            allowed = "the longest that the partition allows is "
            there = allowed + partitions.duration_text(longest) if longest else "no limit is set"
        case "constraint":
            there = "features are " + (joined_names(feature for nodes in mine for feature in nodes.features) or "none")
        case _:
            return ""
    return f"; {there}"


def gpus_as_text(nodes: Nodes) -> str:
    """Return the GPUs of a node as text, such as '4 GPUs of type a100'."""
    kinds = [f"{number} GPUs" + (f" of type {kind}" if kind else "") for kind, number in nodes.gpus.items()]
    return " and ".join(kinds) or "no GPU"
