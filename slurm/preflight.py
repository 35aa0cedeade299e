"""A check before a submission: whether SLURM accepts the jobs of a profile, by `sbatch --test-only`.

The test is stricter than sbatch, which also queues a job if all fitting nodes are drained or reserved. So a refusal
because of nodes is a warning, unless no node could ever satisfy the profile. SLURM accepts jobs that exceed a
partition's time limit, but never starts them.
"""

import re
from pathlib import Path

from slurm import arrays, partitions
from slurm.ask import Refused, ask
from slurm.partitions import Nodes
from slurm.profile import Profile
from slurm.queue import FULL
from slurm.values import option_words, quoted_names

WOULD_START = re.compile(r"Job \d+ to start at")
# Refusals that may be temporary, because nodes are down, drained or reserved.
OF_NODES = re.compile(r"(?i)node configuration is not available|node not available|nodes .*(busy|reserv)|available now")
MEGABYTES = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}


def check(profile: Profile) -> str:
    """Return a warning if SLURM could start no job now, or "". Raises Refused if it never can."""
    groups = partitions.nodes()
    nodes = partitions.partition_nodes(profile.partition, groups)
    unmet = [unmet_setting(profile, some) for some in nodes]
    if unmet and all(unmet):
        offered = "; ".join(dict.fromkeys(map(partitions.description, nodes)))
        raise Refused(f"{unmet[0]}: no node satisfies this; there are {offered}")
    refusal = test_only(profile)
    if not refusal:
        return ""
    if OF_NODES.search(refusal):
        states = ", ".join(partitions.states(dict.fromkeys(some.partition for some in nodes)))
        return f"SLURM could start no such job now ('{refusal}'; nodes: {states}): it waits until that changes"
    names = quoted_names(some.partition for some in groups)
    fields = profile.model_dump(include={"partition", "account", "qos", "constraint", "time"}, exclude_none=True)
    words = [word.removeprefix("--") for word in option_words({**fields, **profile.extra})]
    raise Refused(f"SLURM says '{refusal}' to a job of the profile ({' '.join(words)}); partitions: {names}")


def check_helper(profile: Profile) -> None:
    if profile.helper == "none":
        return
    refusal = test_only(profile.helper_profile)
    if refusal and not OF_NODES.search(refusal):
        raise Refused(f"helper: the last job asks for what SLURM refuses: '{refusal}'; set keys of `helper:`, or none")


def test_only(profile: Profile) -> str:
    """Return SLURM's refusal of a job of the profile, or "" if SLURM accepts it or has too many jobs of this user."""
    script = arrays.script(arrays.JobArray(Path("/tmp"), "preflight", "", [], profile, Path("/tmp")))
    try:
        ask("sbatch", "--test-only", text=script)
    except Refused as refusal:
        if not (WOULD_START.search(str(refusal)) or FULL.search(str(refusal))):
            return str(refusal)
    return ""


def unmet_setting(profile: Profile, nodes: Nodes) -> str:
    """Return a setting that these nodes cannot satisfy, even if all of them were up and idle; "" if there is none."""
    if profile.gpu_type and profile.gpu_type not in nodes.gpus:
        return f"gpu_type={profile.gpu_type}"
    if profile.gpus > nodes.gpu_count(profile.gpu_type):
        return f"gpus={profile.gpus}"
    if profile.memory and int(profile.memory[:-1]) * MEGABYTES[profile.memory[-1]] > nodes.memory:
        return f"memory={profile.memory}"
    if profile.cpus > nodes.cpus:
        return f"cpus={profile.cpus}"
    if nodes.limit is not None and profile.seconds > nodes.limit:
        return f"time={profile.time}"
    return ""
