"""Two sets of results, arm by arm: what B is against A. Arms are matched by what was trained, not by name."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from results import contrast, grid, layout, mixed, sentences, stats, tables, units, verdict
from results.contrast import Sample
from results.grid import Cell, Grid
from results.stats import Estimate
from results.study import StudyResults

Json = dict[str, Any]

IDENTICAL = "identical"


@dataclass(frozen=True)
class Side:
    """An arm of one of the two sets: its row in its own study's table, its trials, and its differences from the
    baseline (None for a baseline)."""

    study: StudyResults
    arm: Mapping[str, Any]
    row: Mapping[str, Any]
    trials: Sample
    contrast: Sample | None


@dataclass(frozen=True)
class Test:
    """B - A, without the trials that are the same on both sides.

    method: paired, welch, or none where nothing is left to test. trials: what makes two tests the same test.
    """

    difference: Estimate
    method: str
    identical: list[int]
    repeated: list[int]
    trials: tuple[str, ...]


@dataclass(frozen=True)
class Pair:
    """Arms to set side by side; None where one side has none. The row is named after `first`."""

    a: Side | None
    b: Side | None
    first: Side


def compare(a: Sequence[StudyResults], b: Sequence[StudyResults]) -> Json:
    """What `ablate compare --format json` prints: verdicts of B against A, Holm over all rows that were tested."""
    pairs = list(matched(sides(a), sides(b)))
    tests = [tested(pair, lambda side: side.trials) for pair in pairs]
    contrasts = [tested(pair, lambda side: side.contrast) for pair in pairs]
    family = len(distinct(tests))
    found = zip(pairs, tests, adjusted(tests), contrasts, adjusted(contrasts), strict=True)
    rows = [compared_row(*parts, family) for parts in found]
    return {
        "a": described(a),
        "b": described(b),
        "rows": rows,
        "provenance": provenance(a, b),
        "family": family,
        "verdicts": dict(Counter(row["verdict"] for row in rows if row["verdict"])),
    }


# -- who is compared with whom -----------------------------------------------------------------------------------------


def sides(studies: Sequence[StudyResults]) -> list[Side]:
    """Every arm of every study."""
    found = []
    for study in studies:
        plan, rows = study.plan, tables.table(study)["rows"]
        trials = {arm["name"]: contrast.sample(study, arm["name"], plan["metric"]) for arm in plan["arms"]}
        for arm, row in zip(plan["arms"], rows, strict=True):
            own, baseline = trials[arm["name"]], trials[arm["baseline"]]
            found.append(Side(study, arm, row, own, None if own is baseline else own - baseline))
    return found


def matched(a: Sequence[Side], b: Sequence[Side]) -> Iterator[Pair]:
    """Each arm of A with that of the same config in B, else with its namesake; then what only B has."""
    used: set[int] = set()
    for side in a:
        best = counterpart(side, b)
        used.add(id(best))
        yield Pair(side, best, first=side)
    yield from (Pair(counterpart(side, a), side, first=side) for side in b if id(side) not in used)


def counterpart(side: Side, others: Sequence[Side]) -> Side | None:
    """One config may be an arm of several studies: the same study is preferred."""
    alike = [other for other in others if trained_alike(side, other)]
    known = alike or [other for other in others if namesakes(side, other)]
    return max(known, key=lambda other: (side.study.name == other.study.name, namesakes(side, other)), default=None)


def trained_alike(a: Side, b: Side) -> bool:
    """The same resolved config but for the seeds, and the same metric."""
    return bool(a.arm["key"] == b.arm["key"] and a.study.plan["metric"] == b.study.plan["metric"])


def namesakes(a: Side, b: Side) -> bool:
    """Arms of one name in one study, by other recipes or on other data."""
    return bool(a.study.plan["study"] == b.study.plan["study"] and a.arm["name"] == b.arm["name"])


# -- the tests ---------------------------------------------------------------------------------------------------------


def tested(pair: Pair, what: Callable[[Side], Sample | None]) -> Test | None:
    """None where the two are not comparable."""
    a, b = pair.a, pair.b
    if a is None or b is None or not trained_alike(a, b):
        return None
    left, right = what(a), what(b)
    if left is None or right is None:
        return None
    return test(left, right, a.study.plan["split"] == b.study.plan["split"])


def test(a: Sample, b: Sample, same_split: bool) -> Test:
    """Paired on at least two common seeds of the same split, else Welch's."""
    common = sorted(a.values.keys() & b.values.keys())
    again = [seed for seed in common if a.ids[seed] == b.ids[seed]]
    identical = [seed for seed in again if a.values[seed] == b.values[seed]]
    repeated = [seed for seed in again if seed not in identical]
    trials = (*(a.ids[s] for s in a.seeds), "/", *(b.ids[s] for s in b.seeds))
    new_a, new_b = a.without(identical), b.without(identical)
    if identical and not (new_a.values and new_b.values):
        return Test(Estimate(len(identical), 0.0, why=IDENTICAL), "none", identical, repeated, trials)
    pairs = new_b - new_a
    if same_split and len(pairs.values) > 1 and not other_images(new_a, new_b):
        return Test(contrast.mean(pairs), "paired", identical, repeated, trials)
    return Test(stats.welch(new_a.numbers, new_b.numbers), "welch", identical, repeated, trials)


