"""Schemas of the JSON files of a run directory, checked when a file is read.

A file is broken if it lacks a required field, or if a value has the wrong type or is out of range. The error names the
file and the field. Unknown fields are accepted, because a later version may have written them.
"""

from results.store.schemas.base import AnySchema as AnySchema
from results.store.schemas.base import Fact as Fact
from results.store.schemas.base import Facts as Facts
from results.store.schemas.base import Plain as Plain
from results.store.schemas.base import Schema as Schema
from results.store.schemas.base import Settings as Settings
from results.store.schemas.base import unknown_field as unknown_field
from results.store.schemas.base import validated as validated
from results.store.schemas.metrics import Metric as Metric
from results.store.schemas.plans import Arm as Arm
from results.store.schemas.plans import Asked as Asked
from results.store.schemas.plans import Declaration as Declaration
from results.store.schemas.plans import DeclaredArm as DeclaredArm
from results.store.schemas.plans import Entry as Entry
from results.store.schemas.plans import Expected as Expected
from results.store.schemas.plans import Interaction as Interaction
from results.store.schemas.plans import LaterDifference as LaterDifference
from results.store.schemas.plans import Looks as Looks
from results.store.schemas.plans import Plan as Plan
from results.store.schemas.plans import PlannedData as PlannedData
from results.store.schemas.plans import PlannedTrial as PlannedTrial
from results.store.schemas.plans import Split as Split
from results.store.schemas.plans import Stage as Stage
from results.store.schemas.plans import Stated as Stated
from results.store.schemas.plans import StatedCost as StatedCost
from results.store.schemas.plans import StatedSpread as StatedSpread
from results.store.schemas.plans import Took as Took
from results.store.schemas.plans import Tuned as Tuned
from results.store.schemas.trials import Environment as Environment
from results.store.schemas.trials import Eval as Eval
from results.store.schemas.trials import EvalSummary as EvalSummary
from results.store.schemas.trials import Failure as Failure
from results.store.schemas.trials import GaveUp as GaveUp
from results.store.schemas.trials import Intent as Intent
from results.store.schemas.trials import Lease as Lease
from results.store.schemas.trials import MetricsLine as MetricsLine
from results.store.schemas.trials import Private as Private
from results.store.schemas.trials import Result as Result
from results.store.schemas.trials import StepTime as StepTime
from results.store.schemas.trials import StepTimes as StepTimes
from results.store.schemas.trials import Submission as Submission
from results.store.schemas.trials import TrialConfig as TrialConfig
