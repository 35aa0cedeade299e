"""Notes on trials that ran with other code, settings or plug-ins."""

import json
from dataclasses import replace

import pytest
import synthetic

from results.store.schemas.trials import EvalSummary
from results.tables.study_table import table

EAGER = {"compile": "false", "attention": "flash", "matmul_precision": "highest", "tf32": "convolutions"}
COMPILED = {"compile": "true", "attention": "math", "matmul_precision": "high", "tf32": "none"}
CODE, OTHER = "0123456789ab", "fedcba987654"
AFTER = "position=none seed 3"


def plugins(*digests: str) -> dict[str, str]:
    """Return the provenance of a trial that loaded plugins of these digests; patch.py is the first."""
    names = dict(zip(("patch.py", "other.py"), digests, strict=False))
    return {"code": f"{CODE}+{'+'.join(digests)}", "plugins": json.dumps(names)}


@pytest.mark.parametrize(
    ("values", "notes"),
    [
        ({3: {"code": OTHER}}, [f"code differs between trials: {CODE} (19), {OTHER} ({AFTER})"]),
        (
            {3: {"threads": "2", "fused": "8", "micro_batch": "64", "ranks": "2"}},
            [
                *(f"{name} differs between trials: 1 (19), 2 ({AFTER})" for name in ("threads", "ranks")),
                f"micro-batch differs between trials: the whole batch (19), 64 ({AFTER})",
                f"trained differs between trials: alone (19), as one ({AFTER})",
            ],
        ),
        ({1: EAGER, 2: EAGER}, []),  # the others do not say
        (
            {1: EAGER, 2: EAGER, 3: COMPILED},
            [
                f"compile differs between trials: false (2), true ({AFTER})",
                f"attention differs between trials: flash (2), math ({AFTER})",
                f"precision of float32 products differs between trials: highest (2), high ({AFTER})",
                f"TF32 differs between trials: convolutions (2), none ({AFTER})",
            ],
        ),
        ({3: plugins("aaaa")}, []),  # a shared baseline is trained without them
        (
            {0: plugins("aaaa", "cccc"), 1: plugins("aaaa", "cccc"), 3: plugins("bbbb", "cccc")},
            [f"plugin patch.py differs between trials: aaaa (2), bbbb ({AFTER})"],
        ),
        (
            {3: {"code": f"{CODE} then {OTHER}"}},
            [f"code differs between trials: {CODE} (19), {CODE} then {OTHER} ({AFTER})"],
        ),
        ({3: {"code": f"{CODE} then {CODE}+aaaa", "plugins": '{"patch.py": "aaaa"}'}}, []),
        (
            {3: {"code": f"{CODE}+aaaa then {CODE}+bbbb", "plugins": '{"patch.py": "aaaa then bbbb"}'}},
            ["plugin patch.py differs within trials: aaaa then bbbb (1)"],
        ),
        (
            {seed: {"code": OTHER} for seed in range(5)},
            [f"code differs between trials: {CODE} (15), {OTHER} (all of position=none)"],
        ),
    ],
)
def test_trials_that_ran_otherwise_are_named(values: dict[int, dict[str, str]], notes: list[str]) -> None:
    plan = synthetic.position()
    records = synthetic.simulate(plan)
    for seed, changes in values.items():
        key = synthetic.trial_id(plan, "position=none", seed)
        records[key] = synthetic.changed(records[key], **changes)
    assert table(synthetic.results(plan, records)).notes == notes


def test_evals_of_other_images_under_one_name_are_named() -> None:
    plan = synthetic.position()
    records = synthetic.simulate(plan)
    for trial, record in records.items():
        sha256 = OTHER if trial == synthetic.trial_id(plan, "position=none", 3) else CODE
        summary = EvalSummary(metrics={"test_accuracy@v2": 0.5}, data_sha256=f"{sha256}ff")
        records[trial] = replace(record, evals={"test@v2": summary})
    notes = table(synthetic.results(plan, records)).notes
    assert notes == [f"data of test@v2 differs between trials: {CODE} (19), {OTHER} ({AFTER})"]


def test_many_arms_that_ran_otherwise_are_counted() -> None:
    study = synthetic.results(synthetic.position())
    study.columns["code"] = [OTHER if seed == 1 else CODE for seed in study.columns["seed"]]
    assert table(study).notes == [f"code differs between trials: {CODE} (16), {OTHER} (4 trials of 4 arms)"]
