"""ablate.toml: what a working directory sets once for all commands.

runs = "runs"                # default of --runs
data_dir = "~/datasets"      # default of --data-dir, before the environment variable ABLATE_DATA
plugins = ["mine.py"]        # beside those named by --plugin

[data]                       # names for folders: data=pets
pets = "~/datasets/pets"
"""

import tomllib
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError


class Settings(BaseModel):
    """The content of an ablate.toml; every key may be left out."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    runs: str = "runs"
    data_dir: str | None = None
    plugins: list[str] = []
    data: dict[str, str] = {}


def read(folder: Path) -> Settings:
    """Raises ValueError, naming the file and the key, where there is an ablate.toml that cannot be read."""
    path = folder / "ablate.toml"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Settings()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read ({error})") from None
    try:
        return Settings(**tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: {error}") from None
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in problem["loc"])
        known = ", ".join(Settings.model_fields)
        raise ValueError(f"{path}: {key}={problem['input']}: {problem['msg'].lower()} (known keys: {known})") from None
