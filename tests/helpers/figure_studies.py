"""A made-up study for each kind of figure: for the tests of figures, and for the gallery of the documentation."""

import json
from typing import Any

import synthetic

from results.study_results import StudyResults


def complete(figure: str) -> StudyResults:
    """Make the study that shows this kind of figure, by default that of position embeddings."""
    plans = {
        "learning-rate": synthetic.pooling,
        "axis": synthetic.patch_size,
        "scale": synthetic.dataset_scale,
        "compute": synthetic.hybrid_stem,
        "curves": synthetic.pooling,
        "shape": synthetic.model_shape,
        "families": synthetic.compute,
    }
    return synthetic.results(spread(plans.get(figure, synthetic.position)(figure=figure)))


def spread(plan: dict[str, Any], ratio: float = 1.7) -> dict[str, Any]:
    """Give a different compute to every arm that has none of its own."""
    for k, arm in enumerate(plan["arms"]):
        arm["flops"] = arm.get("flops_of_its_own") or int(1.6e6 * ratio**k)
        arm["train_flops"] = 3 * arm["flops"] * 42_240
        arm["config"].setdefault("image_size", 8)
    return plan


def at_new_sizes() -> StudyResults:
    """Make a study trained at 8 pixels, tested at 16 with 20 points less, and not yet tested at 32."""
    plan = spread(synthetic.position(figure="new-size", metric="test_accuracy@16", evals=["test@16", "test@32"]))
    records = {}
    for trial, record in synthetic.simulate(plan).items():
        metrics = {"test_accuracy@16": record.values["test_accuracy"] - 0.2}
        measured = json.dumps({"test@16": {"metrics": metrics, "notes": []}})
        records[trial] = synthetic.changed(record, evals=measured)
    return synthetic.results(plan, records)
