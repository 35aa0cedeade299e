"""What a plan says of its data."""

from ablations.planning import data_summary


def test_tokens_are_those_of_the_arms_that_have_any() -> None:
    """A reference model of timm counts none."""
    config = {"val_fraction": 0.1, "data_fraction": 1.0, "image_size": 8}
    arms = [{"name": "a", "config": config, "tokens": 16}, {"name": "resnet", "config": config, "tokens": None}]
    data = {"name": "d", "train": 100, "test": 20, "folds": None, "classes": 2, "image_size": 8}
    said = data_summary.seen({"data": data, "baseline": "a", "arms": arms})
    assert said.endswith("seen at 8, 16 tokens")
    assert "about 90 images to train, 10 to validate, 20 to test" in said
