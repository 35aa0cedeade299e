"""What a bench found, for people: medians with their quartiles in tables, and what was left out and why."""

from collections.abc import Callable
from typing import Any

from results.grid import Cell, Grid, markdown

Json = dict[str, Any]
OURS = "vitcore"


def told(found: Json) -> str:
    """All tables of one bench, and what they were measured on."""
    return "\n\n".join([*TOLD[found["bench"]](found), machine(found)])


def arms(found: Json) -> list[str]:
    """A row an arm."""
    rows = [
        [
            Cell(row["arm"]),
            Cell(milliseconds(row["seconds_per_step"])),
            Cell(beside(row)),
            Cell(f"{row['flops_ratio']:.2f}x"),
            Cell(size(row["memory_bytes"])),
        ]
        for row in found["arms"]
    ]
    title = f"A step of each arm of {found['study']}, its baseline: {model(found['config'])}"
    turns = f"{found['rounds']} rounds in turn with the baseline, {found['steps_per_round']} steps each"
    caption = f"Median [quartiles] of {turns}. memory: what steps add at their peak."
    header = ["arm", "a step", "time / baseline", "FLOPs / baseline", "memory"]
    return [markdown(Grid(title, [caption], header, [False, True, True, True, True], rows))]


def beside(row: Json) -> str:
    """The ratio; for one with the steps of its baseline, that."""
    if row["arm"] == row["baseline"]:
        return "baseline"
    return spread(row["ratio"], "{:.3f}x") or "the same step"


def loop(found: Json) -> list[str]:
    """A row a way of running the study."""
    rows = [
        [
            Cell(name),
            Cell(spread(seconds, "{:.1f}") + " s"),
            Cell(spread(found["ratio"].get(name), "{:.2f}x")),
            Cell(accuracy(found["test_accuracy"].get(name))),
        ]
        for name, seconds in found["seconds"].items()
    ]
    title = f"{found['trials']} trials of {found['steps']} steps: {model(found['config'])}"
    share = found["training_share"]
    caption = f"Wall time, median [quartiles] of {found['rounds']} rounds in turn." + (
        f" Training alone, on all cores, is {share:.0%} of ours." if share else ""
    )
    header = ["how", "wall time", "ours is faster by", "test accuracy"]
    return [markdown(Grid(title, [caption], header, [False, True, True, True], rows))]


def fused(found: Json) -> list[str]:
    """A row a way of training the same seeds."""
    rows = [
        [
            Cell(name),
            Cell(milliseconds(found["step"]["seconds"][name]) if name in found["step"]["seconds"] else ""),
            Cell(spread(seconds, "{:.1f}") + " s"),
            Cell(spread(found["ratio"].get(name), "{:.2f}x")),
            Cell(accuracy(found["test_accuracy"].get(name))),
        ]
        for name, seconds in found["seconds"].items()
    ]
    title = f"{found['trials']} seeds, {found['steps']} steps each: {model(found['config'])}"
    caption = [
        f"Median [quartiles] of {found['rounds']} rounds in turn. A step of all of them as one takes "
        f"{spread(found['step']['ratio'], '{:.2f}x')} as many a second; then whole trainings, with evaluations.",
    ]
    header = ["how", "a step of all", "all trained", "as one is faster by", "test accuracy"]
    return [markdown(Grid(title, caption, header, [False, True, True, True, True], rows))]


def start(found: Json) -> list[str]:
    """A row a cache."""
    rows = [
        [Cell(name), Cell(spread(seconds, "{:.1f}") + " s"), Cell(spread(found["ratio"].get(name), "{:.0%}"))]
        for name, seconds in found["seconds"].items()
    ]
    once, twice = found["graphs"][0], found["graphs"][-1]
    caption = [
        f"A process from its command to the end of its first step, median [quartiles] of {found['rounds']} rounds. "
        f"Graphs compiled for one trial: {once}; for {len(found['graphs'])} of one shape: {twice}.",
    ]
    header = ["cache", "first step", "of the empty one's"]
    return [markdown(Grid(f"Start: {model(found['config'])}", caption, header, [False, True, True], rows))]


