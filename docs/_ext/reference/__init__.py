"""The generated half of the reference: each folder of docs/reference is written anew from the code at every build."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from reference import api, cli, directives, example, gallery, recipes, studies, tables, variants

Pages = Mapping[str, str | bytes]  # a file's name -> its content
GENERATED: dict[str, Callable[[], Pages]] = {
    "cli": cli.pages,
    "api": api.pages,
    "variants": variants.pages,
    "studies": studies.pages,
    "tables": tables.pages,
    "recipes": recipes.pages,
    "gallery": gallery.pages,
}


def write_all(app: Sphinx) -> None:
    """Write the pages that changed, and remove pages whose command, variant or study is gone."""
    for name, pages in GENERATED.items():
        write(Path(app.srcdir) / "reference" / name, pages())


def write(folder: Path, pages: Pages) -> None:
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        if path.name not in pages:
            path.unlink()
    for name, content in pages.items():
        path, payload = folder / name, content if isinstance(content, bytes) else content.encode()
        if not path.is_file() or path.read_bytes() != payload:
            path.write_bytes(payload)


def setup(app: Sphinx) -> dict[str, Any]:
    directives.setup(app)
    app.connect("builder-inited", write_all)
    app.connect("autodoc-process-docstring", api.as_rst)
    app.connect("build-finished", example.write_report)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
