"""The number of SLURM commands of a submission, as in docs/how-to/for-admins.md."""

import subprocess
from collections import Counter
from pathlib import Path

from small_study import SUBMIT, Wrap, command, on, results, write

from ablations.cluster import campaign as campaigns
from slurm.devcluster import Cluster, until

COMMANDS = ("sbatch", "squeue", "scontrol", "scancel", "sacct", "sacctmgr", "sinfo")
PROFILE = "{partition: main, gpus: 0, cpus: 1, memory: 2G, time: 5, task_minutes: 0.001, parallel: 1}"


def test_task_asks_slurm_once(tmp_path: Path, cluster: Cluster, wrap: Wrap) -> None:
    """Each of four consecutive tasks calls squeue once; the two last jobs call little more."""
    calls = tmp_path / "calls"
    calls.mkdir()
    for name in COMMANDS:
        wrap(name, f"echo {name} >> {calls}/${{ABLATE_JOB_BEGAN:-outside}}; REAL")
    write(tmp_path, steps=20, profile=PROFILE, seeds=2)
    subprocess.run(command(*SUBMIT), cwd=tmp_path, env=on(cluster.environment), check=True, timeout=200)
    runs = tmp_path / "runs"
    until(lambda: (runs / "report.html").exists(), "the end", 400)
    until(lambda: not cluster.run("squeue", "--noheader").stdout.strip(), "an empty queue", 60)
    assert len(results(runs)) == 4
    asked = {path.name: Counter(path.read_text().split()) for path in calls.iterdir()}
    submitting, tasks = asked.pop("outside"), sorted(asked.values(), key=Counter.total)
    print("submit:", dict(submitting), "jobs:", [dict(task) for task in tasks])
    assert tasks[:3] == [{"squeue": 1}] * 3
    (campaign,) = campaigns.campaigns(runs)
    functions = sorted(intent.function for _, intent in campaigns.read_intents(campaign.folder))
    assert functions == sorted([campaigns.SHARE, campaigns.LAST, campaigns.WATCH])
    assert len(tasks) == 5
    assert tasks[-1].total() <= 10
    assert submitting["sbatch"] == 3
