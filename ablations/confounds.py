"""What else moved between an arm and its baseline, besides the declared factor: the footnotes of a table."""

from typing import Any

Measured = dict[str, Any]


def footnotes(arm: Measured, baseline: Measured) -> list[str]:
    """Tokens, parameters, FLOPs and class token, as `vitcore.measure` counts them, wherever they differ."""
    notes = [
        f"{label} {arm[key]:,} against {baseline[key]:,}{change(arm[key], baseline[key])}"
        for key, label in (("tokens", "tokens"), ("params", "parameters"), ("flops", "FLOPs"))
        if arm[key] != baseline[key]
    ]
    if arm["class_token"] != baseline["class_token"]:
        notes.append("has a class token" if arm["class_token"] else "has no class token")
    return notes


def change(value: float, reference: float) -> str:
    """' (+12%)' or ' (x 3.9)', whichever reads better."""
    ratio = value / reference
    return f" ({ratio - 1:+.1%})" if 0.5 < ratio < 2 else f" (× {ratio:.2g})"
