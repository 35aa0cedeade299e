"""Sentences that describe a table and claim no more than its verdicts."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from commonfloor.messages import listed
from results.records import NO_VERDICT, InteractionRow, Interval, Reached, Row, Table
from results.statistics.verdict import BETTER, EQUIVALENT, RESOLVED, UNRESOLVED, WORSE
from results.store.plan_files import learned_settings
from results.store.schemas.metrics import Metric, margin_text
from results.store.schemas.plans import Plan
from results.style import current_style
from results.units import amount_text

ORDER = (BETTER, WORSE, EQUIVALENT, UNRESOLVED, None)
NAMED = 4  # the most differences that a sentence lists individually
AT_EARLIER_LOOK = "at an earlier look"
EARLIER = "‡"  # the mark of a verdict from an earlier look
EARLIER_LINE = f"{EARLIER} resolved {AT_EARLIER_LOOK}; over all seeds the 95% interval contains 0."


def sentence(row: Row, table: Table) -> str:
    """Return a description of an arm, such as "worse than position=1d by 18.23 points (95% CI 16.30 to 20.16)".

    An unresolved difference is not called "no difference": the text says how large it could be.
    """
    metric = table.plan.primary_metric
    baseline = current_style().label(row.baseline)
    if row.arm == row.baseline:
        return "the baseline"
    if row.verdict is None:
        return f"not compared with {baseline} ({untested_reason(row)})"
    if row.verdict in (BETTER, WORSE):
        return f"{row.verdict} than {baseline} {difference_text(row, metric)}"
    if row.verdict == EQUIVALENT:
        return f"equivalent to {baseline} within {margin_text(table.plan.margin or 0.0, metric)}"
    return f"{row_verdict(row, '')} against {baseline}: {bound_text(intervals(row), metric)}{divergence_text(row)}"


def difference_text(row: Row, metric: Metric) -> str:
    """Return the difference as text: "by 18.23 points (95% CI 16.30 to 20.16)" or "as 5 of 5 trials diverged"."""
    if row.delta is None or row.delta_ci95 is None:
        return f"as {diverged_text(row)}"
    if contains_zero(row):  # the verdict has another reason than this interval
        why = AT_EARLIER_LOOK
        if row.unstable:
            why = f"as {diverged_text(row)}"
        end_to_end = " to ".join(map(metric.signed_text, intervals(row)[-1]))
        now = f"{metric.signed_text(row.delta)}{metric.unit_of_difference} (95% CI {end_to_end})"
        return f"{why}; over all seeds the difference is {now}"
    low, high = row.delta_ci95
    if row.delta < 0:
        low, high = -high, -low
    interval = f"(95% CI {metric.value_text(low)} to {metric.value_text(high)})"
    return f"by {metric.size_text(row.delta)} {interval}{divergence_text(row)}"


def is_from_earlier_look(row: Row) -> bool:
    """Return whether a difference was resolved at an earlier look, although over all seeds the interval contains 0."""
    return row.verdict in RESOLVED and not row.unstable and contains_zero(row)


def contains_zero(row: Row) -> bool:
    return any(low <= 0 <= high for low, high in intervals(row))


def intervals(row: Row) -> list[Interval]:
    return list(filter(None, [row.delta_ci95, row.delta_ci95_images]))


def bound_text(intervals: Iterable[Interval], metric: Metric, source: str = " (95% CI)") -> str:
    """Return text on the largest difference that the intervals allow. source: text that names them."""
    ends = [abs(end) for end in itertools.chain.from_iterable(intervals)]
    largest = max(ends, default=metric.largest_difference)
    if largest >= metric.largest_difference:
        return "too few trials to bound the difference"
    return f"any difference is at most {metric.size_text(largest)}{source}"


def divergence_text(row: Row) -> str:
    return f", and {diverged_text(row)}" if row.unstable else ""


def diverged_text(reached: Row | Reached) -> str:
    """Return how many of the ended trials diverged or collapsed, such as "2 of 5 trials diverged"."""
    trials = f" of {amount_text(reached.ended_trials, 'trial')}"
    if not reached.collapsed:
        return f"{reached.diverged}{trials} diverged"
    collapsed = f"{reached.collapsed}{trials} collapsed"
    if not reached.diverged:
        return collapsed
    return f"{reached.diverged} diverged and {collapsed}"


def verdict_text(verdict: str | None, missing: str) -> str:
    if verdict is None:
        return missing
    return verdict.replace("-", " ")


def row_verdict(row: Row, missing: str) -> str:
    """Return an arm's verdict in words, "stopped, not resolved" if a race stopped it so, or `missing`."""
    stopped = "stopped, " if row.stopped and (row.verdict or "").startswith(UNRESOLVED) else ""  # perhaps marked
    return stopped + verdict_text(row.verdict, missing)


