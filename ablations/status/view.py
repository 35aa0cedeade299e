"""The text of `ablate status`: a bar per study, a row per arm, then open and failed trials with advice."""

import contextlib
import shlex
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.text import Text

from ablations.execution.retry import advice
from ablations.status.study_status import TRIAL_KINDS, ArmStatus, QueuedTrial, StudyStatus, is_settled
from results.safe_text import printable
from results.units import amount_text, duration_text
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
SHOWN = {"missing": "not begun"}  # 'missing' would read as lost


def render(views: Sequence[StudyStatus], where: str = "", damaged: Sequence[ValueError] = ()) -> Text:
    """Return the text of `ablate status`. where: the --runs option of its commands. damaged: errors to show first."""
    texts = [Text(printable(str(error)), "bold red") for error in damaged]
    for view in views:
        entries = [*view.stages, *view.arms]
        lines = [headline(view), *arm_rows(view), *running_lines(entries), *queued_lines(entries)]
        lines += [*failure_lines(view, where), *ended_lines(entries), *submission_lines(view)]
        texts.append(Text("\n").join(lines))
    silences = dict.fromkeys(one for view in views for one in (view.slurm, view.accounting) if one)
    return Text("\n\n").join(texts).append("".join(f"\n\n{printable(one)}" for one in silences), style="bold magenta")


def headline(view: StudyStatus) -> Text:
    over = view.counts["finished"] + view.counts["diverged"]
    filled = round(BAR * over / view.planned) if view.planned else 0
    bar = Text("#" * filled, "green") + Text("." * (BAR - filled), "dim")
    return Text.assemble((printable(view.plan), "bold"), "  [", bar, f"]  {over}/{view.planned} done")


def arm_rows(view: StudyStatus) -> list[Text]:
    """Return a header, then a row for each stage and arm with the number of its trials of each kind."""
    kinds = [kind for kind in TRIAL_KINDS if view.counts[kind]]
    named = [(arm, printable(arm.arm)) for arm in view.stages]
    named += [(arm, ("> " if arm.parent else "") + printable(arm.arm)) for arm in view.arms]  # >: starts from a stage
    width = max(len(name) for _, name in named)
    names = [SHOWN.get(kind, kind) for kind in kinds]
    lines = [Text(f"  {'':{width}}" + "".join(f"  {name}" for name in names), "dim")]
    for arm, label in named:
        line = Text(f"  {label:{width}}")
        for kind, name in zip(kinds, names, strict=True):
            line.append(f"  {arm.counts[kind] or '-':>{len(name)}}", COLORS[kind] if arm.counts[kind] else "dim")
        lines.append(line)
    return lines


def running_lines(arms: Sequence[ArmStatus]) -> list[Text]:
    cells = [
        (
            f"{printable(arm.arm)} seed {one.seed}",
            f"step {one.step:,}/{one.steps:,}",
            "" if one.accuracy is None else f"accuracy {one.accuracy:.1%}",
            "" if one.seconds_left is None else f"about {duration_text(one.seconds_left)} left",
        )
        for arm in arms
        for one in arm.now_running
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    aligned = ("   ".join(map(str.ljust, line, widths)).rstrip() for line in cells)
    return [labeled_line("running", line) for line in aligned]


def queued_lines(arms: Sequence[ArmStatus]) -> list[Text]:
    reasons = Counter(queue_reason(one) for arm in arms for one in arm.now_queued)
    return [
        labeled_line("queued", f"{amount_text(count, 'trial')}: {printable(reason)}")
        for reason, count in reasons.items()
    ]


def queue_reason(one: QueuedTrial) -> str:
    if one.state == "RUNNING":
        return "waiting in a running job"
    if is_held(one.reason):
        return f"held by SLURM ({one.reason}): their next job or `ablate submit` releases them"
    return f"{one.state.lower()} ({one.reason})" if one.reason else one.state.lower()


def failure_lines(view: StudyStatus, where: str) -> list[Text]:
    """Return lines about each cause that ended or stopped trials, with arms, seeds and advice."""
    grouped: dict[tuple[str, str, str], list[tuple[str, list[int]]]] = defaultdict(list)
    for arm in [*view.stages, *view.arms]:
        for one in arm.causes:
            grouped[one.cause, one.line, one.kind].append((arm.arm, one.seeds))
    lines = []
    for (cause, line, kind), places in grouped.items():
        label = WITHOUT_FAILURE.get(kind, "failed")
        lines.append(
            labeled_line(label, f"{amount_text(sum(len(seeds) for _, seeds in places), 'trial')}: {printable(cause)}")
        )
        lines += [indented_line(printable(line))] if line else []
        named = (f"{printable(arm)} seed{'s'[: len(seeds) > 1]} {', '.join(map(str, seeds))}" for arm, seeds in places)
        lines.append(indented_line("; ".join(named)))
        plan = shlex.quote(printable(view.plan))
        lines += [indented_line(advice(kind, plan + where))] if label in ("failed", "broken") else []
    return lines


def ended_lines(arms: Sequence[ArmStatus]) -> list[Text]:
    """Return lines about jobs that ended before their trials were done, and how to submit the trials again."""
    found = [one for arm in arms for one in arm.ended]
    lines = [
        labeled_line("ended", f"{amount_text(count, 'trial')}: {printable(job)}", "yellow")
        for job, count in Counter(one.job for one in found).items()
    ]
    followed = [one.followed for one in found]
    if any(followed):
        but = "" if all(followed) else ", except cancelled ones"
        lines.append(indented_line(f"the submission's last job resubmits these{but}"))
    if not all(followed):
        lines.append(indented_line(AGAIN))
    return lines


def submission_lines(view: StudyStatus) -> list[Text]:
    lines = []
    if view.tables in WHO_WRITES:
        lines.append(labeled_line("tables", f"{view.tables}: {WHO_WRITES[view.tables]}", "yellow"))
    if view.given_up:
        lines.append(labeled_line("stopped", printable(view.given_up), "bold red"))
        lines.append(indented_line(AGAIN))
    return lines


def labeled_line(label: str, text: str, color: str = "") -> Text:
    return Text.assemble("  ", (f"{label:{LEAST_LABEL}}", color or COLORS[label]), text)


def indented_line(text: str) -> Text:
    return Text(" " * (LEAST_LABEL + 2) + text)


def show_live(read: Callable[[], Statuses], where: str) -> Statuses:
    """Show the status until all studies are settled or Ctrl-C is pressed, and return the last result of `read`.

    Redraws a terminal, or prints at each change.
    """
    from rich.live import Live  # imported here because only this function needs it

    console = Console()
    views, damaged = read()
    shown = ""
    live = Live(console=console, auto_refresh=False, transient=True, vertical_overflow="ellipsis")
    with contextlib.suppress(KeyboardInterrupt), live if console.is_terminal else contextlib.nullcontext():
        while not is_settled(views):
            text = render(views, where, damaged)
            if console.is_terminal:
                live.update(text, refresh=True)
            elif text.plain != shown:
                print(text.plain, end="\n\n", flush=True)
            shown = text.plain
            time.sleep(REDRAW_SECONDS)
            views, damaged = read()
    return views, damaged
