"""The on-disk format of a run directory: trials, attempts, results, plans, and the rules for writing them.

    runs/trials/<id>/config.json              the resolved config
    runs/trials/<id>/attempts/000k/           the files of one attempt; an attempt never has two writers
    runs/trials/<id>/result.json              a hard link, made once and last: if it exists, the trial is over
    runs/studies/<name>/plan.json             the arms and trials of a study
    runs/ledger/<digest>.json                 what plans declared, and when

Files are plain JSON, JSON lines, safetensors and npz without pickles. A checksum in the name of
each checkpoint and in the content of each result reveals torn or edited files.
"""

from commonfloor.files import Broken as Broken
from commonfloor.files import write_bytes as write_bytes
from results.store.attempts import VOUCHED as VOUCHED
from results.store.attempts import Attempt as Attempt
from results.store.attempts import Superseded as Superseded
from results.store.attempts import claim as claim
from results.store.contents import SCHEMA as SCHEMA
from results.store.contents import NewerSchema as NewerSchema
from results.store.contents import checksum as checksum
from results.store.contents import read as read
from results.store.contents import read_json as read_json
from results.store.contents import timestamp as timestamp
from results.store.contents import write_json as write_json
from results.store.plan_files import is_run_directory as is_run_directory
from results.store.plan_files import make_run_directory as make_run_directory
from results.store.plan_files import plan_content as plan_content
from results.store.plan_files import read_plan as read_plan
from results.store.plan_files import read_plans as read_plans
from results.store.plan_files import sorted_paths as sorted_paths
from results.store.plan_files import study_folder as study_folder
from results.store.plan_files import write_plan as write_plan
from results.store.trials import KEEP_CHECKPOINTS as KEEP_CHECKPOINTS
from results.store.trials import RETRIED as RETRIED
from results.store.trials import RETRY as RETRY
from results.store.trials import Trial as Trial
from results.store.trials import TrialState as TrialState
from results.store.trials import read_metrics as read_metrics
from results.store.trials import trial as trial
