"""The text of `ablate status`: a bar per study, a row per arm, then open and failed trials with advice."""

import contextlib
import shlex
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

from rich.console import Console
from rich.live import Live
from rich.text import Text

from ablations.execution.reopen import advice
from ablations.status.study_status import ArmStatus, QueuedTrial, Reason, RunningTrial, StudyStatus, is_settled
from commonfloor.messages import printable
from results.units import amount_text, duration_text, seeds_text
from slurm.queue import is_held

BAR = 24
REDRAW_SECONDS = 3.0
LEAST_LABEL = 10  # minimum width of the labels 'running', 'queued', ...
COLORS = {
    "finished": "green",
    "diverged": "magenta",
    "running": "cyan",
    "queued": "yellow",
    "unknown": "bold magenta",
    "interrupted": "yellow",
    "failed": "bold red",
    "blocked": "red",
    "broken": "bold red",
    "waits": "yellow",
    "stopped": "yellow",
    "missing": "dim",
}
WITHOUT_FAILURE = {"blocked": "blocked", "broken": "broken", "lost": "waits", "stopped": "stopped"}  # kind -> label
WHO_WRITES = {  # state of the tables, once a study's trials are done -> what writes them
    "awaited": "the submission's last job writes them",
    "pending": "give the same `ablate submit` again to write them",
}
AGAIN = "to continue: give the same `ablate submit` again"
Statuses = tuple[list[StudyStatus], list[ValueError]]  # of the plans that can be read, and why others cannot
SHOWN = {"missing": "not begun", "stopped": "saved by the race"}  # 'missing' would read as lost


def render(studies: Sequence[StudyStatus], where: str = "", damaged: Sequence[ValueError] = ()) -> Text:
    """Return the text of `ablate status`. where: the --runs option of its commands. damaged: errors to show first."""
    texts = [Text(printable(str(error)), "bold red") for error in damaged]
    for study in studies:
        entries = [*study.stages, *study.arms]
        lines = [headline(study), *arm_rows(study), *running_lines(entries)]
        reasons = Counter(queue_reason(trial) for entry in entries for trial in entry.now_queued)
        lines += [counted_line("queued", count, reason) for reason, count in reasons.items()]
        lines += [*failure_lines(study, where), *ended_lines(entries), *submission_lines(study)]
        texts.append(Text("\n").join(lines))
    unknown = dict.fromkeys(why for study in studies for why in (study.slurm, study.accounting) if why)
    texts += [Text(printable(why), "bold magenta") for why in unknown]
    return Text("\n\n").join(texts)


def headline(study: StudyStatus) -> Text:
    over = study.counts["finished"] + study.counts["diverged"]
    wanted = study.planned - study.counts["stopped"]
    filled = round(BAR * over / max(wanted, 1))
    bar = Text("#" * filled, "green") + Text("." * (BAR - filled), "dim")
    return Text.assemble((printable(study.plan), "bold"), "  [", bar, f"]  {over}/{wanted} done")


def arm_rows(study: StudyStatus) -> list[Text]:
    headers = {kind: SHOWN.get(kind, kind) for kind, count in study.counts.items() if count}
    labels = [printable(stage.arm) for stage in study.stages]
    for arm in study.arms:
        mark = "> " if arm.parent else ""  # starts from a stage
        labels.append(mark + printable(arm.arm))
    width = max(map(len, labels))
    rows = [Text("  ".join(["", " " * width, *headers.values()]), "dim")]
    for label, entry in zip(labels, [*study.stages, *study.arms], strict=True):
        row = Text(f"  {label:{width}}")
        for kind, header in headers.items():
            count = entry.counts[kind]
            row.append(f"  {count or '-':>{len(header)}}", COLORS[kind] if count else "dim")
        rows.append(row)
    return rows


def running_lines(entries: Sequence[ArmStatus]) -> list[Text]:
    rows = [running_cells(entry, trial) for entry in entries for trial in entry.now_running]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [labeled_line("running", "   ".join(map(str.ljust, row, widths)).rstrip()) for row in rows]