def other_images(a: Sample, b: Sample) -> bool:
    """Whether a seed is known to have tested other images on the other side."""
    return any(not a.same_images(b, seed) for seed in a.correct.keys() & b.correct.keys())


def distinct(tests: Sequence[Test | None]) -> dict[tuple[str, ...], float]:
    """Each test that gave a p, once: a baseline shared by several studies is one test."""
    return {test.trials: test.difference.p for test in tests if test and test.difference.p is not None}


def adjusted(tests: Sequence[Test | None]) -> list[float | None]:
    family = distinct(tests)
    p_holm = dict(zip(family, stats.holm(list(family.values()), len(family)), strict=True))
    return [p_holm.get(test.trials) if test else None for test in tests]


# -- the rows ----------------------------------------------------------------------------------------------------------


def compared_row(
    pair: Pair,
    test: Test | None,
    p_holm: float | None,
    change: Test | None,
    p_change: float | None,
    family: int,
) -> Json:
    a, b, plan = pair.a, pair.b, pair.first.study.plan
    difference = test.difference if test else Estimate(0, None)
    return {
        "study": plan["study"],
        "recipe": plan["recipe"],
        "name": plan["name"],
        "metric": plan["metric"],
        "arm": pair.first.arm["name"],
        "a": reached(a),
        "b": reached(b),
        "delta": difference.value,
        "delta_ci95": tables.listed(difference.interval()),
        "p": difference.p,
        "p_holm": p_holm,
        "verdict": judged(a, b, test, p_holm),
        "method": test.method if test else None,
        "n_pairs": difference.n if test and test.method == "paired" else None,
        "identical": test.identical if test else [],
        "contrast": contrast_row(a, b, change, p_change),
        "notes": notes(pair, test, p_holm, family),
    }


def reached(side: Side | None) -> Json | None:
    if side is None:
        return None
    return {name: side.row[name] for name in ("mean", "n", "ci95", "planned", "diverged", "failed", "missing")}


def judged(a: Side | None, b: Side | None, test: Test | None, p_holm: float | None) -> str | None:
    """The verdict of B against A; identical where every common trial is."""
    if a is None or b is None or test is None:
        return None
    if test.method == "none":
        return IDENTICAL
    return verdict.verdict(
        test.difference,
        p_holm,
        margin=margin(a, b),
        higher_is_better=units.higher_is_better(a.study.plan["metric"]),
        diverged=(b.row["diverged"], a.row["diverged"]),
    )


def margin(a: Side, b: Side) -> float | None:
    """What counts as equivalent, where both sides say the same."""
    own: float | None = a.study.plan["margin"]
    return own if own == b.study.plan["margin"] else None