def accuracy(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def step(found: Json) -> list[str]:
    left_out = [f"{name} is left out: {why}" for name, why in found["left_out"].items()]
    return [markdown(steps(found)), *filter(None, [floor(found), inputs(found), waits(found)]), "\n".join(left_out)]


def steps(found: Json) -> Grid:
    """A row a side."""
    shares = found["floor"]["share"] if found["floor"] else {}
    rows = [
        [
            Cell(side["name"]),
            Cell(spread(side["images_per_second"], "{:,.0f}")),
            Cell(spread(side["ratio"], "{:.2f}x")),
            Cell(spread(shares.get(side["name"]), "{:.0%}")),
            Cell(size(found["memory_bytes"][side["name"]])),
        ]
        for side in found["sides"]
    ]
    return Grid(
        title=f"Train step: {model(found['config'])}",
        caption=[
            f"Median [quartiles] of {found['rounds']} rounds in turn, {found['steps_per_round']} steps each; equal "
            "losses in the first steps. floor: its matrix products and attention alone. memory: what steps add.",
        ],
        header=["side", "images/s", "our speed / its", "floor / its time", "memory"],
        numeric=[False, True, True, True, True],
        rows=rows,
    )


def floor(found: Json) -> str:
    """Its time, its backends, the share of the peak."""
    part = found["floor"]
    if not part:
        return ""
    kinds: dict[str, list[str]] = {}
    for work, backend in part["backends"].items():
        kinds.setdefault(backend, []).append(work)
    backends = "; ".join(f"{backend} for {some(works)}" for backend, works in kinds.items())
    whole = "" if part["share_of_flops"] > 0.9995 else f", {part['share_of_flops']:.1%} of the model's FLOPs"
    peak = part["share_of_peak"]
    reached = f"{spread(part['flops_per_second'], '{:.3g}')} training FLOP/s, " + (
        f"{spread(peak, '{:.1%}')} of the peak" if peak else "the peak is not known here"
    )
    return f"Floor: {milliseconds(part['seconds_per_step'])} a step{whole}. {reached}. Fastest: {backends}."


def some(works: list[str]) -> str:
    return ", ".join(works) if len(works) < 5 else f"{len(works)} products"


def inputs(found: Json) -> str:
    part = found["input"]
    speed, share = spread(part["images_per_second"], "{:,.0f}"), spread(part["share"], "{:.1%}")
    alone = f"Input alone: {speed} images/s, {share} of a step."
    if not (pil := part["pil"]):
        return alone
    ours, theirs = (spread(pil["images_per_second"][name], "{:,.0f}") for name in (OURS, "torchvision"))
    ratio = spread(pil["ratio"], "{:.1f}x")
    return f"{alone} {pil['augment']}: {ours} images/s, torchvision with PIL on a core {theirs}: {ratio}."


def waits(found: Json) -> str:
    """Of the host for a GPU: with any, its queue runs empty."""
    count = found["waits_per_step"]
    return "" if count is None else f"The host waits for the GPU {count:.3g} times a step."


def machine(found: Json) -> str:
    """On what, with what, when."""
    of = found["machine"]
    threads = "" if of["accelerator"] == "cuda" else f", {of['threads']} thread(s) of {of['cores']} cores"
    versions = ", ".join(f"{name} {of[name]}" for name in ("torch", "torchvision", "timm", "python") if name in of)
    return f"{of['device']}{threads}; {versions}; revision {of['revision'] or of['code']}; {of['started']}"


def model(config: Json) -> str:
    if config.get("model"):
        return f"{config['model']}, batch {config['batch']}, {config['precision']}, data {config['data']}"
    sizes = f"width {config['width']}, depth {config['depth']}, heads {config['heads']}, patch {config['patch']}"
    side = config["image_size"]
    parts = f"position={config['position']}, pool={config['pool']}, stem={config['stem']}"
    return f"{sizes}, {parts}, images {side} x {side}, batch {config['batch']}, {config['precision']}"


def spread(values: Json | None, form: str) -> str:
    if values is None:
        return ""
    low, high = (form.format(values[name]) for name in ("low", "high"))
    return f"{form.format(values['median'])} [{low}, {high}]"


def milliseconds(seconds: Json) -> str:
    return spread({name: 1000 * value for name, value in seconds.items()}, "{:.3g}") + " ms"


def size(count: int | None) -> str:
    return "" if count is None else f"{count / 2**20:,.1f} MiB"


TOLD: dict[str, Callable[[Json], list[str]]] = {
    "step": step,
    "arms": arms,
    "loop": loop,
    "fused": fused,
    "start": start,
}
