"""Tables, figures, reports and comparisons from the results in run directories.

The package never imports torch. Its public names are imported on first use.
"""

from commonfloor.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__, __file__)