def untested_reason(row: Row) -> str:
    if row.n_pairs is None and row.p is None:  # unpaired
        return f"too few seeds finished, or all are identical{divergence_text(row)}"
    if row.n_pairs is not None and row.n_pairs < 2:
        return f"{row.n_pairs} of {amount_text(row.planned, 'pair')} of seeds finished{divergence_text(row)}"
    if row.p is not None:
        return "a best value lies at the edge of its grid"
    return f"all {row.n_pairs} differences are identical"


def answer(table: Table) -> str:
    """Return the study's answer as text. In a tuned study, it describes the tuned arms and counts the others."""
    over, planned = progress(table)
    start = f"On {setting_text(table.plan)}, {count_text(untuned_rows(table))}"
    if over < planned:
        start += f", so far ({over} of {amount_text(planned, 'trial')} done)"
    compared = [row for row in table.rows if row.arm != row.baseline]
    tuned = [row for row in compared if is_tuned(row, table)]
    text = clauses(tuned or compared, table) or "nothing to compare"
    if not table.judged:
        text = "no verdict before all are"
    elif tuned:
        what = " and ".join(table.tuned)
        rest = verdict_counts([row for row in compared if row not in tuned])
        text = f"each at its own {what}, {text}. At equal {what}: {rest}"
    if "lr" not in table.varied and any("lr" in arm.config for arm in table.plan.arms):
        text += ". All at the baseline's learning rate"
    return f"{start}: {text}. {first_declared_text(compared)}".rstrip()


def first_declared_text(rows: Sequence[Row]) -> str:
    texts = first_declared_verdicts(rows)
    if not texts:
        return ""
    return f"As first declared: {listed(texts, NAMED)}."


def first_declared_verdicts(rows: Iterable[Row]) -> list[str]:
    """Return arms whose verdicts were others under what was declared first, with those verdicts."""
    texts = []
    for row in rows:
        if row.is_judged_anew:
            texts.append(f"{current_style().label(row.arm)} {verdict_text(row.first_declared, NO_VERDICT)}")
    return texts


