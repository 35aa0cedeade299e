"""The command `ablate`, for `python -m ablations.cli`."""

from ablations.cli import main

main()
