"""Studies, recipes and plug-ins: what varies, and on what."""
