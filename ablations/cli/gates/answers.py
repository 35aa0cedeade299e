"""The answers and the log of `ablate gate`, as text and as JSON."""

from pathlib import Path
from typing import Any

from ablations.cli.answer import show_json
from ablations.decisions import gate as decisions
from ablations.planning import estimate
from results.statistics.intervals import Estimate
from results.store import gate_files
from results.store.gate_files import Proposed, Stream
from results.store.schemas import Metric
from results.store.schemas.metrics import margin_text
from results.units import amount_text


def answer_json(proposed: Proposed, stream: str, runs: Path) -> dict[str, Any]:
    proposal, look = proposed.proposal, proposed.last
    measured = decisions.fresh_change(proposal, runs) if proposed.is_kept else None
    return {
        "stream": stream,
        "proposal": proposal.number,
        "answer": look.answer,
        "reason": look.reason,
        "baseline": proposal.baseline.text,
        "candidate": proposal.candidate.text,
        "metric": proposal.metric,
        "margin": proposal.margin,
        "steps": proposal.steps,
        "step": look.step,
        "seeds": proposal.seeds_of_step(look.step) if look.step else [],
        "n": look.n,
        "difference": look.difference,
        "ci95": look.ci95,
        "p": look.p,
        "level": look.level,
        "level_of_proposal": proposal.level,
        "estimate": estimate_json(measured.tested if measured else None),
    }


def next_json(proposed: Proposed, runs: Path) -> dict[str, Any] | None:
    if proposed.decision is not None:
        return None
    seeds = proposed.proposal.seeds_of_step(decisions.next_step(proposed))
    left = decisions.unfinished(decisions.seed_jobs(proposed.proposal, seeds), runs)
    cost = decisions.cost(proposed.proposal, left, runs)
    hours = None if "unknown" in cost.sources else cost.hours
    return {"seeds": len(seeds), "trials": len(left), "hours": hours, "unit": cost.unit}


def estimate_json(measured: Estimate | None) -> dict[str, Any] | None:
    if measured is None or measured.value is None:
        return None
    return {"n": measured.n, "difference": measured.value, "ci95": measured.interval()}


def answer_text(content: dict[str, Any], metric: Metric) -> str:
    lines = [
        f"{content['answer']}: {content['candidate']} instead of {content['baseline']}",
        f"  {content['reason']} (proposal {content['proposal']} of stream {content['stream']})",
    ]
    if content["difference"] is not None:
        text = f"  {change_text(content, metric)}; margin {margin_text(content['margin'], metric)}"
        if content["p"] is not None:
            text += f"; p {content['p']:.2g}, level {content['level']:.2g}"
        lines.append(text)
    if content["estimate"]:
        lines.append(f"  with fresh seeds: {change_text(content['estimate'], metric)}")
    return "\n".join(lines)


def change_text(content: dict[str, Any], metric: Metric) -> str:
    text = f"{metric.signed_text(content['difference'])}{metric.unit_of_difference}"
    if content["ci95"] is not None:
        low, high = metric.signed_interval(content["ci95"])
        text += f" ({low} to {high})"
    return f"{text}, n = {content['n']}"


def next_text(following: dict[str, Any] | None, where: str) -> str:
    if following is None:
        return f"next    ablate gate --log{where}"
    hours = "unknown time"
    if following["hours"] is not None:
        hours = estimate.hours_text(following["hours"], following["unit"])
    trials = amount_text(following["trials"], "trial")
    return f"next    the same command, to {following['seeds']} seeds: {trials}, {hours}"


# -- the log -----------------------------------------------------------------------------------------------------------


def show_log(runs: Path, as_json: bool) -> None:
    streams = gate_files.read_streams(runs)
    if not streams:
        raise ValueError(f"{runs}: no change was proposed there: ablate gate BASELINE CANDIDATE --margin X")
    logs = {name: log_json(stream, runs) for name, stream in streams.items()}
    if as_json:
        return show_json([*logs.values()])
    for name, content in logs.items():
        print(log_text(streams[name], content))


def log_json(stream: Stream, runs: Path) -> dict[str, Any]:
    return {
        "stream": stream.name,
        "metric": stream.proposals[0].proposal.metric,
        "baseline": stream.current.text,
        "next_level": decisions.next_level(stream),
        "proposals": [answer_json(proposed, stream.name, runs) for proposed in stream.proposals],
        "total": estimate_json(decisions.total_change(stream, runs)),
    }


def log_text(stream: Stream, content: dict[str, Any]) -> str:
    metric = decisions.metric_of(stream.proposals[0].proposal)
    lines = [answer_text(answered, metric) for answered in content["proposals"]]
    if content["total"]:
        kept = amount_text(len(stream.kept), "kept change")
        text = change_text(content["total"], metric)
        lines.append(f"{kept} against the first baseline: {text} fresh seeds each")
    lines.append(f"next BASELINE of stream {stream.name}: {content['baseline']}; level {content['next_level']:.2g}")
    return "\n".join(lines)
