"""Propose changes to a baseline, test them step by step, and estimate what was kept.

Each proposal has seeds of its own, which no proposal of the run directory had before and no trial of its arms used.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ablations.jobs import Job, jobs, unfinished
from ablations.planning import estimate
from ablations.planning import plan as planning
from ablations.planning.estimate import EstimatedCost
from ablations.study.design import Design
from ablations.study.recipe import Recipe
from ablations.study.study import Study
from results.statistics import stream as statistics
from results.statistics.contrast import Measured, difference, samples_by_arm
from results.statistics.intervals import Estimate
from results.store import gate_files
from results.store.contents import timestamp
from results.store.gate_files import Proposed, Stream
from results.store.record import FOR_TABLES
from results.store.schemas.base import Settings
from results.store.schemas.gates import GateLook, GateSide, Proposal
from results.store.schemas.metrics import Metric
from results.store.schemas.plans import Plan
from results.study_results import StudyResults, load_plans

FIRST_SEED = 1000  # studies have the seeds before, by which a change may have been chosen


@dataclass(frozen=True)
class Side:
    """What the user gave as baseline or candidate: a recipe, with settings."""

    text: str
    recipe: Recipe
    settings: Settings

    def planned(self, role: str, metric: str, seeds: Sequence[int]) -> GateSide:
        """Return the side with the trials of these seeds. Raises ValueError if its settings are not valid."""
        study = Study(name="gate", question=f"Is it better: {self.text}?", baseline=self.settings, metric=metric)
        plan = planning.build(Design(study, self.recipe, {}), seeds)
        (arm,) = plan.arms
        arm = arm.model_copy(update={"name": role, "baseline": role})
        return GateSide(text=self.text, plan=plan.model_copy(update={"arms": [arm], "baseline": role}))


@dataclass(frozen=True)
class Question:
    """What the user asks for. metric: "" for the recipe's."""

    stream: str
    baseline: Side
    candidate: Side
    metric: str
    margin: float
    steps: list[int]


# -- proposals ---------------------------------------------------------------------------------------------------------


def propose(question: Question, runs: Path, check: Callable[[Proposal], None]) -> Proposed:
    """Return the proposal of a pair of arms, which is written to the ledger unless it is there.

    A pair with equal trials is rejected at once. check: raises ValueError before a proposal is written that cannot be
    trained.
    """
    with gate_files.turn(runs):
        streams = gate_files.read_streams(runs)
        stream = streams.get(question.stream, Stream(question.stream))
        first = next_seed(streams)
        while True:
            seeds = [*range(first, first + question.steps[-1] + question.steps[0])]
            baseline = question.baseline.planned("baseline", question.metric, seeds)
            candidate = question.candidate.planned("candidate", question.metric, seeds)
            known = stream.find(baseline.key, candidate.key)
            if known is not None:
                check_declared(known, question, baseline.plan.metric, stream)
                return known
            if not any((runs / "trials" / job.id).exists() for job in jobs([baseline.plan, candidate.plan])):
                break
            first += len(seeds)
        check_stream(stream, baseline, candidate)
        is_identical = baseline.key == candidate.key
        level = 0.0 if is_identical else next_level(stream)
        proposal = Proposal(
            number=len(stream.proposals) + 1,
            time=timestamp(),
            metric=baseline.plan.metric,
            margin=question.margin,
            steps=question.steps,
            level=level,
            baseline=baseline,
            candidate=candidate,
        )
        proposed = Proposed(proposal)
        if not is_identical:
            check(proposal)
        gate_files.write(runs, question.stream, proposal)
        if is_identical:
            reason = "identical: nothing to train"
            look = GateLook(step=0, time=timestamp(), answer="reject", reason=reason, opened=stream.opened)
            gate_files.write(runs, question.stream, proposal, look)
            proposed.looks.append(look)
        return proposed


def next_seed(streams: dict[str, Stream]) -> int:
    first = FIRST_SEED
    for stream in streams.values():
        for proposed in stream.proposals:
            first = max(first, proposed.proposal.seeds[-1] + 1)
    return first


def check_declared(known: Proposed, question: Question, metric: str, stream: Stream) -> None:
    proposal = known.proposal
    declared = {"metric": proposal.metric, "margin": proposal.margin, "steps": proposal.steps}
    now = {"metric": metric, "margin": question.margin, "steps": question.steps}
    for name, value in declared.items():
        if now[name] != value:
            raise ValueError(
                f"proposal {proposal.number} of stream {stream.name} was declared with {name} {as_text(value)}, not "
                f"{as_text(now[name])}: a test that has begun is not changed"
            )
    if known.decision is None:
        check_baseline(proposal, stream)


def check_baseline(proposal: Proposal, stream: Stream) -> None:
    if stream.current.key != proposal.baseline.key:
        raise ValueError(
            f"proposal {proposal.number} of stream {stream.name}: its baseline was replaced meanwhile: propose the "
            f"change to {stream.current.text}"
        )


