"""Give up a campaign whose rounds (ablations.cluster.rounds) change nothing on disk. `ablate submit` starts it again.

runs/submissions/<campaign>/looks.jsonl      a line per last job: number of arrays, progress of the trials
runs/submissions/<campaign>/gave-up.json     when and why, with the last line of the newest log
"""

import json
from pathlib import Path

from ablations.cluster import campaign as campaigns
from ablations.cluster import rounds
from ablations.cluster.campaign import Campaign
from ablations.execution.attempts import read_or_none
from results import store
from results.store import eval_files
from results.store.files import open_no_follow
from results.store.schemas import GaveUp, Round

ROUNDS = 5  # rounds without progress before a campaign gives up
LOOKS, GAVE_UP = "looks.jsonl", "gave-up.json"


def is_stalled(campaign: Campaign) -> bool:
    """Return whether the last ROUNDS rounds changed no result, eval or step. Records the current progress first.

    Records made at an equal number of job arrays count as one round, and the newest one counts. A last job
    that is killed may leave more than one record of its round.
    """
    looks = campaign.folder / LOOKS
    arrays = len(rounds.task_arrays(campaign))
    with open(looks, "a", opener=open_no_follow) as file:
        file.write(json.dumps({"arrays": arrays, "progress": progress(campaign)}) + "\n")
    found = {line.arrays: line.progress for line in store.read_lines(looks, Round)}
    recent = list(found.values())[-ROUNDS - 1 :]
    return len(recent) > ROUNDS and all(one == recent[0] for one in recent)


def progress(campaign: Campaign) -> list[int]:
    """Return three counts: trials that are over, their computed or failed evals, and the steps of all other trials."""
    trials = [store.trial(campaign.runs, job.id, campaign.place.checkpoints) for job in campaign.jobs()]
    over = [trial for trial in trials if trial.state().is_over]
    known = sum(len(eval_files.eval_names(trial)) for trial in over)
    return [len(over), known, sum(trial.latest_step() for trial in trials if trial not in over)]


def give_up(campaign: Campaign) -> str:
    """Record on disk that the campaign gave up, and return the message that `ablate status` will show."""
    said = f"given up after {ROUNDS} rounds without progress"
    newest = reversed(rounds.task_arrays(campaign))
    if line := next((lines[-1].strip() for array in newest if (lines := array.log_lines())), ""):
        said += f"; the newest task's log ends with: {line}"
    store.write_json(campaign.folder / GAVE_UP, {"schema": store.SCHEMA, "when": store.timestamp(), "said": said})
    return said


def reset(campaign: Campaign) -> None:
    """Give a campaign another ROUNDS rounds if it gave up."""
    if (campaign.folder / GAVE_UP).exists():
        (campaign.folder / LOOKS).unlink(missing_ok=True)
        (campaign.folder / GAVE_UP).unlink(missing_ok=True)


def give_up_message(runs: Path, plan_name: str) -> str:
    """Return why the newest uncancelled campaign of a plan gave up; "" if it did not."""
    mine = [one for one in campaigns.campaigns(runs) if plan_name in one.plans and not one.cancelled]
    found = read_or_none(mine[-1].folder / GAVE_UP, GaveUp) if mine else None
    return found.said if found else ""
