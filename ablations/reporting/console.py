"""A Rich console on which printed text cannot set colors or move the cursor."""

import sys
from collections.abc import Iterable
from typing import IO, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from results.safe_text import printable


class PlainConsole(Console):
    """A console that escapes control characters in all text.

    It writes to the stream behind `output.PlainStream`, which would escape Rich's control sequences. Only a real
    terminal gets colors and progress bars: FORCE_COLOR, which notebooks and CI set, is ignored.
    """

    def __init__(self, file: IO[str] | None = None, stderr: bool = False, **options: Any) -> None:
        stream: Any = file or (sys.stderr if stderr else sys.stdout)
        stream = getattr(stream, "rich_proxied_file", stream)
        super().__init__(file=stream, stderr=stderr, **{"force_terminal": stream.isatty(), **options})

    def print(self, *objects: Any, **options: Any) -> None:
        is_text = all(isinstance(one, str | Text) for one in objects)  # the terminal wraps long lines of text
        super().print(*objects, **({"soft_wrap": True} if is_text else {}) | options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text, "\n"), segment.style)
