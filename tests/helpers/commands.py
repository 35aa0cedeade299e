"""Recipes and scripts of users, whose trials are commands."""

import sys
from pathlib import Path
from textwrap import dedent

from designs import design

from ablations.jobs import Job, jobs
from ablations.planning.prepare import prepare
from ablations.planning.saved_plans import save_plan

SCRIPT = """
import json, os, sys, time
lr, seed, folder = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
state = os.path.join(folder, "state")
step = int(open(state).read()) if os.path.exists(state) else 0
for step in range(step + 1, 6):
    print("step", step)
    with open(os.path.join(folder, "metrics.jsonl"), "a") as curve:
        curve.write(json.dumps({"step": step, "loss": 1 / step}) + "\\n")
    with open(state + ".new", "w") as new:
        new.write(str(step))
    os.replace(state + ".new", state)
    time.sleep(float(os.environ.get("PAUSE", 0)))
print(f"METRIC score={lr + seed / 1000}")
"""
RECIPE = f"""
    description: A script.
    train: {sys.executable} train.py {{lr}} {{seed}} {{folder}}
    config: {{lr: 0.5}}
    metrics: {{score: {{better: higher}}}}
    seeds: 3
"""
STUDY = "{question: Which rate?, baseline: {lr: 0.5}, factors: {lr: [0.5, 0.25]}, margin: 0.01}"
ONE_ARM = "{question: Works it?, baseline: {lr: 0.5}, factors: {lr: [0.5]}}"


def planned(folder: Path, script: str = SCRIPT, recipe: str = RECIPE, study: str = STUDY) -> tuple[Path, list[Job]]:
    """Return a run directory with the plan of a study of a command, and the plan's jobs."""
    runs = folder / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(dedent(script))
    plan = prepare(design(folder, study, recipe), runs, None, code="0" * 12)
    save_plan(runs, plan)
    return runs, jobs([plan])
