"""Studies, recipes and plug-ins: which settings vary, and on which data and models."""
