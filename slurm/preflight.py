"""Whether SLURM would take a job of a profile, asked before anything is submitted; if not, which key is wrong.

`sbatch --test-only` judges the very script that submitit would write. Its refusals rarely name the setting
("Requested node configuration is not available"), so the setting is found by leaving each out in turn: without the
wrong one SLURM says something else. What SLURM accepts and then never starts (longer than any limit allows, an
unknown QOS where none is enforced) is compared here.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from slurm import clock, grammar, limits, partitions, policy
from slurm.ask import Refused, ask
from slurm.partitions import Nodes
from slurm.profile import Profile, submitit_parameters

WITHOUT: dict[str, dict[str, Any]] = {  # in the order in which they are suspected
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
NEEDED = {"account": "account", "partition": "partition", "qos": "qos", "time limit": "time"}  # refusal: key not set


def check(profile: Profile) -> str:
    """When and where SLURM would start such a job, in its own words.

    Raises Refused: one line that names the key, its value, SLURM's reason and what there is; Unreachable, NoSlurm.
    """
    try:
        answer = test_only(profile)
    except Refused as refusal:
        if limits.FULL.search(str(refusal)):
            return str(refusal)
        raise Refused(blame(profile, str(refusal))) from None
    for key, problem in never(profile):
        raise Refused(f"{named(profile, key)}: {problem}")
    return answer


def test_only(profile: Profile) -> str:
    """What `sbatch --test-only` says. Raises Refused, in SLURM's words, Unreachable, NoSlurm."""
    from submitit.slurm.slurm import _make_sbatch_string  # late: submitit is an extra

    parameters = submitit_parameters(profile, "preflight")
    script = _make_sbatch_string(command="true", folder="/tmp", **parameters)
    return ask("sbatch", "--test-only", text=script).stderr.strip().removeprefix("sbatch: ")


def blame(profile: Profile, refusal: str) -> str:
    """The refusal with the key that it goes back to."""
    for key, other in variations(profile):
        try:
            test_only(other)
        except Refused as another:
            if str(another) == refusal:
                continue
        return f"{named(profile, key)}: SLURM says '{refusal}'{offer(profile, key)}"
    for sign, key in NEEDED.items():
        if sign in refusal.lower() and getattr(profile, key) is None:
            return f"{key} is not set: SLURM says '{refusal}'{offer(profile, key)}"
    written = ", ".join(named(profile, key) for key, _ in variations(profile))
    return f"SLURM says '{refusal}' to {written or 'the defaults'} together"


def variations(profile: Profile) -> Iterator[tuple[str, Profile]]:
    """The profile without each of its settings, by the setting's key."""
    for key, change in WITHOUT.items():
        other = profile.model_copy(update=change)
        if other != profile:
            yield key, other
    for name in profile.extra:
        rest = {option: value for option, value in profile.extra.items() if option != name}
        yield f"extra.{name}", profile.model_copy(update={"extra": rest})


def named(profile: Profile, key: str) -> str:
    """'memory=16G'."""
    field, _, option = key.partition(".")
    value = getattr(profile, field)
    return f"{key}={value[option] if option else value}"


def never(profile: Profile) -> Iterator[tuple[str, str]]:
    """What SLURM accepts and does not start: the key and why."""
    qualities = policy.all_qualities(policy.records())
    if profile.qos and qualities and profile.qos not in qualities:
        yield "qos", f"SLURM knows {', '.join(qualities)}"
    longest = [nodes.limit for nodes in partitions.of(profile.partition, partitions.nodes())]
    if longest and all(limit is not None and limit < profile.seconds for limit in longest):
        most = clock.span(max(limit for limit in longest if limit is not None))
        yield "time", f"the longest that partition {profile.partition or '(default)'} allows is {most}"
    for name, record in policy.applying(profile):
        wall = record.get("MaxWallPJ", "")
        if wall.isdigit() and int(wall) < profile.minutes:
            yield "time", f"the longest that {name} allows is {clock.span(int(wall) * 60)}"
        most_a_job = dict(part.partition("=")[::2] for part in record.get("MaxTRESPJ", "").split(","))
        for key, resource, wanted in (("gpus", "gres/gpu", profile.gpus), ("cpus", "cpu", profile.cpus)):
            if (most := most_a_job.get(resource, "")).isdigit() and int(most) < wanted:
                yield key, f"the most that {name} allows a job is {most}"


# -- what there is instead ---------------------------------------------------------------------------------------------


def offer(profile: Profile, key: str) -> str:
    """'; ...': what SLURM has for a key, or nothing."""
    known = partitions.nodes()
    mine = partitions.of(profile.partition, known)
    match key:
        case "partition":
            there = "there are " + listed(nodes.partition for nodes in known)
        case "account":
            there = "yours are " + listed(policy.accounts(policy.records()))
        case "qos":
            there = "there are " + listed(policy.all_qualities(policy.records()))
        case "gpus" | "gpu_type":
            there = "a node has " + " or ".join(dict.fromkeys(gpus(nodes) for nodes in mine))
        case "cpus":
            there = f"a node has at most {max((nodes.cpus for nodes in mine), default=0)}"
        case "memory":
            there = f"a node has at most {max((nodes.memory for nodes in mine), default=0)}M"
        case "time":
            limits = [nodes.limit for nodes in mine if nodes.limit is not None]
            there = (
                f"the longest that the partition allows is {clock.span(max(limits))}" if limits else "no limit is set"
            )
        case "constraint":
            there = "features are " + listed(feature for nodes in mine for feature in nodes.features)
        case _:
            return ""
    return f"; {there}"


def gpus(nodes: Nodes) -> str:
    """'4 GPUs of type a100'."""
    kinds = [f"{number} GPUs" + (f" of type {kind}" if kind else "") for kind, number in nodes.gpus.items()]
    return " and ".join(kinds) or "no GPU"


def listed(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(grammar.shown(name) for name in names)) or "none"
