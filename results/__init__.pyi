from results.comparison.compare import compare as compare
from results.load import load_studies as load_studies
from results.notebook import StudyView as StudyView
from results.notebook import open_study as open_study
from results.records import Table as Table
from results.study_results import StudyResults as StudyResults
from results.tables.study_table import table as table
