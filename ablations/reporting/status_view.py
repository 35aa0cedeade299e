"""`ablate status` for a person: a bar a study, a row an arm, then what runs, waits, failed or ended, and what helps."""

import shlex
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from rich.text import Text

from ablations.execution.retry import advice
from ablations.reporting.console import PlainConsole
from ablations.reporting.durations import clock
from ablations.reporting.status import KINDS
from results.safe_text import plain
from slurm.queries.queue import is_held

Json = dict[str, Any]
BAR = 24
REDRAW_SECONDS = 3.0
LEAST_LABEL = 10  # characters of 'running', 'queued', ... with the blanks after them
COLOURS = {
    "finished": "green",
    "diverged": "magenta",
    "running": "cyan",
    "queued": "yellow",
    "unknown": "bold magenta",
    "interrupted": "yellow",
    "failed": "bold red",
    "blocked": "red",
    "waits": "yellow",
    "stopped": "yellow",
    "missing": "dim",
}
WITHOUT_FAILURE = {  # kinds of causes that are no failure of the trial's own
    "blocked": "blocked",
    "lost": "waits",
    "stopped": "stopped",
}
SHOWN = {"missing": "not begun"}  # what a reader takes for lost otherwise


def board(views: Sequence[Json], where: str = "") -> Text:
    """All studies. `where`: what the commands need to find the same run directory, ' --runs DIR'."""
    text = Text("\n\n").join(study(view, where) for view in views)
    silences = dict.fromkeys(view[key] for view in views for key in ("slurm", "accounting") if view[key])
    return text.append("".join(f"\n\n{silence}" for silence in silences), style="bold magenta")


def study(view: Json, where: str) -> Text:
    entries = [*view["stages"], *view["arms"]]
    blocks = [headline(view), *rows(view), *running(entries), *queued(entries)]
    return Text("\n").join([*blocks, *failed(view, where), *ended(view), *tables(view), *given_up(view)])


def headline(view: Json) -> Text:
    """The study and a bar of its trials that are over."""
    over = view["finished"] + view["diverged"]
    filled = round(BAR * over / view["planned"]) if view["planned"] else 0
    bar = Text("#" * filled, "green") + Text("." * (BAR - filled), "dim")
    return Text.assemble((plain(view["plan"]), "bold"), "  [", bar, f"]  {over}/{view['planned']} over")


def rows(view: Json) -> list[Text]:
    """A header and an aligned row an arm, with the kinds of which there are any."""
    kinds = [kind for kind in KINDS if view[kind]]
    named = [(arm, plain(arm["arm"])) for arm in view["stages"]]
    named += [
        (arm, ("> " if arm.get("parent") else "") + plain(arm["arm"])) for arm in view["arms"]
    ]  # after its parent
    width = max(len(name) for _, name in named)
    names = [SHOWN.get(kind, kind) for kind in kinds]
    lines = [Text(f"  {'':{width}}" + "".join(f"  {name}" for name in names), "dim")]
    for arm, label in named:
        line = Text(f"  {label:{width}}")
        for kind, name in zip(kinds, names, strict=True):
            line.append(f"  {arm[kind] or '-':>{len(name)}}", COLOURS[kind] if arm[kind] else "dim")
        lines.append(line)
    return lines