def as_text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def check_stream(stream: Stream, baseline: GateSide, candidate: GateSide) -> None:
    metrics = {side.plan.metric for side in (baseline, candidate)}
    metrics.update(proposed.proposal.metric for proposed in stream.proposals)
    if len(metrics) > 1:
        raise ValueError(f"metrics {' and '.join(sorted(metrics))}: a stream has one: give --metric, or --stream NAME")
    if not stream.proposals:
        return
    current = stream.current
    if current.key != baseline.key:
        kept = f"kept by proposal {stream.kept[-1].proposal.number}" if stream.kept else "of its first proposal"
        raise ValueError(
            f"{baseline.text}: is not the baseline of stream {stream.name}, which is {current.text} ({kept}): give "
            "that as BASELINE, or begin another stream with --stream NAME"
        )


# -- steps -------------------------------------------------------------------------------------------------------------


def next_step(proposed: Proposed) -> int:
    return proposed.last.step + 1


def seed_jobs(proposal: Proposal, seeds: Sequence[int]) -> list[Job]:
    both = jobs(plans_of(proposal))
    return sorted((job for job in both if job.config["seed"] in seeds), key=lambda job: job.config["seed"])


def plans_of(proposal: Proposal) -> list[Plan]:
    return [proposal.baseline.plan, proposal.candidate.plan]


def cost(proposal: Proposal, wanted: Iterable[str], runs: Path) -> EstimatedCost:
    plans = plans_of(proposal)
    return estimate.cost(plans, runs, estimate.local_device(plans), wanted)


def next_level(stream: Stream) -> float:
    return statistics.next_level(stream.opened, stream.keeps)


def metric_of(proposal: Proposal) -> Metric:
    return proposal.baseline.plan.metric_named(proposal.metric)


def change(proposal: Proposal, seeds: Sequence[int], runs: Path) -> tuple[Measured, StudyResults]:
    """Return the difference candidate - baseline over these seeds, and the candidate's results."""
    plans: list[Plan] = []
    for side in (proposal.baseline, proposal.candidate):
        arm = side.plan.arms[0]
        trials = [trial for trial in arm.trials if trial.seed in seeds]
        arms = [arm.model_copy(update={"trials": trials})]
        plans.append(side.plan.model_copy(update={"arms": arms, "seeds": [*seeds]}))
    baseline, candidate = load_plans(runs, plans, FOR_TABLES)
    samples = samples_by_arm(baseline, proposal.metric) | samples_by_arm(candidate, proposal.metric)
    is_paired = all(plan.is_paired for plan in plans)
    measured = difference(samples["candidate"], samples["baseline"], is_paired)
    return measured, candidate


def lacking_results(candidate: StudyResults) -> str:
    """Return which trials of the candidate are over without a number, which the difference would leave out, or ""."""
    statuses = candidate.columns["status"]
    diverged = statuses.count("diverged")
    if diverged:
        return f"{diverged} trials of the candidate diverged"
    if "broken" in statuses:
        return f"a result of the candidate is broken: {candidate.columns['reason'][statuses.index('broken')]}"
    return ""


def answer(proposed: Proposed, stream: str, runs: Path) -> GateLook:
    """Return the answer after the next step, all of whose trials are over, and write it to the ledger."""
    proposal = proposed.proposal
    step = next_step(proposed)
    measured, candidate = change(proposal, proposal.seeds_of_step(step), runs)
    interval = measured.tested.interval()
    level = statistics.step_level(proposal.level, proposal.steps, step)
    gain = measured.tested
    if not metric_of(proposal).higher_is_better:
        gain = -gain
    decision = statistics.decide(gain, proposal.margin, level, is_last=step == len(proposal.steps))
    lacking = lacking_results(candidate)
    if lacking:
        decision = statistics.Decision("reject", lacking)
    with gate_files.turn(runs):
        now = gate_files.read_streams(runs)[stream]
        proposed.looks[:] = now.proposals[proposal.number - 1].looks
        if next_step(proposed) == step and proposed.decision is None:  # no other process has answered
            check_baseline(proposal, now)
            look = GateLook(
                step=step,
                time=timestamp(),
                answer=decision.answer,
                reason=decision.reason,
                opened=now.opened,
                n=gain.n,
                difference=measured.tested.value,
                ci95=list(interval) if interval else None,
                p=statistics.p_better(gain),
                level=level,
            )
            gate_files.write(runs, stream, proposal, look)
            proposed.looks.append(look)
    return proposed.last


# -- estimates of what was kept ----------------------------------------------------------------------------------------


def fresh_change(proposal: Proposal, runs: Path) -> Measured | None:
    """Return the difference over the seeds that no decision used, or None before all their trials are over.

    A difference that led to a keep is too large on average, because it had to be large. This one is not.
    """
    if unfinished(seed_jobs(proposal, proposal.fresh_seeds), runs):
        return None
    return change(proposal, proposal.fresh_seeds, runs)[0]


def total_change(stream: Stream, runs: Path) -> Estimate | None:
    """Return the sum of the fresh differences of all that was kept, or None if nothing was or one has none."""
    changes = []
    for proposed in stream.kept:
        measured = fresh_change(proposed.proposal, runs)
        if measured is None:
            return None
        changes.append(measured)
    return statistics.total_gain(changes) if changes else None
