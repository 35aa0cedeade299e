"""Benchmark results as tables: medians with their spread, and what was left out and why."""

from collections.abc import Callable
from typing import Any

from ablations.bench.rivals import OURS
from results.tables.grid import Cell, Grid, markdown

Json = dict[str, Any]


def render(found: Json) -> str:
    """All tables of a benchmark, and its conditions."""
    return "\n\n".join([*TABLES[found["bench"]](found), machine(found)])


def arms(found: Json) -> list[str]:
    """One row per arm."""
    rows = [
        [
            Cell(row["arm"]),
            Cell(milliseconds(row["seconds_per_step"])),
            Cell("" if row["ratio"] is None else milliseconds(row["baseline_seconds_per_step"])),
            Cell(beside(row)),
            Cell(f"{row['flops_ratio']:.2f}x"),
            Cell(size(row["memory_bytes"])),
        ]
        for row in found["arms"]
    ]
    title = f"A step of each arm of {found['study']}; its recipe: {model(found)}"
    each = counted(found["steps_per_round"], "step")
    caption = f"{median(found)} in turn with the baseline, {each} each. memory: what steps add at their peak."
    header = ["arm", "a step", "baseline's in turn", "time / baseline", "FLOPs / baseline", "memory"]
    return [markdown(Grid(title, [caption], header, [False, True, True, True, True, True], rows))]


def beside(row: Json) -> str:
    """The ratio as text; "the same step" for an arm with the steps of its baseline."""
    if row["arm"] == row["baseline"]:
        return "baseline"
    return spread(row["ratio"], "{:.3f}x") or "the same step"


def loop(found: Json) -> list[str]:
    """One row per way of running the study."""
    rows = [
        [
            Cell(name),
            Cell(spread(seconds, "{:.1f}") + " s"),
            Cell(spread(found["ratio"].get(name), "{:.2f}x")),
            Cell(accuracy(found["test_accuracy"].get(name)) or "the same trials"),
        ]
        for name, seconds in found["seconds"].items()
    ]
    title = f"{found['trials']} trials of {counted(found['steps'], 'step')}: {model(found)}"
    share = found["training_share"]
    caption = f"Wall time. {median(found)} in turn." + (
        f" Training alone, on all cores, is {share:.0%} of ours." if share else ""
    )
    header = ["how", "wall time", "ours is faster by", "test accuracy"]
    return [markdown(Grid(title, [caption], header, [False, True, True, True], rows))]


def start(found: Json) -> list[str]:
    """One row per cache."""
    rows = [
        [Cell(name), Cell(spread(seconds, "{:.1f}") + " s"), Cell(spread(found["ratio"].get(name), "{:.0%}"))]
        for name, seconds in found["seconds"].items()
    ]
    once, twice = found["graphs"][0], found["graphs"][-1]
    caption = [
        f"A process from its command to the end of its first step. {median(found)}. "
        f"Graphs compiled for one trial: {once}; for {len(found['graphs'])} of one shape: {twice}.",
    ]
    header = ["cache", "first step", "of the empty one's"]
    return [markdown(Grid(f"Start: {model(found)}", caption, header, [False, True, True], rows))]


def accuracy(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def step(found: Json) -> list[str]:
    left_out = [f"{name} is left out: {why}" for name, why in found["left_out"].items()]
    parts = (floor(found), input_share(found), waits(found), "\n".join(left_out))
    return [markdown(steps(found)), *filter(None, parts)]


def steps(found: Json) -> Grid:
    """One row per side."""
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
        title=f"Train step: {model(found)}",
        caption=[
            f"{median(found)} in turn, {counted(found['steps_per_round'], 'step')} each; equal "
            "losses in the first steps. floor: its matrix products and attention alone. memory: what steps add.",
        ],
        header=["side", "images/s", "our speed / its", "floor / its time", "memory"],
        numeric=[False, True, True, True, True],
        rows=rows,
    )


