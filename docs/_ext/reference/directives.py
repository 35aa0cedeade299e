"""Directives of the reference: a key with its type and default, found by search and index; all keys of a record."""

import importlib
import inspect
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.domains.std import GenericObject
from sphinx.util.docutils import SphinxDirective

from reference import fields

OBJECT_TYPES = {"setting": "setting", "key": "key of a file", "variant": "variant"}  # directive: name in the index


class Entry(GenericObject):
    """A named thing, with its default in the first line."""

    option_spec: ClassVar[Any] = {
        **GenericObject.option_spec,
        "default": directives.unchanged,
        "shown": directives.unchanged,
    }

    @property
    def indextemplate(self) -> str:
        return f"pair: %s; {OBJECT_TYPES[self.objtype]}"

    def handle_signature(self, sig: str, signode: addnodes.desc_signature) -> str:
        shown = self.options.get("shown", sig)
        signode += addnodes.desc_name(shown, shown)
        if default := self.options.get("default"):
            signode += addnodes.desc_annotation(default, f" = {default}")
        return sig


class Fields(SphinxDirective):
    """The keys of a record, from `:first:` to `:last:`; with `:file:` they are keys of a file, which share names."""

    required_arguments = 1
    option_spec: ClassVar[Any] = dict.fromkeys(["file", "first", "last"], directives.unchanged)

    def run(self) -> list[nodes.Node]:
        module, _, name = self.arguments[0].rpartition(".")
        record = getattr(importlib.import_module(module), name)
        self.env.note_dependency(inspect.getfile(record))
        keys = list(fields.keys(record))
        names = [key.name for key in keys]
        first = names.index(self.options.get("first", names[0]))
        last = names.index(self.options.get("last", names[-1]))
        file = self.options.get("file", "")
        return self.parse_text_to_nodes("\n".join(fields.entry(key, file) for key in keys[first : last + 1]))


def setup(app: Sphinx) -> None:
    for kind, title in OBJECT_TYPES.items():
        app.add_object_type(kind, kind, objname=title)
        app.add_directive_to_domain("std", kind, Entry, override=True)
    app.add_directive("fields", Fields)
