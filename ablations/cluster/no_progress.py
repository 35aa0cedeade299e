"""Give up a campaign after rounds of shares that changed nothing on disk. `ablate submit` starts it again.

runs/submissions/<campaign>/looks.jsonl      what each last job found: number of arrays, progress of the trials
runs/submissions/<campaign>/gave-up.json     after how many rounds, and the last line of the newest log
"""

import json
from pathlib import Path

from ablations.cluster import campaign as campaigns
from ablations.cluster import submitted_arrays
from ablations.cluster.campaign import Campaign
from results import store
from results.store import eval_files
from results.store.paths import no_follow
from results.store.schemas import GaveUp, Round

ROUNDS = 5  # of shares without progress
LOOKS, GAVE_UP = "looks.jsonl", "gave-up.json"


def is_stalled(campaign: Campaign) -> bool:
    """Return whether the last ROUNDS rounds of shares left the same results and checkpoints.

    A round is identified by its number of arrays: a killed last job may record one round twice.
    """
    looks = campaign.folder / LOOKS
    with open(looks, "a", opener=no_follow) as file:
        file.write(
            json.dumps({"arrays": campaigns.count_share_arrays(campaign), "progress": progress(campaign)}) + "\n"
        )
    rounds = {line.arrays: line.progress for line in store.read_lines(looks, Round)}
    recent = list(rounds.values())[-ROUNDS - 1 :]
    return len(recent) > ROUNDS and all(one == recent[0] for one in recent)


def progress(campaign: Campaign) -> list[int]:
    """Return the progress as numbers: finished trials, their evals, and the steps of the others."""
    trials = [store.trial(campaign.runs, job.id, campaign.place().checkpoints) for job in campaign.jobs()]
    over = [trial for trial in trials if trial.state().over]
    known = sum(len(eval_files.all_names(trial)) for trial in over)
    return [len(over), known, sum(trial.step() for trial in trials if trial not in over)]


def give_up(campaign: Campaign) -> str:
    """Record for `status` that the campaign gave up; return the message."""
    said = f"given up after {ROUNDS} rounds without progress"
    if line := last_log_line(campaign):
        said += f"; the newest task's log ends with: {line}"
    store.write_json(campaign.folder / GAVE_UP, {"schema": store.SCHEMA, "when": store.now(), "said": said})
    return said


def last_log_line(campaign: Campaign) -> str:
    """Return the last line of a share's newest log; "" if all are empty."""
    shares = [each for each in submitted_arrays.tasks_of(campaign) if each.share]
    for each in sorted(shares, key=lambda each: each.written, reverse=True):
        if lines := each.lines():
            return lines[-1].strip()
    return ""


def reset(campaign: Campaign) -> None:
    """Forget that the campaign gave up, so that `submit` tries again for as many rounds."""
    if (campaign.folder / GAVE_UP).exists():
        (campaign.folder / LOOKS).unlink(missing_ok=True)
        (campaign.folder / GAVE_UP).unlink(missing_ok=True)


def give_up_message(runs: Path, plan_name: str) -> str:
    """Return the message of the plan's newest submission if it gave up; else ""."""
    mine = [one for one in campaigns.campaigns(runs) if plan_name in one.plans and not one.cancelled]
    try:
        return str(store.read(mine[-1].folder / GAVE_UP, GaveUp).said) if mine else ""
    except (FileNotFoundError, store.Broken):
        return ""
