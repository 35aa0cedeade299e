"""Studies, recipes and plug-ins: the settings that vary, and the data and models that they vary on."""
