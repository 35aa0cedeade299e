"""Durations as text for people."""


def clock(seconds: float) -> str:
    """Return seconds as text: hours, minutes and seconds (1:02:03), or minutes and seconds (2:03)."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
