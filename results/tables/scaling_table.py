"""The tables of fits over training compute: a law for each group of arms, and the best size at each budget."""

from collections.abc import Callable, Iterator, Sequence

from results.records import BestSize, Interval, Scaling, ScalingLaw, SizeGrowth, Table
from results.statistics import best_sizes, scaling, tuning
from results.statistics.best_sizes import Growth
from results.statistics.scaling import DRAWS, EXPONENTS, Law
from results.store.schemas.metrics import Metric
from results.store.schemas.plans import Plan
from results.study_results import StudyResults
from results.style import current_style
from results.tables.cell_text import ABSENT, interval_text, metric_label, unit_suffix
from results.tables.formats import Cell, Grid
from results.units import count_text

LAWS, BEST = "families", "isoflop"  # the kinds of figure with fits
TWO_DECIMALS = "{:z.2f}".format
SEEDS = "95% intervals over seeds, not adjusted; they do not say whether the fit holds"


def record(study: StudyResults) -> Scaling | None:
    """Return the fits over compute that the study's figure shows, or None if it shows none."""
    if study.plan.figure not in (LAWS, BEST):
        return None
    study = tuning.tuned_arms_only(study)
    if study.plan.figure == LAWS:
        return Scaling(laws=[law_record(group, law) for group, law in scaling.laws_of(study).items()])
    best = []
    growth = []
    for size, profiles in best_sizes.profiles_of(study).items():
        for profile in profiles:
            interval = None if profile.optimum is None else profile.interval
            best.append(
                BestSize(
                    size=size,
                    compute=profile.compute,
                    n=profile.measured.seeds,
                    sizes=profile.sizes.tolist(),
                    best=profile.optimum,
                    ci95=interval,
                    why=profile.why,
                )
            )
        growth.append(growth_record(size, best_sizes.growth_of(profiles, study)))
    return Scaling(best=best, growth=growth)


def left_out_notes(study: StudyResults) -> list[str]:
    """Return a note on the arms without an error, which no fit of the study's figure has, or []."""
    if study.plan.figure not in (LAWS, BEST):
        return []
    names = map(current_style().label, scaling.without_error(tuning.tuned_arms_only(study)))
    text = ", ".join(names)
    return [f"left out of the fits over compute, as an error of 0 has no logarithm: {text}"] if text else []


def law_record(group: str, law: Law | str) -> ScalingLaw:
    if isinstance(law, str):
        return ScalingLaw(group=group, why=law)
    compute = law.measured.compute
    slope, slope_interval = law.slope
    return ScalingLaw(
        group=group,
        n=law.measured.seeds,
        sizes=len(compute),
        compute=(float(compute.min()), float(compute.max())),
        a=law.a,
        b=law.b,
        b_ci95=law.b_interval,
        c=law.c,
        c_ci95=law.c_interval,
        b_without_c=slope,
        b_without_c_ci95=slope_interval,
        misses=law.misses,
        draws=DRAWS,
        failed_draws=law.failed,
    )


def growth_record(size: str, growth: Growth | str) -> SizeGrowth:
    if isinstance(growth, str):
        return SizeGrowth(size=size, why=growth)
    return SizeGrowth(
        size=size,
        budgets=len(growth.budgets),
        exponent=growth.exponent,
        ci95=growth.interval,
        draws=DRAWS,
        failed_draws=growth.failed,
        why=growth.why,
    )


def as_grids(table: Table) -> Iterator[Grid]:
    if table.scaling is None:
        return
    metric = table.plan.primary_metric
    if any(not law.why for law in table.scaling.laws):
        yield law_grid(table.plan, table.scaling.laws, metric)
    if table.scaling.best:
        yield best_grid(table.plan, table.scaling)


def law_grid(plan: Plan, laws: Sequence[ScalingLaw], metric: Metric) -> Grid:
    error = f"1 - {metric_label(metric)}" if metric.is_accuracy else metric_label(metric)
    grid = Grid(
        title=f"{plan.name}: error = a C^-b + c",
        caption=[f"C: training FLOPs; error: {error}; {SEEDS}. b if c = 0: of error = a C^-b."],
        header=["arms", "n", "sizes", "training FLOPs", "b", f"c{unit_suffix(metric)}", "b if c = 0", "misses by"],
        numeric=[False] + [True] * 7,
        rows=[],
        label=f"{plan.name} laws",
    )
    for law in laws:
        label = current_style().label(law.group)
        if law.compute is None:
            grid.closing.append(f"No law of {label}: {law.why}.")
            continue
        cells = [
            str(law.n),
            str(law.sizes),
            " to ".join(count_text(round(end)) for end in law.compute),
            with_interval(law.b, law.b_ci95, TWO_DECIMALS),
            with_interval(law.c, law.c_ci95, metric.value_text),
            with_interval(law.b_without_c, law.b_without_c_ci95, TWO_DECIMALS),
            f"{law.misses:.1%}",
        ]
        grid.rows.append([Cell(label, law.group, law_notes(law)), *map(Cell, cells)])
    return grid


def law_notes(law: ScalingLaw) -> list[str]:
    notes = []
    if law.c_ci95 and law.c_ci95[0] == 0:
        notes.append("c may be 0, so b depends on what c is: b if c = 0 is the better known one")
    if law.failed_draws:
        low, high = EXPONENTS
        notes.append(
            f"{law.failed_draws} of {law.draws} draws have no falling law with b between {low:g} and {high:g}; "
            "they count at its ends"
        )
    return notes


def best_grid(plan: Plan, fits: Scaling) -> Grid:
    grid = Grid(
        title=f"{plan.name}: the best size at each budget",
        caption=[
            f"A parabola of the error over log size at each training budget; {SEEDS}. Wide or lopsided ranges of sizes "
            "shift its minimum."
        ],
        header=["size", "training FLOPs", "n", "sizes", "best size"],
        numeric=[False] + [True] * 4,
        rows=[],
        label=f"{plan.name} best",
    )
    for best in fits.best:
        cells = [count_text(round(best.compute)), str(best.n), str(len(best.sizes)), best_text(best)]
        notes = [best.why] if best.why else []
        grid.rows.append([Cell(current_style().label(best.size), best.size, notes), *map(Cell, cells)])
    for growth in fits.growth:
        grid.closing.append(growth_sentence(growth, current_style().label(growth.size)))
    return grid


def growth_sentence(growth: SizeGrowth, name: str, write: Callable[..., str] = TWO_DECIMALS) -> str:
    """Return the power law of a best size, or why there is none. name: of the size."""
    if growth.exponent is None:
        return f"No power law of the best {name}: {growth.why}."
    exponent = with_interval(growth.exponent, growth.ci95, write)
    missing = f" ({growth.why})" if growth.why else ""
    return f"Best {name}: as C^{exponent} over {growth.budgets} budgets, within them only{missing}."


def best_text(best: BestSize) -> str:
    """Return the best size with its interval, whose end beyond the sizes is a bound, such as "<16"."""
    if best.best is None:
        return ABSENT
    if best.ci95 is None:
        return number_text(best.best)
    low, high = best.ci95
    smallest = min(best.sizes)
    largest = max(best.sizes)
    first = f"<{number_text(smallest)}" if low < smallest else number_text(low)
    last = f">{number_text(largest)}" if high > largest else number_text(high)
    return f"{number_text(best.best)} [{first}, {last}]"


def number_text(size: float) -> str:
    return count_text(round(size)) if size >= 1000 else f"{size:#.3g}".removesuffix(".")


def with_interval(value: float | None, interval: Interval | None, write: Callable[..., str]) -> str:
    return f"{write(value)} {interval_text(interval, write)}".strip()
