"""Folders of this machine, which are cut from the texts that others get: `/home/me/photos` becomes `photos`."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablations.trainables.trainable import DESCRIBED, find
from ablations.trainables.user_code import UserCode
from commonfloor.messages import listed
from results.store.schemas.base import Schema
from results.store.schemas.plans import Plan

# The folders of an absolute path. A URL is none, as two slashes follow its colon.
FOLDERS = re.compile(r"(?<![\w./~-])(?:~|/(?!/)[^/\s'\"<>,;:()|\\]+)/(?:[^/\s'\"<>,;:()|\\]+/)*")


def user_code(plan: Plan) -> UserCode | None:
    """Return the user's training code that a plan trains, or None for other trainables, which are not loaded."""
    if plan.trainable.partition(" ")[0] not in DESCRIBED:
        return None
    trainable = find(plan.trainable)
    assert isinstance(trainable, UserCode)
    return trainable


@dataclass(frozen=True)
class LocalPaths:
    """Known folders of this machine, longest first: their names may contain any character."""

    folders: tuple[str, ...]

    @classmethod
    def of(cls, plans: Iterable[Plan], runs: Path) -> "LocalPaths":
        """Return the folders of plans, their run directory, the working directory and the home directory."""
        paths = [Path.home(), Path.cwd(), runs.absolute()]
        for plan in plans:
            if plan.asked is not None:
                asked = plan.asked
                paths += [Path(name).parent for name in (asked.study, asked.recipe, *asked.plugins)]
                paths += [Path(asked.data_dir)] if asked.data_dir else []
            code = user_code(plan)
            if code is not None:
                paths.append(Path(code.about.folder).parent)
        texts = {str(path) for path in paths if path.is_absolute() and len(path.parts) > 1}
        return cls(tuple(sorted(texts, key=len, reverse=True)))

    def cut(self, content: Any) -> Any:
        """Return a text, or plain content with texts at any depth, keys included, without folders of this machine."""
        if isinstance(content, str):
            return self.cut_text(content)
        if isinstance(content, Mapping):
            without = {self.cut(key): self.cut(value) for key, value in content.items()}
            if len(without) < len(content):
                names = listed([*map(str, content)])
                raise ValueError(f"two folders have one name without their paths: rename one ({names})")
            return without
        if isinstance(content, list | tuple):
            return [self.cut(value) for value in content]
        if isinstance(content, Schema):
            return type(content)(**self.cut(content.content()))
        return content

    def cut_text(self, text: str) -> str:
        for folder in self.folders:
            text = re.sub(rf"{re.escape(folder)}(?:/|(?![\w.-]))", "", text)
        return FOLDERS.sub("", text)

    def are_in(self, payload: bytes) -> bool:
        return any(folder.encode() in payload for folder in self.folders)
