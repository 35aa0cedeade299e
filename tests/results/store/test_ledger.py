"""The ledger: declarations of plans that outlive the plans, and are never lost or changed in silence."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import synthetic

from results import store
from results.store import ledger
from results.store.schemas.declarations import Declaration
from results.store.schemas.plans import Plan


def planned(**given: Any) -> Plan:
    return Plan.model_validate(synthetic.position(**given))


def finish(runs: Path, plan: Plan, seeds: int) -> None:
    """Leave a result of the first `seeds` seeds of every arm."""
    for arm in plan.arms:
        for trial in arm.trials[:seeds]:
            folder = runs / "trials" / trial.id
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "result.json").touch()


def declared(runs: Path) -> list[tuple[str, int, int]]:
    """Return (plan, number of seeds, number of trials that had results) for the declarations of a run directory."""
    return [(one.plan, len(one.seeds), len(one.ended)) for one in ledger.read_declarations(runs)]


def test_a_declaration_holds_what_the_plan_declares(tmp_path: Path) -> None:
    plan = planned(seeds=2, margin=0.02, grows=True)
    finish(tmp_path, plan, 1)
    ledger.declare(tmp_path, plan)
    (one,) = ledger.read_declarations(tmp_path)
    assert (one.plan, one.metric, one.margin, one.grows) == ("position-embedding@digits", "test_accuracy", 0.02, True)
    assert (one.baseline, one.seeds, one.family) == ("position=1d", [0, 1], 3)
    assert {name: (arm.baseline, arm.trials) for name, arm in one.arms.items()} == {
        arm.name: (arm.baseline, [trial.id for trial in arm.trials]) for arm in plan.arms
    }
    assert sorted(one.ended) == sorted(arm.trials[0].id for arm in plan.arms)


@pytest.mark.parametrize(
    "change",
    [
        {"margin": 0.05}, {"margin": None}, {"metric": "val_accuracy"}, {"grows": True}, {"seeds": 6}, {"family": 1},
    ],
)  # fmt: skip
def test_only_what_differs_from_the_plans_newest_declaration_is_added(tmp_path: Path, change: dict[str, Any]) -> None:
    for given in ({}, {}, change, change, {}):
        ledger.declare(tmp_path, planned(**given))
    found = ledger.read_declarations(tmp_path)
    assert len(found) == 3
    assert found[0].content("time") == found[2].content("time") != found[1].content("time")
    assert [one.time for one in found] == sorted({one.time for one in found})


def test_declarations_keep_their_order_although_a_clock_is_behind(tmp_path: Path) -> None:
    ledger.declare(tmp_path, planned())
    (first,) = ledger.read_declarations(tmp_path)
    ahead = first.model_copy(update={"time": "2999-01-01T00:00:00.000000Z"})
    (path,) = (tmp_path / "ledger").iterdir()
    path.unlink()
    ledger.write(tmp_path, ahead)
    ledger.declare(tmp_path, planned(margin=0.05))
    assert [one.margin for one in ledger.read_declarations(tmp_path)] == [first.margin, 0.05]


def old_plan(runs: Path, looks: list[int], **given: Any) -> Plan:
    """Write a plan as 0.23 did, with looks.json beside it."""
    content = synthetic.position(seeds=looks[-1], looks=looks, **given)
    folder = runs / "studies" / content["name"]
    store.write_plan(folder / "plan.json", Plan.model_validate(content))
    firsts = [arm["trials"][0]["id"] for arm in content["arms"]]
    store.write_json(folder / "looks.json", {"schema": 1, "looks": looks, "trials": firsts})
    return Plan.model_validate(content)


@pytest.mark.parametrize("looks", [[5], [5, 10], [3, 5, 10]])
def test_plans_of_an_earlier_version_are_read_as_declarations(tmp_path: Path, looks: list[int]) -> None:
    """Whoever reads them writes nothing. The next declaration of any plan writes them too."""
    plan, name = old_plan(tmp_path, looks), "position-embedding@digits"
    ended = [0, *(4 * seeds for seeds in looks[:-1])]
    known = [(name, seeds, before) for seeds, before in zip(looks, ended, strict=True)]
    assert declared(tmp_path) == known
    assert not (tmp_path / "ledger").exists()
    ledger.declare(tmp_path, Plan.model_validate(synthetic.pooling()))
    assert sorted(declared(tmp_path)) == sorted([*known, ("pooling@digits", 5, 0)])
    folder = tmp_path / "studies" / name
    (folder / "plan.json").unlink()
    (folder / "looks.json").unlink()
    assert len(declared(tmp_path)) == len(looks) + 1
    assert all(one.arms.keys() == {arm.name for arm in plan.arms} for one in ledger.read_declarations(tmp_path)[:-1])


def test_looks_of_a_plan_that_was_removed_under_an_earlier_version_are_read(tmp_path: Path) -> None:
    plan = old_plan(tmp_path, [5, 10])
    (tmp_path / "studies/position-embedding@digits/plan.json").unlink()
    found = ledger.read_declarations(tmp_path)
    assert [len(one.seeds) for one in found] == [5, 10]
    assert found[0].ids == {arm.trials[0].id for arm in plan.arms}


def damage(path: Path) -> None:
    path.write_text(path.read_text().replace('"seeds"', '"sEeds"'))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.parametrize("spoil", [damage, truncate])
def test_a_damaged_declaration_is_named(tmp_path: Path, spoil: Any) -> None:
    ledger.declare(tmp_path, planned())
    (path,) = (tmp_path / "ledger").iterdir()
    spoil(path)
    for act in (lambda: ledger.read_declarations(tmp_path), lambda: ledger.declare(tmp_path, planned(margin=0.1))):
        with pytest.raises(ValueError, match=rf"ledger/{path.name}: edited or damaged: restore it, or remove it"):
            act()


def changed_file(runs: Path, **fields: Any) -> Path:
    """Write a declaration with other fields, under the name that its bytes give it."""
    ledger.declare(runs, planned())
    (path,) = (runs / "ledger").iterdir()
    payload = json.dumps(store.read_json(path) | fields).encode()
    path.unlink()
    changed = runs / "ledger" / ledger.file_name(payload)
    changed.write_bytes(payload)
    return changed


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"time": "yesterday"}, "time: string should match pattern"),
        ({"time": "2026-99-99T00:00:00Z"}, "time: "),
        ({"time": "9999-12-31T23:59:59.999999Z"}, "time: string should match pattern"),
        ({"ended": ["../../x"]}, "ended.0: string should match pattern"),
        ({"arms": {"a": {"trials": []}}}, "arms.a.baseline: field required"),
        ({"seeds": [True]}, "seeds.0: input should be a valid integer"),
        ({"margin": -1.0}, "margin"),
        ({"schema": 2}, "schema 2 is newer than this version reads"),
    ],
)
def test_a_declaration_of_another_form_is_one_clear_line(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    path = changed_file(tmp_path, **fields)
    with pytest.raises(ValueError) as error:
        ledger.read_declarations(tmp_path)
    assert message in str(error.value)
    assert f"ledger/{path.name}" in str(error.value)
    assert "\n" not in str(error.value)


def test_nothing_waits_for_a_pipe_and_other_files_are_left_alone(tmp_path: Path) -> None:
    ledger.declare(tmp_path, planned())
    (tmp_path / "ledger/notes.txt").write_text("mine")
    (tmp_path / "ledger/.0123.json.tmp").write_text("torn")
    assert len(ledger.read_declarations(tmp_path)) == 1
    os.mkfifo(tmp_path / "ledger/0123456789abcdef.json")
    with pytest.raises(ValueError, match=r"ledger/0123456789abcdef.json is not a regular file"):
        ledger.read_declarations(tmp_path)


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    runs, elsewhere = tmp_path / "runs", tmp_path / "elsewhere"
    runs.mkdir()
    elsewhere.mkdir()
    (runs / "ledger").symlink_to(elsewhere)
    with pytest.raises(ValueError, match="ledger: is a link"):
        ledger.declare(runs, planned())
    assert not [*elsewhere.iterdir()]


def test_a_plan_gets_the_declarations_that_share_a_trial(tmp_path: Path) -> None:
    """They go by trials, whatever the plan's name."""
    plans: list[Mapping[str, Any]] = [
        synthetic.position(), synthetic.position(name="copy@digits"), synthetic.pooling(overrides={"width": 64}),
    ]  # fmt: skip
    for content in plans:
        ledger.declare(tmp_path, Plan.model_validate(content))
    known = ledger.read_declarations(tmp_path)

    def names(plan: Mapping[str, Any]) -> list[str]:
        found: list[Declaration] = ledger.with_declarations(Plan.model_validate(plan), known).declarations
        return [one.plan for one in found]

    assert names(plans[0]) == names(plans[1]) == ["position-embedding@digits", "copy@digits"]
    assert names(plans[2]) == ["pooling@digits"]
