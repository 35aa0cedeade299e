"""python -m ablations.cli: the command `ablate`."""

from ablations.cli import main

main()
