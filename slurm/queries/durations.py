"""Conversion of durations from and to SLURM's format, [days-][hours:]minutes:seconds."""


def seconds(span: str) -> int | None:
    """Return the seconds of a duration such as '1-00:00:00' or '30:00'.

    Returns None if `span` is no duration, such as 'infinite', 'UNLIMITED' or 'INVALID'.
    """
    days, _, rest = span.rpartition("-")
    parts = rest.split(":")
    if not all(part.isdigit() for part in (days or "0", *parts)):
        return None
    total = 0
    for part in parts:
        total = total * 60 + int(part)
    return int(days or 0) * 86400 + total


def span(of_seconds: int) -> str:
    """Return a duration in seconds in SLURM's format, such as '1-02:30:00' or '4:00:00'."""
    days, rest = divmod(of_seconds, 86400)
    hours, rest = divmod(rest, 3600)
    clock = f"{rest // 60:02}:{rest % 60:02}"
    return f"{days}-{hours:02}:{clock}" if days else f"{hours}:{clock}"