def floor(found: Json) -> str:
    """The floor's time, its backends, its share of the peak."""
    part = found["floor"]
    if not part:
        return ""
    whole = "" if part["share_of_flops"] > 0.9995 else f", {part['share_of_flops']:.1%} of the model's FLOPs"
    peak = part["share_of_peak"]
    reached = f"{spread(part['flops_per_second'], '{:.3g}')} training FLOP/s, " + (
        f"{spread(peak, '{:.1%}')} of the peak" if peak else "the peak is not known here"
    )
    return f"Floor: {milliseconds(part['seconds_per_step'])} a step{whole}. {reached}."


def input_share(found: Json) -> str:
    part = found["input"]
    speed, share = spread(part["images_per_second"], "{:,.0f}"), spread(part["share"], "{:.1%}")
    return f"Input alone: {speed} images/s, {share} of a step."


def inputs(found: Json) -> list[str]:
    """Our input pipeline, and flips and crops beside torchvision's."""
    pil = found["pil"]
    rows = [
        [Cell(f"{OURS}, as configured"), Cell(spread(found["images_per_second"], "{:,.0f}")), Cell("")],
        *(
            [
                Cell(f"{name}, {pil['augment']}"),
                Cell(spread(rate, "{:,.0f}")),
                Cell("" if name == OURS else spread(pil["ratio"], "{:.1f}x")),
            ]
            for name, rate in pil["images_per_second"].items()
        ),
    ]
    caption = f"{median(found)} in turn. torchvision transforms PIL images one by one, on a core."
    header = ["pipeline", "images/s", "ours is faster by"]
    return [markdown(Grid(f"Input: {model(found)}", [caption], header, [False, True, True], rows))]


def waits(found: Json) -> str:
    """How often the host waits for the GPU."""
    count = found["waits_per_step"]
    return "" if count is None else f"The host waits for the GPU {count:.3g} times a step."


def machine(found: Json) -> str:
    """Machine, versions and date."""
    of = found["machine"]
    threads = "" if of["accelerator"] == "cuda" else f", {of['threads']} thread(s) of {of['cores']} cores"
    versions = ", ".join(f"{name} {of[name]}" for name in ("torch", "torchvision", "timm", "python") if name in of)
    return f"{of['device']}{threads}; {versions}; revision {of['revision'] or of['code']}; {of['started']}"


def model(found: Json) -> str:
    """The settings that a step's time depends on."""
    config = found["config"]
    side = config["image_size"]
    how = [
        f"batch {config['batch']}",
        config["precision"],
        *(["compiled"] if config["compile"] else []),
        *([f"augment={config['augment']}"] if config["augment"] != "none" else []),
        *([f"attention={config['attention']}"] if config["attention"] == "pinned" else []),
    ]
    images = f"{found['images']} images {side} x {side}"
    return ", ".join([config.get("model") or architecture(config), images, *how])


def median(found: Json) -> str:
    return f"Median [{found['low_and_high']}] of {counted(found['rounds'], 'round')}"


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def architecture(config: Json) -> str:
    sizes = f"width {config['width']}, depth {config['depth']}, heads {config['heads']}, patch {config['patch']}"
    return f"{sizes}, position={config['position']}, pool={config['pool']}, stem={config['stem']}"


def spread(values: Json | None, form: str) -> str:
    if values is None:
        return ""
    low, high = (form.format(values[name]) for name in ("low", "high"))
    return f"{form.format(values['median'])} [{low}, {high}]"


def milliseconds(seconds: Json) -> str:
    return spread({name: 1000 * value for name, value in seconds.items()}, "{:.3g}") + " ms"


def size(count: int | None) -> str:
    return "" if count is None else f"{count / 2**20:,.1f} MiB"


TABLES: dict[str, Callable[[Json], list[str]]] = {
    "step": step,
    "arms": arms,
    "loop": loop,
    "start": start,
    "input": inputs,
}
