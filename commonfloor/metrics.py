"""How metrics are compared and printed, by the fields of results.store.schemas.metrics.Metric."""

from typing import Any

LOSS: dict[str, Any] = {"higher_is_better": False}
ACCURACY: dict[str, Any] = {
    "higher_is_better": True,
    "is_accuracy": True,
    "lowest": 0.0,
    "highest": 1.0,
    "unit": "%",
    "unit_of_difference": " points",
    "scale": 100.0,
    "decimals": 2,
}
