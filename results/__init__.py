"""Tables, figures, reports and comparisons from the results in run directories.

The package never imports torch. Its public names are imported on first use.
"""

from typing import TYPE_CHECKING

from commonfloor.lazy import lazy_names

if TYPE_CHECKING:
    from results.comparison.compare import compare as compare
    from results.load import load_studies as load_studies
    from results.notebook import StudyView as StudyView
    from results.notebook import open_study as open_study
    from results.records import Table as Table
    from results.study_results import StudyResults as StudyResults
    from results.tables.study_table import table as table

HOME = {
    "StudyResults": "results.study_results",
    "StudyView": "results.notebook",
    "Table": "results.records",
    "compare": "results.comparison.compare",
    "load_studies": "results.load",
    "open_study": "results.notebook",
    "table": "results.tables.study_table",
}
__getattr__, __dir__ = lazy_names("results", HOME)
