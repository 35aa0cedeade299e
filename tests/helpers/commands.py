"""Recipes and scripts of users, whose trials are commands."""

import os
import sys
import threading
from pathlib import Path
from textwrap import dedent

from designs import design
from waits import wait_until

from ablations.execution.launch import Place
from ablations.execution.messages import Ended, job_line, read_event, read_job
from ablations.execution.worker import Worker
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


def served_until(runs: Path, job: Job, begun: str) -> Ended:
    """Train a job in this process, and ask it to stop once a file matches `begun`; return the worker's last event."""
    read, write = os.pipe()
    with os.fdopen(read) as events, os.fdopen(write, "w") as channel:
        worker = Worker(Place(runs, None, trainable=job.trainable), channel)
        thread = threading.Thread(target=worker.serve, args=[read_job(job_line(job))])
        thread.start()
        wait_until(lambda: any(runs.glob(begun)), begun)
        worker.stop_requested = True
        thread.join()
        channel.close()
        last = read_event(events.readlines()[-1])
    assert isinstance(last, Ended)
    return last
