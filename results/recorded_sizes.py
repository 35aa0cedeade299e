"""The parameters and FLOPs that trials recorded. Tables and figures show these, even if the plan has others."""

import math
from collections.abc import Mapping
from typing import Any

from results.store.record import Record
from results.store.schemas import Arm, Plan

SIZES = {"params": "parameters", "flops": "FLOPs an image"}


def with_recorded_sizes(plan: Plan, records: Mapping[str, Record]) -> Plan:
    """Return the plan with the sizes that the trials of each arm recorded. records: trial id -> record.

    A size that an arm's trials do not share becomes None. A note of the arm says where plan and trials differ.
    """
    return plan.model_copy(update={"arms": [with_recorded(arm, records) for arm in plan.arms]})


def with_recorded(arm: Arm, records: Mapping[str, Record]) -> Arm:
    changes: dict[str, Any] = {}
    notes = []
    for name, label in SIZES.items():
        planned, found = getattr(arm, name), recorded(arm, records, name)
        if planned is None or not found - {planned}:
            continue
        changes[name] = min(found) if len(found) == 1 else None
        sizes = " or ".join(f"{size:,}" for size in sorted(found))
        notes.append(f"trained with {sizes} {label}, not the {planned:,} of the plan: the code has changed since")
    if "flops" in changes:
        changes["train_flops"] = None  # the plan's follow from its FLOPs an image
    return arm.model_copy(update={**changes, "notes": [*arm.notes, *notes]}) if changes else arm


def recorded(arm: Arm, records: Mapping[str, Record], name: str) -> set[int]:
    """Return the distinct values of a size that the arm's trials recorded."""
    values = [records[trial.id].values.get(name) for trial in arm.trials]
    return {int(value) for value in values if isinstance(value, int | float) and not math.isnan(value)}
