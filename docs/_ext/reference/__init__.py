"""The generated half of the reference: each folder of docs/reference is written anew from the code at every build."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from reference import api, cli, directives, recipes, studies, variants

Pages = dict[str, str]  # a page's name -> its text
GENERATED: dict[str, Callable[[], Pages]] = {
    "cli": cli.pages,
    "api": api.pages,
    "variants": variants.pages,
    "studies": studies.pages,
    "recipes": recipes.pages,
}


def write_all(app: Sphinx) -> None:
    """Write the pages that changed, and remove those of commands, variants and studies that are gone."""
    for name, pages in GENERATED.items():
        write(Path(app.srcdir) / "reference" / name, pages())


def write(folder: Path, pages: Pages) -> None:
    folder.mkdir(exist_ok=True)
    for path in folder.glob("*.md"):
        if path.stem not in pages:
            path.unlink()
    for name, text in pages.items():
        path = folder / f"{name}.md"
        if not path.is_file() or path.read_text() != text:
            path.write_text(text)


def setup(app: Sphinx) -> dict[str, Any]:
    directives.setup(app)
    app.connect("builder-inited", write_all)
    app.connect("autodoc-process-docstring", api.as_rst)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
