"""The contract tests of variants, as `ablate check` runs them on plug-ins and on all packaged parts."""

import re
import traceback
from pathlib import Path

import vitcore
from ablations.trainables.vit import plugins
from vitcore.contracts import contracts
from vitcore.data.builtin import BUILT_IN
from vitcore.data.pack import find_pack
from vitcore.sizes import REFERENCE
from vitcore.variants import VARIANTS


def check_packaged_parts() -> bool:
    return all([check_part(slot, name) for slot, parts in VARIANTS.items() for name in parts])


def check_plugin(file: Path) -> bool:
    """Run the contract tests on a plug-in's parts, and return whether all pass. Raises ValueError if it has none."""
    plugin = plugins.loaded(file)
    if not (plugin.parts or plugin.models or plugin.evals):
        raise ValueError(f"plugin {file}: adds nothing to {', '.join(filter(str.isupper, dir(vitcore)))}")
    print(file)
    models = [("model", f"{REFERENCE}{name}") for name in plugin.models]
    evals = [("eval", name) for name in plugin.evals]
    return all([check_part(slot, name, file) for slot, name in plugin.parts + models + evals])


def check_part(slot: str, name: str, file: Path | None = None) -> bool:
    """Run the contract tests on a variant, and return whether all pass. Repeated failures are printed once."""
    causes: set[str] = set()
    repeated = []
    for title, contract in contracts(slot, name):
        try:
            contract(slot, name)
            print(f"  ok      {slot}={name}: {title}")
        except (Exception, SystemExit) as error:  # any exception of a user's part is a failed check, not a crash
            message = " ".join(str(error).split()) or type(error).__name__
            line = innermost_line(error, file)
            cause = line or message
            if cause in causes:
                repeated.append(title)
                continue
            causes.add(cause)
            print(f"  FAILED  {slot}={name}: {title}: {message}{hint(error)}{line}")
    if repeated:
        print(f"  FAILED  {slot}={name}: the same again: {'; '.join(repeated)}")
    return not causes


def hint(error: BaseException) -> str:
    raised = error.__cause__ or error
    if isinstance(raised, AssertionError) or not re.search(r"dtype|\b(float|double)\b", str(raised), re.IGNORECASE):
        return ""
    return " (the check runs in float64: follow x.dtype)"


def innermost_line(error: BaseException, file: Path | None) -> str:
    if file is None:
        return ""
    raised = error.__cause__ or error.__context__ or error
    for frame in reversed(traceback.extract_tb(raised.__traceback__)):
        if Path(frame.filename).resolve() == file.resolve():
            return f" [{file}:{frame.lineno}]"
    return ""


def is_missing_pack(data: str) -> bool:
    return data not in BUILT_IN and find_pack(data) is None
