"""When a campaign gives up: after rounds of shares that all left the same on disk. A later `submit` begins anew.

runs/submissions/<campaign>/looks.jsonl      what each last job found: how many arrays, how far all had come
runs/submissions/<campaign>/gave-up.json     after how many rounds, and what the newest task said last
"""

import json
from pathlib import Path
from typing import Any

from ablations.cluster import campaign as campaigns
from ablations.cluster import submitted_arrays
from ablations.cluster.campaign import Campaign
from results import store
from results.store import evals
from results.store.paths import no_follow

Json = dict[str, Any]
ROUNDS = 5  # of shares without progress
LOOKS, GAVE_UP = "looks.jsonl", "gave-up.json"


def stalled(campaign: Campaign) -> bool:
    """Whether the last rounds of shares, the one that just ended included, all left the same results and checkpoints.

    A round is known by how many arrays there were: a last job that was killed looks twice at the same one.
    """
    looks = campaign.folder / LOOKS
    with open(looks, "a", opener=no_follow) as file:
        file.write(json.dumps({"arrays": campaigns.share_arrays(campaign), "progress": progress(campaign)}) + "\n")
    rounds = {line["arrays"]: line["progress"] for line in store.read_lines(looks) if "arrays" in line}
    recent = list(rounds.values())[-ROUNDS - 1 :]
    return len(recent) > ROUNDS and all(one == recent[0] for one in recent)


def progress(campaign: Campaign) -> list[int]:
    """Trials that are over, and their evals, and how far the others have come."""
    trials = [store.trial(campaign.runs, job.id, campaign.place().checkpoints) for job in campaign.jobs()]
    over = [trial for trial in trials if trial.state().over]
    known = sum(len(evals.all_names(trial)) for trial in over)
    return [len(over), known, sum(trial.step() for trial in trials if trial not in over)]


def give_up(campaign: Campaign) -> str:
    """Leaves word for `status`; what it says."""
    said = f"given up after {ROUNDS} rounds without progress"
    if line := last_line(campaign):
        said += f"; the newest task's log ends: {line}"
    store.write_json(campaign.folder / GAVE_UP, {"schema": store.SCHEMA, "when": store.now(), "said": said})
    return said


def last_line(campaign: Campaign) -> str:
    """Of the newest log of a share that has any; "" where none has."""
    shares = [each for each in submitted_arrays.of_campaign(campaign) if each.share]
    for each in sorted(shares, key=lambda each: each.written, reverse=True):
        if lines := each.lines():
            return lines[-1].strip()
    return ""


def begin_anew(campaign: Campaign) -> None:
    """From `submit`: what was given up is tried again, for as many rounds."""
    if (campaign.folder / GAVE_UP).exists():
        (campaign.folder / LOOKS).unlink(missing_ok=True)
        (campaign.folder / GAVE_UP).unlink(missing_ok=True)


def given_up(runs: Path, plan_name: str) -> str:
    """What the plan's newest submission said when it gave up; "" where it has not."""
    mine = [one for one in campaigns.campaigns(runs) if plan_name in one.plans and not one.cancelled]
    try:
        return str(store.read_json(mine[-1].folder / GAVE_UP).get("said", "")) if mine else ""
    except (FileNotFoundError, store.Broken):
        return ""
