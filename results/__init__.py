"""Run folders -> tables, plots, comparisons. Never imports torch."""
