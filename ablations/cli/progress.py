"""Show the progress of a run: bars on a terminal, otherwise a line for each trial when it ends."""

import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from ablations.execution import messages
from ablations.jobs import Job
from results import store, units
from results.safe_text import printable
from results.store.schemas.metrics import metric_by_name

METRIC = "test_accuracy"


def stderr_console() -> Console:
    """Return a console on standard error. It is no terminal for FORCE_COLOR alone: bars would fill a log."""
    return Console(stderr=True, force_terminal=sys.stderr.isatty())


class Bars(Progress):
    """Progress bars below another Rich renderable, such as a table."""

    above: RenderableType | None = None

    def get_renderables(self) -> Iterable[RenderableType]:
        if self.above is not None:
            yield self.above
        yield from super().get_renderables()


@dataclass
class Pace:
    """The speed of a run, measured on its first trial: seconds to the first step, per step and per trial."""

    began: dict[int, float] = field(default_factory=dict)  # slot -> time at which its trial began
    first: dict[int, tuple[int, float]] = field(default_factory=dict)  # slot -> step and time of the first report
    evaluating: dict[int, float] = field(default_factory=dict)  # slot -> time at which its running evaluation began
    evaluated: dict[int, float] = field(default_factory=dict)  # slot -> seconds of evaluations since the first report
    trial: float | None = None  # seconds that a trial takes, or None before they are known

    def begin(self, slot: int) -> None:
        self.began[slot] = time.monotonic()
        for known in (self.first, self.evaluating, self.evaluated):
            known.pop(slot, None)

    def speed_text(self, slot: int, job: Job, progress: messages.Progress) -> str:
        """Return the speed as text at the first report that determines it, else "". Records every report."""
        now, step = time.monotonic(), progress.step
        before, when = self.first.setdefault(slot, (step, now))
        self.evaluated[slot] = self.evaluated.get(slot, 0.0) + now - self.evaluating.pop(slot, now)
        if progress.evaluating:
            self.evaluating[slot] = now
        if self.trial is not None or step <= before or slot not in self.began:
            return ""
        seconds = (now - when - self.evaluated[slot]) / (step - before)
        start, training = when - self.began[slot], seconds * (job.config["steps"] - before)
        evaluation = training * job.evaluation
        self.trial = start + training + evaluation
        mostly = f", {units.duration_text(evaluation)} of it for evaluations" if evaluation > training else ""
        return (
            f"first step after {start:.1f} s, then {units.duration_text(seconds)} per step: "
            f"{units.duration_text(self.trial)} per trial{mostly}"
        )


