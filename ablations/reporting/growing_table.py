"""A table that is filled in while trials run, with a row for each arm and a column for each seed."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from rich.table import Table

from ablations.planning.jobs import Job
from results import store, units

METRIC = "test_accuracy"


class GrowingTable:
    """A table of the test accuracies of finished trials, which Rich can draw."""

    def __init__(self, jobs: Sequence[Job], runs: Path) -> None:
        self.arms = list(dict.fromkeys(job.arm for job in jobs))
        self.seeds = sorted({job.config["seed"] for job in jobs})
        self.runs = runs
        self.accuracies: dict[tuple[str, int], float] = {}

    def over(self, job: Job) -> None:
        result = store.trial(self.runs, job.id).state().result
        if result is not None and (accuracy := result.metrics.get(METRIC)) is not None:
            self.accuracies[job.arm, job.config["seed"]] = accuracy

    def __rich__(self) -> Table:
        unit = units.unit(METRIC)
        table = Table("arm", title=f"{units.metric_name(METRIC)} in {unit.of_value}", title_justify="left")
        for seed in self.seeds:
            table.add_column(f"seed {seed}", justify="right", min_width=6)
        table.add_column("mean", justify="right", min_width=6)
        for arm in self.arms:
            known = [self.accuracies.get((arm, seed)) for seed in self.seeds]
            there = [value for value in known if value is not None]
            table.add_row(arm, *map(unit.value, known), unit.value(fmean(there)) if there else "")
        return table