def contrast_row(a: Side | None, b: Side | None, test: Test | None, p_holm: float | None) -> Json | None:
    """What the arm is against its baseline on either side, and whether the two answers differ.

    A changed verdict is no evidence by itself: what is tested is the difference of the differences.
    """
    if a is None or b is None or test is None:
        return None
    return {
        "a": a.row["verdict"],
        "b": b.row["verdict"],
        "delta": test.difference.value,
        "delta_ci95": tables.listed(test.difference.interval()),
        "p_holm": p_holm,
    }


def notes(pair: Pair, test: Test | None, p_holm: float | None, family: int) -> list[str]:
    """Why a row is not a plain paired comparison, and what is missing on either side."""
    a, b = pair.a, pair.b
    if a is None or b is None:
        return [f"only in {'B' if a is None else 'A'}"]
    found = [f"{name}: {hole}" for name, side in (("A", a), ("B", b)) for hole in holes(side)]
    if not namesakes(a, b):
        other, name = (b, "B") if pair.first is a else (a, "A")
        found.append(f"{other.arm['name']} of {other.study.name} in {name}")
    if test is None:
        return [*found, f"shown side by side, not compared: {unlike(a, b)}"]
    word = judged(a, b, test, p_holm)
    unit = units.unit(a.study.plan["metric"])
    limits = verdict.disagreements(word, test.difference, None, p_holm, family=family, margin=margin(a, b), unit=unit)
    return found + test_notes(a, b, test) + limits + changed(a, b)


def test_notes(a: Side, b: Side, test: Test) -> list[str]:
    """How the test was made, and which trials stand on both sides."""
    found = []
    if test.method == "none" and a.trials.seeds != b.trials.seeds:
        found.append("identical where both sides have the trial; one side has more seeds")
    if test.method != "none" and test.difference.se is None:
        found.append(f"no interval, p or verdict of the difference: {test.difference.why}")
    elif test.method == "welch":
        found.append("not paired (Welch): fewer than 2 common seeds, or another split")
    if test.identical and test.method != "none":
        found.append(f"{sentences.named(test.identical)}: the same trial on both sides, left out of the test")
    if test.repeated:
        found.append(f"{sentences.named(test.repeated)}: the same trial gave another number")
    return found


def holes(side: Side) -> list[str]:
    trials = side.study.trials
    mine = trials[trials["arm"] == side.arm["name"]].to_dict("records")
    return tables.holes(mine, side.study.plan["metric"])


def changed(a: Side, b: Side) -> list[str]:
    """A verdict against the baseline that is another one in B."""
    before, after = a.row["verdict"], b.row["verdict"]
    if a.contrast is None or b.contrast is None or before == after:
        return []
    words = [(word or "without verdict").replace("-", " ") for word in (before, after)]
    return [f"against its baseline {words[0]} in A, {words[1]} in B: descriptive"]


def unlike(a: Side, b: Side) -> str:
    """What differs between the configs of two namesakes, the first three keys."""
    if a.study.plan["metric"] != b.study.plan["metric"]:
        return f"metric {a.study.plan['metric']} and {b.study.plan['metric']}"
    left, right = a.arm["config"], b.arm["config"]
    keys = [key for key in {**left, **right} if left.get(key) != right.get(key)]
    return ", ".join(f"{key} {left.get(key)} and {right.get(key)}" for key in keys[:3]) or "another version of a part"


# -- where they come from ----------------------------------------------------------------------------------------------


def described(studies: Sequence[StudyResults]) -> Json:
    """What one side holds."""
    over = sum(int(study.trials["status"].isin(["finished", "diverged"]).sum()) for study in studies)
    return {
        "studies": [study.name for study in studies],
        "planned": sum(len(study.trials) for study in studies),
        "over": over,
    }


def provenance(a: Sequence[StudyResults], b: Sequence[StudyResults]) -> Json:
    """What differs: code, versions, device, a plugin that both sides loaded; field -> the values on either side."""
    left, right = origins(a), origins(b)
    both = {name: {"a": left[name], "b": right[name]} for name in left if name in right}
    return {name: values for name, values in both.items() if values["a"] != values["b"]}


