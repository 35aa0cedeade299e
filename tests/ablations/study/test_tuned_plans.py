"""Plans of studies that tune every arm: the grid, its families, and a grid that cannot be."""

from pathlib import Path

import pytest
from designs import RECIPE, design

from ablations.planning import plan as planning
from ablations.planning.jobs import write as write_plan
from ablations.planning.prepare import prepare

TUNED = "{question: q, baseline: {pool: cls}, factors: {pool: [cls, gap]}, tune: {lr: [1e-3, 2e-3, 4e-3]}}"


def test_the_plan_names_the_grid_of_every_arm(tmp_path: Path) -> None:
    """The tuned contrasts are the table's family, and the points another; a curve is tuned at each of its points."""
    plan = planning.build(design(tmp_path, TUNED), [0, 1])
    assert (len(plan.arms), plan.family, plan.points_family, plan.tune) == (6, 1, 3, {"lr": [0.001, 0.002, 0.004]})
    cls, gap = plan.tuned
    assert (gap.name, gap.baseline) == ("pool=gap,lr=tuned", cls.name)
    assert gap.points == [f"pool=gap,lr={lr}" for lr in (0.001, 0.002, 0.004)]
    plan = planning.build(design(tmp_path, TUNED.replace("tune:", "curves: {data_fraction: axis}, tune:")), [0])
    assert [one.name for one in plan.tuned[:2]] == [f"pool=cls,data_fraction={part},lr=tuned" for part in (0.1, 1.0)]
    assert plan.family == 2


@pytest.mark.parametrize(
    ("grid", "overrides", "message"),
    [
        ("[1e-3, 2e-3]", {}, "tune: lr=0.001, 0.002: at least 3 values, ascending: the best must lie inside"),
        ("[4e-3, 2e-3, 1e-3]", {}, "ascending"),
        ("[low, middle, high]", {}, "tune: lr=low, middle, high: numbers"),
        ("[1e-3, 2e-3, 4e-3]", {"val_fraction": 0.0}, r"val_fraction=0(\.0)?: a number above 0"),
    ],
)
def test_a_grid_without_an_inside_or_without_validation_is_refused(
    tmp_path: Path, grid: str, overrides: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        planning.build(design(tmp_path, TUNED.replace("[1e-3, 2e-3, 4e-3]", grid), RECIPE, **overrides), [0])


def test_an_earlier_plan_grows_into_a_tuned_one(tmp_path: Path) -> None:
    """A curve that becomes a grid keeps its trials, and an arm that is removed stays tuned."""
    runs = tmp_path / "runs"
    curve = TUNED.replace("tune:", "curves:").replace("[cls, gap]", "[cls, gap, map]")
    write_plan(runs, prepare(design(tmp_path, curve), runs, 2))
    grown = prepare(design(tmp_path, TUNED), runs, 2)
    assert (len(grown.arms), len(grown.tuned), grown.family, grown.points_family) == (9, 2, 1, 6)
    write_plan(runs, prepare(design(tmp_path, TUNED.replace("[cls, gap]", "[cls, gap, map]")), runs, 2))
    grown = prepare(design(tmp_path, TUNED), runs, 2)
    assert [entry.change for entry in grown.tuned] == ["pool=cls", "pool=gap", "pool=map"]
    assert (grown.family, grown.points_family) == (2, 6)
