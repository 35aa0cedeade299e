"""What a study declares before it has results."""

from typing import Annotated, Any

from pydantic import Field

from results.store.schemas.base import Plain, Schema, Settings, Sha256
from results.store.schemas.declarations import Declaration


class SealedCode(Schema):
    """The code at the time of a seal."""

    version: str  #: Version of the suite.
    source: str  #: Digest of the suite's sources.
    plugins: dict[str, str] = {}  #: Plug-in file name -> digest of the file and of what it imports.
    files: dict[str, Sha256] = {}  #: File of the user's training code -> SHA-256.


class Seal(Schema):
    """The content of a file in seals/: what a study declares, on which code and data, before there are results."""

    time: Annotated[str, Field(pattern="^2[0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z$")]  #: Time in UTC.
    study: str  #: Name of the study.
    recipe: str  #: Name of the recipe.
    study_sha256: Sha256  #: SHA-256 of the study's file.
    recipe_sha256: Sha256  #: SHA-256 of the recipe's file.
    settings: Settings = {}  #: Settings that the command line gave.
    declaration: Declaration  #: Metric, margin, baseline, seeds, claims, and the arms with the ids of their trials.
    tests: dict[str, Plain]  #: How verdicts are formed: levels, corrections, and the SHA-256 of that code.
    code: SealedCode  #: The suite, plug-ins and the user's training code.
    data: dict[str, Any] = {}  #: Data set or file of weights -> its fingerprint.
