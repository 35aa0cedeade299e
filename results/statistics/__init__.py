"""The statistics of studies: paired differences, intervals, tests, verdicts, tuning and planning."""
