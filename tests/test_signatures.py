"""Every argument of every public name is explained where `help` and the site show it."""

import inspect

import pytest

import autoreparam as ar

# What a pytree needs, and NumPyro's own interface, are not called by users.
INNER = {"tree_flatten", "tree_unflatten", "sample", "log_prob", "map", "lighten", "restore",
         "log_slope", "from_dict"}  # fmt: skip
FIELDS = {
    "Entry",
    "Program",
    "Pulled",
    "Standardized",
}  # made by the library, or explained by field


def public():
    """Every public function and class, and the methods of classes."""
    for name in ar.__all__:
        value = getattr(ar, name)
        if not inspect.ismodule(value):
            yield name, value
            continue
        own = getattr(value, "__all__", None) or [
            key
            for key, entry in vars(value).items()
            if not key.startswith("_") and getattr(entry, "__module__", "") == value.__name__
        ]
        yield from ((f"{name}.{key}", getattr(value, key)) for key in own)


def calls():
    for name, value in public():
        if inspect.isclass(value):
            if value.__name__ not in FIELDS and not issubclass(value, Exception):
                yield name, value
            for key, entry in vars(value).items():
                if key.startswith("_") or (key in INNER and value is not ar.Parameterization):
                    continue
                if inspect.isfunction(entry) or isinstance(entry, classmethod):
                    yield f"{name}.{key}", getattr(value, key)
        elif inspect.isfunction(value):
            yield name, value


FOUND = [
    (n, call)
    for n, call in calls()
    if n.rpartition(".")[2] not in ("tree_flatten", "tree_unflatten")
]


@pytest.mark.parametrize(("name", "call"), FOUND, ids=[name for name, _ in FOUND])
def test_every_argument_is_explained(name, call):
    text = inspect.getdoc(call) or ""
    assert text, f"{name} has no docstring"
    for parameter in inspect.signature(call).parameters.values():
        if parameter.name != "self":
            assert f"\n    {parameter.name}: " in text, f"{name} does not explain {parameter.name}"


def test_the_walk_sees_what_is_there():
    names = {name for name, _ in FOUND}
    assert {"sample", "predict", "Parameterization.constant", "plots.geometry", "zoo.load"} <= names
