"""Made-up studies for tests: plans, outcomes with known truth, run directories that hold them, and their tables."""

from synthetic.plans import *  # noqa: F403 - tests say synthetic.position, wherever it is defined
from synthetic.records import *  # noqa: F403
from synthetic.studies import *  # noqa: F403
