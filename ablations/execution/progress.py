"""Show the progress of a run: bars on a terminal, otherwise a line for each trial when it ends."""

import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from ablations.execution import messages
from ablations.jobs import Job
from commonfloor.messages import printable
from results import store, units
from results.store.schemas.metrics import metric_by_name


def stderr_console() -> Console:
    """Return a console on standard error. It is no terminal for FORCE_COLOR alone: bars would fill a log."""
    return Console(stderr=True, force_terminal=sys.stderr.isatty())


class Bars(Progress):
    above: RenderableType | None = None

    def get_renderables(self) -> Iterable[RenderableType]:
        if self.above is not None:
            yield self.above
        yield from super().get_renderables()


@dataclass
class TrialClock:
    began: float | None = None  # None if the trial ran before this process looked
    first_step: int | None = None  # the step of the first report
    first_report: float = 0.0
    evaluation_began: float | None = None  # of the running evaluation
    evaluation_seconds: float = 0.0  # of all evaluations since the first report
    fraction_done: float = 0.0  # in this run

    def record(self, progress: messages.Progress, steps: int | None) -> None:
        now = time.monotonic()
        if self.first_step is None:
            self.first_step = progress.step
            self.first_report = now
        if self.evaluation_began is not None:
            self.evaluation_seconds += now - self.evaluation_began
        self.evaluation_began = now if progress.evaluating else None
        if steps:
            self.fraction_done = (progress.step - self.first_step) / steps


@dataclass(frozen=True)
class Speed:
    """The speed of a run, measured on its first trial, in seconds."""

    start: float  # to the end of the first step
    step: float
    training: float  # of a trial
    evaluation: float  # of a trial

    @property
    def trial(self) -> float:
        return self.start + self.training + self.evaluation

    def __str__(self) -> str:
        steps = f"first step after {self.start:.1f} s, then {units.duration_text(self.step)} per step"
        trial = f"{units.duration_text(self.trial)} per trial"
        if self.evaluation > self.training:
            trial += f", {units.duration_text(self.evaluation)} of it for evaluations"
        return f"{steps}: {trial}"


def measured_speed(trial: TrialClock, step: int, job: Job) -> Speed | None:
    """Return the speed at a trial's newest report, or None if it does not determine it. step: the reported step."""
    if trial.began is None or trial.first_step is None or step <= trial.first_step or job.steps is None:
        return None
    seconds = time.monotonic() - trial.first_report - trial.evaluation_seconds
    per_step = seconds / (step - trial.first_step)
    training = per_step * (job.steps - trial.first_step)
    return Speed(trial.first_report - trial.began, per_step, training, training * job.evaluation)


