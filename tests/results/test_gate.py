"""`ablate compare` and its gates, `--fail-on worse` and `--margin`: exit status and one line."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import synthetic
from in_process import Ablate, refusal


def written(folder: Path, **changes: Sequence[float | None]) -> str:
    plan = synthetic.position()
    return str(synthetic.write(folder, plan, synthetic.position_records(plan, **changes)))


def test_the_gate_says_what_it_could_have_seen(tmp_path: Path, ablate: Ablate) -> None:
    """The exit status is 1 where B is worse, 0 where not, and 2 where nothing could be tested."""
    a, b = written(tmp_path / "a"), written(tmp_path / "b", none=[0.70, 0.68, 0.71, 0.69, 0.71])
    more = str(synthetic.write(Path(written(tmp_path / "more")), synthetic.hybrid_stem(overrides={"width": 64})))
    seen = r"differences of \d+\.\d\d points or more would have been seen \(80% power\); 3 identical"
    other = str(synthetic.write(tmp_path / "c", synthetic.hybrid_stem(overrides={"width": 64})))
    named = r"1 of 1 tested arm worse \(position=none of position-embedding@digits by 6\.20 points\)"
    for first, second, expected, said in (
        (a, b, 1, rf"{named}; {seen}"),
        (b, a, 0, f"0 of 1 tested arm worse; {seen}"),
        (a, a, 0, ""),
        (a, other, 2, "no arm could be compared"),
        (a, more, 2, "4 arms are identical in A and B, and no other could be tested"),
    ):
        status, _, errors = ablate("compare", first, second, "--fail-on", "worse")
        assert (status, errors.count("\n")) == (expected, 1)
        assert re.search(f"--fail-on worse: {said}", errors)


def test_the_gate_takes_a_margin(tmp_path: Path, ablate: Ablate) -> None:
    """The gate passes only where every arm is shown not to be worse by the margin."""
    noisy, close = [0.70, 0.80, 0.78, 0.72, 0.79], [0.762, 0.748, 0.771, 0.739, 0.779]
    a = written(tmp_path / "a")
    b, c = written(tmp_path / "b", none=noisy), written(tmp_path / "c", none=close)
    assert ablate("compare", a, b, "--fail-on", "worse")[0] == 0
    margin = ("--fail-on", "worse", "--margin", "0.01")
    status, output, errors = ablate("compare", a, b, *margin, "--json")
    difference = np.subtract(synthetic.ACCURACIES["position=none"], noisy)
    high = scipy.stats.ttest_1samp(difference, 0).confidence_interval(0.90).high
    row = next(row for row in json.loads(output)["rows"] if row["arm"] == "position=none")
    assert row["worse_by_at_most"] == pytest.approx(high)
    assert status == 1
    assert "1 of 4 arms may be worse by 0.01 or more (position=none of position-embedding@digits: up " in errors
    for other in (a, c):
        assert ablate("compare", a, other, *margin)[0] == 0
    for word in ("0", "abc"):
        assert f"'{word}' is not a number above 0" in refusal(ablate, "compare", a, b, *margin[:-1], word)


def test_the_gate_takes_a_share_of_as_error(tmp_path: Path, ablate: Ablate) -> None:
    """The bound on the growth of the error is that of a one-sided test of B's error - (1 + share) x A's."""
    noisy = [0.70, 0.80, 0.78, 0.72, 0.79]
    a, b = written(tmp_path / "a"), written(tmp_path / "b", none=noisy)
    gate = ("compare", a, b, "--fail-on", "worse", "--margin")
    status, output, errors = ablate(*gate, "20%", "--json")
    row = next(row for row in json.loads(output)["rows"] if row["arm"] == "position=none")
    errs = [1 - np.array(one) for one in (synthetic.ACCURACIES["position=none"], noisy)]
    contrast = errs[1] - (1 + row["worse_share_at_most"]) * errs[0]
    assert scipy.stats.ttest_1samp(contrast, 0, alternative="less").pvalue == pytest.approx(0.05)
    assert status == (row["worse_share_at_most"] >= 0.2)
    assert "may be worse by 20% of A's error or more" in errors
    assert ablate(*gate, "50%")[0] == 0
    for word in ("80%", "x%"):
        assert "a share of A's error up to 50%" in refusal(ablate, *gate, word)


@pytest.mark.parametrize("margin", ["0.01", "20%"])
def test_equal_numbers_of_other_weights_pass_the_gate(tmp_path: Path, ablate: Ablate, margin: str) -> None:
    """All differences are 0, so that none can be tested, and none exceeds a margin, not even of an error of 0."""
    sides = []
    for name in ("a", "b"):
        plan = synthetic.position()
        for arm in plan["arms"]:
            for trial in arm["trials"]:
                trial["id"] = synthetic.digest(name + trial["id"])
        sides.append(str(synthetic.write(tmp_path / name, plan, synthetic.position_records(plan, none=[1.0] * 5))))
    status, _, errors = ablate("compare", *sides, "--fail-on", "worse", "--margin", margin)
    assert (status, errors.count("\n")) == (0, 1)
    assert "0 of 4 arms may be worse" in errors


@pytest.mark.parametrize("margin", [[], ["--margin", "0.01"]])
def test_an_unfinished_side_never_passes_the_gate(tmp_path: Path, ablate: Ablate, margin: list[str]) -> None:
    """The exit status is 2 with one line, or 1 where an arm of a finished study fails."""
    a, b = written(tmp_path / "a"), written(tmp_path / "b", none=[0.70, 0.68, 0.71, 0.69, None])
    gate = ("--fail-on", "worse", *margin)
    for first, second in ((a, b), (b, a)):
        status, output, errors = ablate("compare", first, second, *gate, "--json")
        assert status == 2
        assert "Interim: planned trials of position-embedding@digits are not over, so there is no verdict" in errors
        assert errors.count("\n") == 1
        assert not json.loads(output)["judged"]
    status, output, errors = ablate("compare", a, b, *gate, "--interim")
    assert status == 1
    assert "worse (interim)" in output
    plan = synthetic.hybrid_stem(overrides={"width": 64})
    for folder, worse in ((a, 0.0), (b, 0.01)):
        numbers = {arm["name"]: [0.9 - worse * (5 + seed) for seed in range(5)] for arm in plan["arms"]}
        synthetic.write(Path(folder), plan, synthetic.from_accuracies(plan, numbers))
    status, _, errors = ablate("compare", a, b, *gate)
    assert status == 1
    assert "1 B unfinished" in errors


def test_compare_takes_the_studies_that_it_is_asked_for(tmp_path: Path, ablate: Ablate) -> None:
    a = written(tmp_path / "a")
    synthetic.write(tmp_path / "a", synthetic.pooling())
    for b, key, number in ((a, "rows", 4), ("published", "claims", 2)):
        status, output, _ = ablate("compare", a, b, "position-embedding", "--format", "json")
        assert (status, len(json.loads(output)[key])) == (0, number)
    assert "no study 'positions'" in refusal(ablate, "compare", a, "published", "positions")
