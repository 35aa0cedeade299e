"""What a plan says of its data."""

from ablations.planning import data_summary
from results.store.schemas import Arm, Plan, PlannedData


def test_tokens_are_those_of_the_arms_that_have_any() -> None:
    """A reference model of timm counts none."""
    config = {"val_fraction": 0.1, "data_fraction": 1.0, "image_size": 8}
    arms = [{"name": "a", "config": config, "tokens": 16}, {"name": "resnet", "config": config, "tokens": None}]
    size = {"train": 100, "test": 20, "folds": None, "classes": 2, "image_size": 8, "channels": 1}
    plan = Plan.model_construct(baseline="a", arms=[Arm.model_construct(**arm) for arm in arms])
    said = data_summary.images_text(PlannedData(name="d", of_recipe=True, **size), plan)
    assert said.endswith("trained at 8, 16 tokens")
    assert "about 90 images to train, 10 to validate, 20 to test" in said