class Live:
    """A context manager that shows the progress of a pool of workers. above: what a terminal shows above the bars."""

    def __init__(self, console: Console, total: int, above: RenderableType | None = None, workers: int = 1) -> None:
        self.console = console
        self.has_bars = console.is_terminal
        self.total = total
        self.workers = max(1, workers)
        self.began = time.monotonic()
        self.ended = 0
        self.ended_here = 0  # in this run
        self.running: dict[int, TrialClock] = {}  # by slot
        self.speed: Speed | None = None
        self.progress = Bars(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[note]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            disable=not self.has_bars,
        )
        self.progress.above = above
        self.all_trials = self.progress.add_task("trials", total=max(total, 1), note="")
        self.bars: dict[int, TaskID] = {}  # by slot

    def __enter__(self) -> "Live":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def show_running(self, slot: int, job: Job, progress: messages.Progress | None) -> None:
        label = printable(job.name)
        bar = self.bar(slot)
        if progress is None:
            self.running[slot] = TrialClock(began=time.monotonic())
            self.progress.reset(bar, description=label, total=None, note="starting", visible=True)
            return
        steps = job.steps
        trial = self.running.setdefault(slot, TrialClock())
        trial.record(progress, steps)
        if self.speed is None:
            self.speed = measured_speed(trial, progress.step, job)
            if self.speed:
                time_left = "" if self.has_bars else self.time_left()
                self.say(f"{label}: {self.speed}{time_left}")
        note = f"step {progress.step:,}"
        if steps:
            note += f"/{steps:,}"
        if progress.evaluating:
            note += "  evaluating"
        if progress.value is not None:
            note += f"  {metric_text(job, job.selection_metric, progress.value)}"
        self.progress.update(bar, description=label, total=steps, completed=progress.step, note=note, visible=True)
        self.refresh()

    def show_compiling(self, slot: int, job: Job) -> None:
        note = "compiling the first step"
        self.progress.update(self.bar(slot), note=note)
        if not self.has_bars:
            self.say(f"{job.name}: {note}")

    def bar(self, slot: int) -> TaskID:
        if slot not in self.bars:
            self.bars[slot] = self.progress.add_task("", note="")
        return self.bars[slot]

    def show_idle(self, slot: int) -> None:
        self.running.pop(slot, None)
        if slot in self.bars:
            self.progress.update(self.bars[slot], visible=False)

    def show_end(self, job: Job, end: messages.Ended) -> None:
        """Count a trial that ended. Print a line if it failed, is blocked or, without bars, ended in this run."""
        self.ended += 1
        if not end.elsewhere:
            self.ended_here += 1
        name = printable(job.name)
        if end.kind in ("failed", "blocked"):
            self.console.print(Text.assemble((end.kind, "red"), f" {name}: {printable(end.cause)}"), soft_wrap=True)
        elif not self.has_bars and not end.elsewhere:
            outcome: str = end.kind
            value = end.metrics.get(job.metric)
            if value is not None:
                outcome = metric_text(job, job.metric, value)
            self.say(f"[{self.ended}/{self.total}] {name}: {outcome}, {end.seconds:.1f} s{self.time_left()}")
        self.refresh()

    def say(self, text: str) -> None:
        self.console.print(printable(text, "\n"), highlight=False, markup=False, soft_wrap=True)

    def print_result(self, text: str) -> None:
        if self.has_bars and sys.stdout.isatty():
            self.say(text)
        else:
            print(text, flush=True)

    def time_left(self) -> str:
        """Return text such as ", about 5 min 40 s left", or "". Until half a trial is done, it follows from `speed`."""
        partial = self.running_fraction()
        done_here = self.ended_here + partial
        remaining = self.total - self.ended - partial
        if remaining <= 0:
            return ""
        if done_here >= 0.5:
            seconds = (time.monotonic() - self.began) / done_here * remaining
        elif self.speed:
            seconds = self.speed.trial / self.workers * remaining
        else:
            return ""
        return f", about {units.duration_text(max(1.0, seconds))} left"

    def running_fraction(self) -> float:
        return sum(trial.fraction_done for trial in self.running.values())

    def refresh(self) -> None:
        self.progress.update(
            self.all_trials,
            completed=self.ended + self.running_fraction(),
            note=f"{self.ended} done, {self.total - self.ended} to do{self.time_left()}",
        )


def metric_text(job: Job, name: str, value: float) -> str:
    metric = metric_by_name(name, job.config.get("objective", ""))
    number = f"{value:.1%}" if metric.is_accuracy else f"{value:g}"
    return f"{metric.title} {number}"


class GrowingTable:
    def __init__(self, jobs: Sequence[Job], runs: Path) -> None:
        self.arms = list(dict.fromkeys(job.arm for job in jobs))
        self.seeds = sorted({job.config["seed"] for job in jobs})
        self.runs = runs
        self.metric = metric_by_name(jobs[0].metric)
        self.values: dict[tuple[str, int], float] = {}

    def show_end(self, job: Job) -> str:
        result = store.trial(self.runs, job.id).state().result
        value = result.metrics.get(self.metric.name) if result else None
        if value is not None:
            self.values[job.arm, job.config["seed"]] = value
        return ""

    def __rich__(self) -> Table:
        metric = self.metric
        table = Table("arm", title=f"{metric.title} in {metric.unit}", title_justify="left")
        for seed in self.seeds:
            table.add_column(f"seed {seed}", justify="right", min_width=6)
        table.add_column("mean", justify="right", min_width=6)
        for arm in self.arms:
            values = [self.values.get((arm, seed)) for seed in self.seeds]
            measured = [value for value in values if value is not None]
            mean = fmean(measured) if measured else None
            table.add_row(escape(printable(arm)), *map(metric.value_text, [*values, mean]))
        return table