def origins(studies: Sequence[StudyResults]) -> dict[str, list[str]]:
    """Field -> the values that one side's trials have."""
    found: dict[str, set[str]] = {}
    for study in studies:
        own = [*mixed.compared(study.trials), *((name, study.trials[name].tolist()) for name in ("revision", "host"))]
        for name, values in own:
            found.setdefault(name, set()).update(values)
    return {name: sorted(values - {""}) for name, values in found.items()}


# -- rendering ---------------------------------------------------------------------------------------------------------


def render(comparison: Json, format: str) -> str:
    """The comparison as md, latex, csv, json or html. Raises ValueError for another format."""
    if format == "json":
        return json.dumps(comparison, indent=1, allow_nan=False)
    if format == "csv":
        return layout.as_csv([flat(row) for row in comparison["rows"]])
    return layout.written(as_grid(comparison), format)


def flat(row: Json) -> Json:
    """One line of a CSV file."""
    low, high = row["delta_ci95"] or (None, None)
    both = {f"{side}_{name}": (row[side] or {}).get(name) for side in ("a", "b") for name in ("mean", "n", "planned")}
    plain = {name: row[name] for name in ("study", "recipe", "arm", "metric")}
    tail = {name: row[name] for name in ("p", "p_holm", "verdict", "method", "n_pairs")}
    return {
        **plain,
        **both,
        "delta": row["delta"],
        "delta_ci95_low": low,
        "delta_ci95_high": high,
        **tail,
        "notes": "; ".join(row["notes"]),
    }


def as_grid(comparison: Json) -> Grid:
    marks, footnotes = grid.number([row["notes"] for row in comparison["rows"]])
    return Grid(
        title="B against A, arm by arm",
        caption=[caption(comparison)],
        header=["study", "arm", "A", "n", "B", "n", "B - A", "p (Holm)", "verdict"],
        numeric=[False, False, True, True, True, True, True, True, False],
        rows=[cells(row, mark) for row, mark in zip(comparison["rows"], marks, strict=True)],
        footnotes=footnotes,
        closing=closing(comparison),
    )


def cells(row: Json, marks: tuple[int, ...]) -> list[Cell]:
    unit = units.unit(row["metric"])
    a, b = row["a"] or {}, row["b"] or {}
    return [
        Cell(row["name"], row["name"]),
        Cell(row["arm"], row["arm"], marks),
        *(cell for side in (a, b) for cell in reached_cells(side, unit)),
        Cell(layout.plus_minus(unit.signed(row["delta"]), row["delta_ci95"], unit), row["delta"]),
        Cell(units.probability(row["p_holm"]), row["p_holm"]),
        Cell((row["verdict"] or "").replace("-", " "), row["verdict"]),
    ]


def reached_cells(side: Json, unit: units.Unit) -> list[Cell]:
    if not side:
        return [Cell(""), Cell("")]
    mean = layout.plus_minus(unit.value(side["mean"]), side["ci95"], unit)
    return [Cell(mean, side["mean"]), Cell(layout.of_planned(side, unit), side["n"])]


def caption(comparison: Json) -> str:
    sides = " ".join(
        f"{name}: {', '.join(side['studies'])} ({side['over']} of {side['planned']} trials)."
        for name, side in (("A", comparison["a"]), ("B", comparison["b"]))
    )
    tested = f"paired by seed, ± is the 95% t interval, p after Holm in a family of {comparison['family']}"
    return f"{sides} Accuracies in %, differences in points; {tested}."


def closing(comparison: Json) -> list[str]:
    counts = comparison["verdicts"]
    summary = ", ".join(f"{count} {word.replace('-', ' ')}" for word, count in counts.items()) or "nothing to test"
    lines = [f"Of {len(comparison['rows'])} arms: {summary}."]
    for name, both in comparison["provenance"].items():
        lines.append(f"{name} differs: A {', '.join(both['a']) or 'unknown'}; B {', '.join(both['b']) or 'unknown'}.")
    return lines