def running(arms: Sequence[Json]) -> list[Text]:
    """A line a running trial, in columns: step, accuracy so far, time left."""
    found = [(arm["arm"], one) for arm in arms for one in arm["now_running"]]
    cells = [
        (
            f"{plain(arm)} seed {one['seed']}",
            f"step {one['step']:,}/{one['steps']:,}",
            "" if one["accuracy"] is None else f"accuracy {one['accuracy']:.1%}",
            "" if one["seconds_left"] is None else f"about {clock(one['seconds_left'])} left",
        )
        for arm, one in found
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    aligned = ("   ".join(map(str.ljust, line, widths)).rstrip() for line in cells)
    return [labelled("running", line) for line in aligned]


def queued(arms: Sequence[Json]) -> list[Text]:
    """How many wait for what, in SLURM's words."""
    reasons = Counter(waiting(one) for arm in arms for one in arm["now_queued"])
    return [labelled("queued", f"{trials(count)}: {plain(reason)}") for reason, count in reasons.items()]


def waiting(one: Json) -> str:
    if one["state"] == "RUNNING":
        return "their turn in a job that runs"
    if is_held(one["reason"]):
        return f"held by SLURM ({one['reason']}): released by the next of their jobs, or by `ablate submit`"
    return f"{one['state'].lower()} ({one['reason']})" if one["reason"] else str(one["state"].lower())


def failed(view: Json, where: str) -> list[Text]:
    """Grouped by cause: how many, the traceback's last line, the arms, and the command that helps."""
    grouped: dict[tuple[str, str, str], list[tuple[str, list[int]]]] = defaultdict(list)
    for arm in [*view["stages"], *view["arms"]]:
        for one in arm["causes"]:
            grouped[one["cause"], one["line"], one["kind"]].append((arm["arm"], one["seeds"]))
    lines = []
    for (cause, line, kind), places in grouped.items():
        label = WITHOUT_FAILURE.get(kind, "failed")
        lines.append(labelled(label, f"{trials(sum(len(seeds) for _, seeds in places))}: {plain(cause)}"))
        lines += [beneath(plain(line))] if line else []
        named = (f"{plain(arm)} seed{'s'[: len(seeds) > 1]} {', '.join(map(str, seeds))}" for arm, seeds in places)
        lines.append(beneath("; ".join(named)))
        lines += [beneath(advice(kind, quoted(view["plan"]) + where))] if label == "failed" else []
    return lines


def ended(view: Json) -> list[Text]:
    """Trials that were submitted and now neither are over nor wait: what became of their jobs."""
    found = [one for arm in [*view["stages"], *view["arms"]] for one in arm["ended"]]
    lines = [
        labelled("ended", f"{trials(count)}: {plain(job)}", "yellow")
        for job, count in Counter(one["job"] for one in found).items()
    ]
    followed = [one["followed"] for one in found]
    if any(followed):
        what = "these up" if all(followed) else "up what nobody cancelled"
        lines.append(beneath(f"the submission's last job takes {what}"))
    if not all(followed):
        lines.append(beneath("to go on: the same `ablate submit` again"))
    return lines


def tables(view: Json) -> list[Text]:
    """Of a study whose trials are over, who writes the tables and the report that are not there."""
    match view["tables"]:
        case "awaited":
            return [labelled("tables", "awaited: the submission's last job writes them", "yellow")]
        case "pending":
            return [labelled("tables", "pending: the same `ablate submit` again writes them", "yellow")]
        case _:
            return []


def given_up(view: Json) -> list[Text]:
    """Where nobody goes on by himself any more: why, and what helps."""
    if not view["given_up"]:
        return []
    return [
        labelled("stopped", plain(view["given_up"]), "bold red"),
        beneath("to go on: the same `ablate submit` again"),
    ]


def labelled(label: str, text: str, colour: str = "") -> Text:
    return Text.assemble("  ", (f"{label:{LEAST_LABEL}}", colour or COLOURS[label]), text)


def beneath(text: str) -> Text:
    return Text(" " * (LEAST_LABEL + 2) + text)


def trials(count: int) -> str:
    return f"{count} trial{'s'[: count != 1]}"


def quoted(name: str) -> str:
    """As a shell takes it."""
    return shlex.quote(plain(name))


# -- on a screen -------------------------------------------------------------------------------------------------------


def show(text: Text) -> None:
    """Once, in colours where standard output is a terminal."""
    PlainConsole().print(text, soft_wrap=True, highlight=False)


def watch(look: Callable[[], tuple[Text, bool]], seconds: float = REDRAW_SECONDS) -> None:
    """Looks again and again until `look` says that nothing will change; off a terminal it prints what did change."""
    console = PlainConsole()
    if not console.is_terminal:
        return follow(look, seconds)
    from rich.live import Live  # late: a single look needs none

    text, settled = look()
    with Live(text, console=console, auto_refresh=False, transient=True, vertical_overflow="ellipsis") as live:
        while not settled:
            live.update(text, refresh=True)
            time.sleep(seconds)
            text, settled = look()
    show(text)


def follow(look: Callable[[], tuple[Text, bool]], seconds: float) -> None:
    shown, settled = "", False
    while not settled:
        text, settled = look()
        if text.plain != shown:
            print(text.plain, end="\n\n", flush=True)
        shown = text.plain
        time.sleep(0 if settled else seconds)
