"""Rich's console for others' text: colors and cursor movements are ours alone."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from results.safe_text import plain


class PlainConsole(Console):
    """Makes every text plain that it draws."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(plain(segment.text, "\n"), segment.style)
