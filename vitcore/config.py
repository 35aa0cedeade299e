"""Config, a flat, frozen and validated record of a trial's settings, and the merging of several layers of settings.

Importing this module does not import PyTorch. Constructing a Config does, to validate it against the variants.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, SerializerFunctionWrapHandler, create_model, model_serializer, model_validator

from commonfloor.messages import unknown_key
from commonfloor.options import ConfigError, Options
from vitcore.settings import KERNELS, Fraction, Many, Settings
from vitcore.sizes import check_sizes, is_architectural, is_whole, sizes

Values = Mapping[str, Any]
REMOVED = {"token_merging": 0}  # settings of earlier versions -> the value that had no effect


class Config(Settings):
    """The settings of a trial: everything that its outcome depends on, and how it runs.

    `epochs` is accepted in place of `steps` and is converted to `steps`. An option of a variant is spelled
    `Config(position="mine", **{"position.base": 100.0})`. The field `options` then holds every validated option of the
    chosen variants, including defaults.

    Raises ConfigError if a key is unknown, a type is wrong, or a value or a combination of values is impossible. Raises
    OSError if a file of an image folder cannot be read.
    """

    @model_validator(mode="before")
    @classmethod
    def complete(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Return `values` with what follows from `model`, `data`, `epochs` and `seed`; raise ConfigError if invalid."""
        from vitcore.data.lookup import describe  # late: imports NumPy

        values = merge(values)
        model = values.get("model")
        for key in values:
            if is_whole(model) and is_architectural(key):
                raise ConfigError(f"{key}={values[key]}: model={model} has its own: leave it out")
        options = {key: values.pop(key) for key in list(values) if "." in key}  # as merge leaves them
        if options:
            values["options"] = options
        data = values.get("data", "digits")
        if isinstance(data, str):
            about = describe(data)
            for name in ("image_size", "channels", "classes"):
                values.setdefault(name, getattr(about, name))
            if "epochs" in values:
                names = ("batch", "data_fraction", "val_fraction")
                given = {name: values.get(name, cls.model_fields[name].default) for name in names}
                values["steps"] = about.steps(**dict(Epochs(epochs=values.pop("epochs"), **given)))
        values.setdefault("data_seed", values.get("seed", 0))
        if misnames_variant(values):
            from vitcore.variants import check_variant_names  # late: imports PyTorch

            check_variant_names(values)
        return values

    @model_validator(mode="after")
    def check_parts(self) -> "Config":
        if not self.model:
            check_sizes(self)  # first, because it needs no PyTorch
        from vitcore.variants import complete_parts  # late: imports PyTorch

        complete_parts(self)
        return self

    @model_serializer(mode="wrap")
    def applicable_settings(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the serialized settings. Architectural ones are left out for a model of timm or of a plug-in."""
        return {key: value for key, value in handler(self).items() if not (self.model and is_architectural(key))}


def misnames_variant(values: Values) -> bool:
    """Return whether a variant may stand in a wrong place (`swiglu=true`), or something else in its place."""
    for key, value in values.items():
        field = Config.model_fields.get(key)
        if field is None or (field.annotation is str and not isinstance(value, str)):
            return True
    return values.get("attention", KERNELS[0]) not in KERNELS


class Epochs(Options):
    """The settings from which the number of steps is computed if `epochs` is set."""

    epochs: Annotated[float, Field(gt=0, le=1e8)]
    batch: Many
    data_fraction: Fraction
    val_fraction: Fraction


def check_settings(settings: Values) -> None:
    """Raise ConfigError if a setting by itself has a wrong value, such as `lr=fast`. Loads no PyTorch."""
    fields = {**Config.model_fields, "epochs": Epochs.model_fields["epochs"]}
    given: dict[str, Any] = {key: value for key, value in settings.items() if key in fields}
    types: dict[str, Any] = {key: (fields[key].annotation, fields[key]) for key in given}
    create_model("Given", __base__=Options, **types)(**given)
    merge(settings)


def merge(*layers: Values) -> dict[str, Any]:
    """Return one dictionary merged from layers of settings. Later layers override earlier layers.

    `steps` and `epochs` replace each other. A named size such as `S/16` becomes its fields, except for fields that its
    layer sets, and drops an earlier model. A change of variant drops the earlier options of the slot. A model of timm
    or of a plug-in drops the earlier architecture. Raises ConfigError if a layer has both `steps` and `epochs`, an
    unknown size or invalid `options`.
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        if "steps" in layer and "epochs" in layer:
            raise ConfigError(f"steps={layer['steps']} and epochs={layer['epochs']}: give one of them")
        if "steps" in layer:
            merged.pop("epochs", None)
        if "epochs" in layer:
            merged.pop("steps", None)
        written = spread_options(layer)
        if is_whole(written.get("model")):
            merged = {key: value for key, value in merged.items() if not is_architectural(key)}
        elif "model" in written:
            merged = {key: value for key, value in merged.items() if key.partition(".")[0] != "model"}
            written = sizes(written.pop("model")) | written
        for slot in written.keys() & Config.model_fields.keys():
            if written[slot] != merged.get(slot, Config.model_fields[slot].default):  # another variant
                merged = {key: value for key, value in merged.items() if not key.startswith(f"{slot}.")}
        merged |= written
    return merged


def spread_options(values: Values) -> dict[str, Any]:
    """Return the settings with `options` as dotted keys, where no such key is set; raise ConfigError if invalid."""
    options = values.get("options", {})
    if not isinstance(options, Mapping):
        raise ConfigError(f"options={options}: a mapping from 'slot.name', as in position.base, to values")
    for key in options:
        if not isinstance(key, str) or "." not in key:
            spelled = ": an option is spelled 'slot.name', as in position.base"
            raise ConfigError(unknown_key(str(key), otherwise=spelled))
    settings = {key: value for key, value in values.items() if key != "options"}
    for key, without_effect in REMOVED.items():
        if settings.get(key) == without_effect:
            del settings[key]
    return {**options, **settings}