def clauses(rows: Sequence[Row], table: Table) -> str:
    """Return a clause per verdict, baseline and reason for having no test. A long baseline is named once."""
    groups: dict[tuple[int, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        reason = row_verdict(row, "")
        if row.verdict is None:
            reason = untested_reason(row)
        groups[ORDER.index(row.verdict), name_parts(row).baseline, reason].append(row)
    texts = []
    written = set[str]()
    for (_, baseline, _), alike_rows in sorted(groups.items(), key=lambda group: group[0][0]):
        if baseline in written:
            texts.append(clause(alike_rows, table, "the baseline"))
            continue
        texts.append(clause(alike_rows, table, baseline))
        if "," in baseline:
            written.add(baseline)
    return "; ".join(texts)


def verdict_counts(rows: Sequence[Row]) -> str:
    """Return verdict counts as text, such as "2 worse, 1 without a verdict"."""
    ordered = sorted(rows, key=lambda row: (ORDER.index(row.verdict), row.stopped > 0))
    counts = Counter(row_verdict(row, "without a verdict") for row in ordered)
    return ", ".join(f"{count} {words}" for words, count in counts.items())


def is_tuned(row: Row, table: Table) -> bool:
    return any(f"{name}=tuned" in row.arm.split(",") for name in table.tuned)


def clause(rows: Sequence[Row], table: Table, baseline: str) -> str:
    """Return the description of rows sharing a verdict and a baseline. baseline: its name in the text."""
    first = rows[0]
    metric = table.plan.primary_metric
    name = name_parts(first)
    alone = sentence(replace(first, baseline=baseline), table)
    if len(rows) == 1 and not name.point:
        return f"{name.change} is {alone}"
    if first.verdict in (BETTER, WORSE):
        return f"{first.verdict} than {baseline}: {difference_list(rows, metric)}"
    if first.verdict == UNRESOLVED:
        every = itertools.chain.from_iterable(map(intervals, rows))
        largest = bound_text(every, metric, ", by the 95% CI of each")
        return f"{row_verdict(first, '')} against {baseline} ({largest}): {arm_list(rows)}"
    return f"{alone}: {arm_list(rows)}"


def difference_list(rows: Sequence[Row], metric: Metric) -> str:
    if len(rows) <= NAMED:
        return ", ".join(named_difference(row, metric) for row in rows)
    smallest = min(rows, key=lambda row: abs(row.delta or 0.0))
    largest = max(rows, key=lambda row: abs(row.delta or 0.0))
    return f"{len(rows)} arms, from {named_difference(smallest, metric)} to {named_difference(largest, metric)}"


def named_difference(row: Row, metric: Metric) -> str:
    name = name_parts(row)
    arm = " at ".join(filter(None, [name.change, name.point]))
    return f"{arm} {difference_text(row, metric)}"


def arm_list(rows: Sequence[Row]) -> str:
    """Return arms as text, such as "stem=conv at data_fraction=0.1". Many entries are only counted."""
    points: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        name = name_parts(row)
        diverged = f" ({diverged_text(row)})" if row.unstable else ""
        if name.point:
            points[name.change].append(f"{name.point}{diverged}")
        else:
            points.setdefault(f"{name.change}{diverged}", [])
    entries = []
    for change, at in points.items():
        joined = " and ".join(filter(None, [", ".join(at[:-1]), *at[-1:]]))
        entries.append(f"{change} at {joined}" if at else change)
    text = ", ".join(entries[: 2 * NAMED])
    if len(entries) > 2 * NAMED:
        text += f" and {len(entries) - 2 * NAMED} more"
    return text


class NameParts(NamedTuple):
    """What an arm changes, its baseline, and the point of the curves, each as a label."""

    change: str
    baseline: str
    point: str


def name_parts(row: Row) -> NameParts:
    """Return the parts of an arm's name. The point has the settings, not tuned, that both names end with."""
    change = row.arm.split(",")
    baseline = row.baseline.split(",")
    point = list[str]()
    while min(len(change), len(baseline)) > 1 and change[-1] == baseline[-1]:
        setting = change.pop()
        baseline.pop()
        if not setting.endswith("=tuned"):
            point.insert(0, setting)
    label = current_style().label
    return NameParts(label(",".join(change)), label(",".join(baseline)), label(",".join(point)))


def setting_text(plan: Plan) -> str:
    """Return the name of a setting, such as "digits with steps=60, batch=16" or "pets (recipe small)"."""
    place, *changed = setting_parts(plan)
    return " with ".join(filter(None, [place, ", ".join(changed)]))


def setting_parts(plan: Plan) -> list[str]:
    """Return the data and recipe, and the overrides, besides those of how trials run, that they do not name."""
    data = plan.data
    learned = learned_settings(plan.overrides, plan.trainable)
    setting = plan.recipe
    if plan.data_sets:
        setting = f"{amount_text(len(plan.data_sets), 'data set')} (recipe {plan.recipe})"
    elif data is not None and not (data.of_recipe and data.name == plan.recipe):
        setting = f"{data.name} (recipe {plan.recipe})"
        learned.pop("data", None)
    return [setting, *(f"{key}={value}" for key, value in learned.items())]


def pairing(plan: Plan) -> str:
    """Return whether differences are paired, as text. Other code may govern by a seed what it likes."""
    if not plan.is_paired:
        return "unpaired (Welch)"
    return "paired by seed number" if plan.trainable or plan.paired else "paired by seed"


def pairing_text(table: Table) -> str:
    gain = table.pairing
    if gain is None:
        return ""
    change = "narrower" if gain.narrower > 0 else "wider"
    usual = f" (medians of {gain.differences} differences)" if gain.differences > 1 else ""
    return (
        f"Pairing by seed: correlation {gain.correlation:.2f}, intervals {abs(gain.narrower):.0%} {change} than "
        f"unpaired{usual}."
    )


def variance_text(table: Table) -> str:
    """Return how much of the differences' variance comes from seeds and test images, if that is known."""
    shares = [row.images_share for row in table.rows if row.images_share is not None]
    if not shares or table.plan.split is None:
        return ""
    share = median(shares)
    seeds = max(row.n_pairs or 0 for row in table.rows)
    usual = " (the median)" if len(shares) > 1 else ""
    images = "test images"
    if not table.plan.data_sets:
        images = amount_text(table.plan.split.images, "test image")
    return (
        f"Variance of a difference{usual}: {1 - share:.0%} from {amount_text(seeds, 'seed')}, {share:.0%} from the "
        f"choice of {images}."
    )


def interim_text(table: Table) -> str:
    if not table.interim:
        return ""
    over, planned = progress(table)
    return f"Interim: {over} of {amount_text(planned, 'planned trial')} done, {interim_meaning(table.judged)}."


def interim_meaning(judged: bool) -> str:
    if judged:
        return "a verdict says what it would be now"
    return "so there is no verdict (--interim shows it)"


def progress(table: Table) -> tuple[int, int]:
    """Return (trials that ended with a result, planned trials). Trials that a race left out do not count."""
    rows = untuned_rows(table)
    return sum(row.ended_trials for row in rows), sum(row.planned - row.stopped for row in rows)


def untuned_rows(table: Table) -> list[Row]:
    return [row for row in table.rows if not is_tuned(row, table)]  # whose trials belong to other rows too


def departure_text(table: Table) -> str:
    """Return text such as "Unlike the recipe, the baseline has steps 500, optimizer sgd.", or ""."""
    texts = []
    for name, settings in table.departures.items():
        changed = ", ".join(f"{key} {value}" for key, value in settings.items())
        texts.append(f"{name} has {changed}")
    if not texts:
        return ""
    return f"Unlike the recipe, {'; '.join(texts)}."


def count_text(rows: Sequence[Row]) -> str:
    counts = sorted({row.n for row in rows})
    text = amount_text(counts[-1], "seed")
    if len(counts) > 1:
        text = f"{counts[0]} to {text}"
    return f"n = {text} per arm"


def interaction_sentence(interaction: InteractionRow, metric: Metric) -> str:
    """Return the interaction as text: "a,b: +0.40 points (95% CI -0.20 to +1.00; logit +0.05): not resolved"."""
    name = current_style().label(interaction.name)
    why = "; ".join(interaction.notes)
    if interaction.interaction is None:
        return f"{name}: {why}"
    details = []
    if interaction.ci95:
        details.append(f"95% CI {' to '.join(metric.signed_interval(interaction.ci95))}")
    if interaction.logit is not None:
        details.append(f"logit {interaction.logit:+z.2f}")
    text = f"{name}: {metric.signed_text(interaction.interaction)}{metric.unit_of_difference}"
    if details:
        text += f" ({'; '.join(details)})"
    text += f": {verdict_text(interaction.verdict, NO_VERDICT)}"
    if why:
        text += f" ({why})"
    return text
