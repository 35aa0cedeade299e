"""Exceptions that only vitcore raises, and a lack of memory as PyTorch reports it."""

from ablations.faults import INPUT, MEMORY, Fault, raised_in
from commonfloor.options import ConfigError
from vitcore.runtime.memory import OutOfMemory, out_of_memory

CHECKED = ("vitcore.config", "vitcore.data")  # modules whose ValueErrors mean bad input


def fault(error: BaseException) -> Fault | None:
    """See Trainable.fault."""
    if isinstance(error, OutOfMemory):
        return Fault(MEMORY, says_all=True)
    if out_of_memory(error):
        return Fault(MEMORY)
    if isinstance(error, ConfigError) or (type(error) is ValueError and raised_in(error, CHECKED)):
        return Fault(INPUT)
    return None
