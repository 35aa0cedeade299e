"""What else moved between an arm and its baseline, besides the declared factor: the footnotes of a table."""

from typing import Any

Measured = dict[str, Any]


def footnotes(arm: Measured, baseline: Measured) -> list[str]:
    """Tokens, parameters, FLOPs and class token, as `vitcore.measure` counts them, where both have one and differ."""
    notes = [
        f"{label} {arm[key]:,} against {baseline[key]:,}{change(arm[key], baseline[key])}"
        for key, label in (("tokens", "tokens"), ("params", "parameters"), ("flops", "FLOPs"))
        if differ(arm, baseline, key)
    ]
    if differ(arm, baseline, "class_token"):
        notes.append("has a class token" if arm["class_token"] else "has no class token")
    return notes


def differ(arm: Measured, baseline: Measured, key: str) -> bool:
    """None is what a reference model has no word for."""
    return None not in (arm[key], baseline[key]) and arm[key] != baseline[key]


def change(value: float, reference: float) -> str:
    """' (+12%)' or ' (x 3.9)', whichever reads better."""
    ratio = value / reference
    return f" ({ratio - 1:+.1%})" if 0.5 < ratio < 2 else f" (× {ratio:.2g})"