class Live:
    """A context manager that shows the progress of a pool of workers, with the methods of pool.Display.

    total: number of trials to do. above: what a terminal shows above the bars. workers: number of concurrent trials.
    metric: the metric to show for each trial that ends.
    """

    def __init__(
        self,
        console: Console,
        total: int,
        above: RenderableType | None = None,
        workers: int = 1,
        metric: str = METRIC,
    ) -> None:
        self.console = console
        self.total = total
        self.workers = max(1, workers)
        self.metric = metric
        self.done = 0.0  # the number of trials that have ended
        self.partial: dict[int, float] = {}  # slot -> share of its trial done in this run
        self.began = time.monotonic()
        self.finished_here = 0.0
        self.progress = Bars(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[note]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            disable=not console.is_terminal,
        )
        self.progress.above = above
        self.all = self.progress.add_task("trials", total=max(total, 1), note="")
        self.lines: dict[int, TaskID] = {}
        self.pace = Pace()

    def __enter__(self) -> "Live":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def show_running(self, slot: int, job: Job, progress: messages.Progress | None) -> None:
        label = printable(job.name)
        steps = job.config["steps"]
        line = self.line(slot)
        if progress is None:
            self.pace.begin(slot)
            self.progress.reset(line, description=label, total=None, note="starting", visible=True)
            return
        told, step = self.pace.speed_text(slot, job, progress), progress.step
        self.partial[slot] = (step - self.pace.first[slot][0]) / steps
        if told:
            self.say(f"{label}: {told}{'' if self.console.is_terminal else self.time_left()}")
        note = f"step {step:,}/{steps:,}{'  evaluating' if progress.evaluating else ''}"
        note += f"  accuracy {progress.accuracy:.1%}" if progress.accuracy is not None else ""
        self.progress.update(line, description=label, total=steps, completed=step, note=note, visible=True)
        self.refresh()

    def show_compiling(self, slot: int, job: Job) -> None:
        self.progress.update(self.line(slot), note=(note := "compiling the first step"))
        if not self.console.is_terminal:
            self.say(f"{job.name}: {note}")

    def line(self, slot: int) -> TaskID:
        if slot not in self.lines:
            self.lines[slot] = self.progress.add_task("", note="")
        return self.lines[slot]

    def show_idle(self, slot: int) -> None:
        self.partial.pop(slot, None)
        self.pace.first.pop(slot, None)
        if slot in self.lines:
            self.progress.update(self.lines[slot], visible=False)

    def show_end(self, job: Job, end: messages.Ended) -> None:
        """Count a trial that ended. Print a line if it failed, is blocked or, without bars, ended in this run."""
        self.done += 1
        self.finished_here += not end.elsewhere
        what = printable(job.name)
        if end.kind in ("failed", "blocked"):
            self.console.print(Text.assemble((end.kind, "red"), f" {what}: {printable(end.cause)}"), soft_wrap=True)
        elif not self.console.is_terminal and not end.elsewhere:
            metric = metric_by_name(self.metric, job.config.get("objective", ""))
            value = end.metrics.get(self.metric)
            shown: str = end.kind
            if value is not None:
                shown = f"{metric.title} {value:.1%}" if metric.is_accuracy else f"{metric.title} {value:g}"
            self.say(f"[{self.done:.0f}/{self.total}] {what}: {shown}, {end.seconds:.1f} s{self.time_left()}")
        self.refresh()

    def say(self, text: str) -> None:
        self.console.print(printable(text, "\n"), highlight=False, markup=False, soft_wrap=True)

    def print_result(self, text: str) -> None:
        """Print text to standard output. On a terminal with bars, print it above them."""
        if self.console.is_terminal and sys.stdout.isatty():
            self.say(text)
        else:
            print(text, flush=True)

    def time_left(self) -> str:
        """Return the time left as the end of a message, as in ", about 5 min 40 s left".

        Returns "" if the time is unknown or no trial is left.
        """
        share = self.finished_here + sum(self.partial.values())
        remaining = self.total - self.done - sum(self.partial.values())
        if remaining <= 0 or (share < 0.5 and self.pace.trial is None):
            return ""
        from_pace = (self.pace.trial or 0.0) / self.workers * remaining
        seconds = from_pace if share < 0.5 else (time.monotonic() - self.began) / share * remaining
        return f", about {units.duration_text(seconds)} left"

    def refresh(self) -> None:
        self.progress.update(
            self.all,
            completed=self.done + sum(self.partial.values()),
            note=f"{self.done:.0f} done, {self.total - self.done:.0f} to do{self.time_left()}",
        )


class GrowingTable:
    """A table of the test accuracies of finished trials, which Rich can draw."""

    def __init__(self, jobs: Sequence[Job], runs: Path) -> None:
        self.arms = list(dict.fromkeys(job.arm for job in jobs))
        self.seeds = sorted({job.config["seed"] for job in jobs})
        self.runs = runs
        self.accuracies: dict[tuple[str, int], float] = {}

    def show_end(self, job: Job) -> str:
        """Fill in the accuracy of a trial that ended. Returns no text to print."""
        result = store.trial(self.runs, job.id).state().result
        if result is not None and (accuracy := result.metrics.get(METRIC)) is not None:
            self.accuracies[job.arm, job.config["seed"]] = accuracy
        return ""

    def __rich__(self) -> Table:
        metric = metric_by_name(METRIC)
        table = Table("arm", title=f"{metric.title} in {metric.unit}", title_justify="left")
        for seed in self.seeds:
            table.add_column(f"seed {seed}", justify="right", min_width=6)
        table.add_column("mean", justify="right", min_width=6)
        for arm in self.arms:
            known = [self.accuracies.get((arm, seed)) for seed in self.seeds]
            there = [value for value in known if value is not None]
            mean = metric.value_text(fmean(there) if there else None)
            table.add_row(escape(printable(arm)), *map(metric.value_text, known), mean)
        return table
