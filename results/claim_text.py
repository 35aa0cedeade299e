"""Claims about two arms as text: `a < b` or `a ~ b`, and the verdicts on them."""

import re

from results.style import current_style

AGREE, DISAGREE, UNRESOLVED = "agree", "disagree", "not-resolved"
VERDICT_TEXT = {AGREE: "agrees", DISAGREE: "disagrees", UNRESOLVED: "not resolved", None: "untested"}
CLAIM = re.compile(r"\s*(.+?) ([<~]) (.+?)\s*", re.DOTALL)  # an arm's name may contain anything
Parts = tuple[str, str, str]  # a claim: an arm, "<" or "~", another arm


def parse_claim(text: str) -> Parts:
    """Return (a, relation, b) for a claim "a < b" or "a ~ b". Raises ValueError for anything else."""
    match = CLAIM.fullmatch(text)
    if not match:
        raise ValueError(f"claim '{text}' is neither 'arm < arm' nor 'arm ~ arm'")
    a, relation, b = match.groups()
    return a, relation, b


def claimed_arms(text: str) -> tuple[str, str]:
    """Return the names of the two arms of a claim. Raises ValueError if the text is not a claim."""
    a, _, b = parse_claim(text)
    return a, b


def with_labels(text: str) -> str:
    """Return the claim with each arm's name replaced by its label in the current style."""
    a, relation, b = parse_claim(text)
    return f"{current_style().label(a)} {relation} {current_style().label(b)}"
