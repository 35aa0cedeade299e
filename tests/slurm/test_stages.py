"""Pre-training and fine-tuning on a real SLURM: one submit, two dependent arrays, and a failed stage."""

import json
from pathlib import Path

import pytest
import synthetic
from small_study import PROFILE, RECIPE, SUBMIT, Ablate, results, run_here
from waits import await_report, await_results, close, queued, reopen

from ablations.execution import provenance
from ablations.planning import plan as planning
from ablations.planning.jobs import jobs as jobs_of
from ablations.study.design import Design
from ablations.study.reading import read_recipe, read_study
from results import store
from slurm.devcluster import Cluster

STUDY = """
question: What does pre-training bring?
stages: {pretrain: {steps: 400}}
baseline: {init_from: {stage: pretrain}}
factors: {lr: [2e-3, 1e-3]}
"""


@pytest.fixture(autouse=True)
def study(tmp_path: Path) -> None:
    """Write a study of two pre-trainings and four fine-tunings, its recipe and its profile."""
    (tmp_path / "s.yaml").write_text(STUDY)
    recipe = RECIPE.replace("STEPS", "100").replace("SEEDS", "2") + "stages: {finetune: {}}\n"
    (tmp_path / "r.yaml").write_text(recipe)
    (tmp_path / "p.yaml").write_text(PROFILE)


def test_fine_tuning_waits_for_pre_training(tmp_path: Path, ablate: Ablate, cluster: Cluster) -> None:
    close(cluster)  # so that the queue can be looked at
    assert "6 submitted in 2 arrays" in ablate(*SUBMIT).stdout
    jobs = dict(line.split() for line in queued(cluster, "%F %E"))
    before = [job for job, dependency in jobs.items() if dependency == "(null)"]
    assert len(before) == 1  # the pre-trainings; all others wait for them
    assert all(f"afterany:{before[0]}" in dependency for job, dependency in jobs.items() if job != before[0])
    view = json.loads(ablate("status", "s", "--recipe", "r.yaml", "--json").stdout)
    assert [(one["arm"], one["queued"]) for one in view["stages"]] == [("pretrain", 2)]
    reasons = {one["reason"] for arm in view["arms"] for one in arm["now_queued"]}
    assert reasons in ({"Dependency"}, {"PartitionDown"})  # slurmctld says which of the two it met last
    reopen(cluster)
    runs = tmp_path / "runs"
    await_results(runs, 6)
    assert results(runs) == run_here(tmp_path)
    assert all(len(store.Trial(path).attempts()) == 1 for path in (runs / "trials").iterdir())
    await_report(runs)


def test_failed_pre_training_blocks_what_starts_from_it(tmp_path: Path, ablate: Ablate) -> None:
    runs = tmp_path / "runs"
    design = Design(read_study(str(tmp_path / "s.yaml")), read_recipe(str(tmp_path / "r.yaml")), {})
    jobs = jobs_of([planning.build(design, [0, 1])])
    with synthetic.claimed(store.trial(runs, jobs[0].id)) as attempt:
        attempt.fail("RuntimeError: no such thing", "Traceback", provenance.source_digest())
    assert "1 failed" in (said := ablate(*SUBMIT).stdout)
    assert "2 blocked by their parents" in said
    await_results(runs, 3)
    await_report(runs)
    view = json.loads(ablate("status", "s", "--recipe", "r.yaml", "--json").stdout)
    assert (view["finished"], view["failed"], view["blocked"]) == (3, 1, 2)
    assert not any(store.trial(runs, job.id).attempts() for job in jobs if jobs[0].id in job.parents)