def running_cells(entry: ArmStatus, trial: RunningTrial) -> tuple[str, str, str, str]:
    step = f"step {trial.step:,}"
    if trial.steps is not None:
        step += f"/{trial.steps:,}"
    value = ""
    if trial.accuracy is not None:
        value = f"accuracy {trial.accuracy:.1%}"
    elif trial.value is not None:
        value = f"{printable(trial.metric)} {trial.value:g}"
    time_left = ""
    if trial.seconds_left is not None:
        time_left = f"about {duration_text(trial.seconds_left)} left"
    return f"{printable(entry.arm)} seed {trial.seed}", step, value, time_left


def queue_reason(trial: QueuedTrial) -> str:
    if trial.state == "RUNNING":
        return "waiting in a running job"
    if is_held(trial.reason):
        return f"held by SLURM ({trial.reason}): their next job or `ablate submit` releases them"
    if trial.reason:
        return f"{trial.state.lower()} ({trial.reason})"
    return trial.state.lower()


def failure_lines(study: StudyStatus, where: str) -> list[Text]:
    arms_by_reason: dict[Reason, list[str]] = defaultdict(list)
    trials: Counter[Reason] = Counter()
    for entry in (*study.stages, *study.arms):
        for cause in entry.causes:
            reason = (cause.cause, cause.line, cause.kind)
            arms_by_reason[reason].append(f"{printable(entry.arm)} {seeds_text(cause.seeds)}")
            trials[reason] += len(cause.seeds)
    lines = []
    for reason, arms in arms_by_reason.items():
        cause_text, traceback_line, kind = reason
        label = WITHOUT_FAILURE.get(kind, "failed")
        lines.append(counted_line(label, trials[reason], cause_text))
        if traceback_line:
            lines.append(indented_line(printable(traceback_line)))
        lines.append(indented_line("; ".join(arms)))
        if label in ("failed", "broken"):
            plan = shlex.quote(printable(study.plan))
            lines.append(indented_line(advice(kind, plan + where)))
    return lines


def ended_lines(entries: Iterable[ArmStatus]) -> list[Text]:
    counts: Counter[str] = Counter()
    resubmitted: list[bool] = []
    for entry in entries:
        counts.update(job.job for job in entry.ended)
        resubmitted += [job.followed for job in entry.ended]
    lines = [counted_line("ended", count, how, "yellow") for how, count in counts.items()]
    if any(resubmitted):
        exception = "" if all(resubmitted) else ", except cancelled ones"
        lines.append(indented_line(f"the submission's last job resubmits these{exception}"))
    if not all(resubmitted):
        lines.append(indented_line(AGAIN))
    return lines


def submission_lines(study: StudyStatus) -> list[Text]:
    lines = []
    if study.tables in WHO_WRITES:
        lines.append(labeled_line("tables", f"{study.tables}: {WHO_WRITES[study.tables]}", "yellow"))
    if study.given_up:
        lines.append(labeled_line("stopped", printable(study.given_up), "bold red"))
        lines.append(indented_line(AGAIN))
    return lines


def counted_line(label: str, count: int, text: str, color: str = "") -> Text:
    return labeled_line(label, f"{amount_text(count, 'trial')}: {printable(text)}", color)


def labeled_line(label: str, text: str, color: str = "") -> Text:
    return Text.assemble("  ", (f"{label:{LEAST_LABEL}}", color or COLORS[label]), text)


def indented_line(text: str) -> Text:
    return Text(" " * (LEAST_LABEL + 2) + text)


def show_live(read: Callable[[], Statuses], where: str) -> Statuses:
    """Show the status until all studies are settled or Ctrl-C is pressed, and return the last result of `read`."""
    console = Console()
    live = Live(
        console=console,
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,  # else it would draw through the stream that escapes control characters
        redirect_stderr=False,
        vertical_overflow="ellipsis",
    )
    drawing = live if console.is_terminal else contextlib.nullcontext()
    studies, damaged = read()
    shown = ""
    with contextlib.suppress(KeyboardInterrupt), drawing:
        while not is_settled(studies):
            text = render(studies, where, damaged)
            if console.is_terminal:
                live.update(text, refresh=True)
            elif text.plain != shown:
                print(text.plain, end="\n\n", flush=True)
            shown = text.plain
            time.sleep(REDRAW_SECONDS)
            studies, damaged = read()
    return studies, damaged
