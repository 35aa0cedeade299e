"""Sphinx settings: `make docs` builds the pages offline, and every warning is an error."""

import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent / "tests" / "helpers")]

project = "vit-ablations"
release = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]["version"]

extensions = ["sphinx.ext.autodoc", "myst_parser", "mathml", "reference"]
exclude_patterns = ["_build", "_ext"]
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # types in signatures: torch's, and ours that are not public
html_show_copyright = False
smartquotes = False  # they make a dash of the hyphens of --yes

autodoc_typehints_format = "short"
autodoc_inherit_docstrings = False  # torch's own say nothing of ours
autodoc_preserve_defaults = True

myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"{project} {release}"
html_copy_source = False
html_math_renderer = "mathml"
