"""The floors of the house: imports go down, each upstream library stays in its own wing."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import autoreparam

SOURCE = Path(autoreparam.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
MODULES = {
    ".".join(("autoreparam", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): path
    for path in FILES
}

FRONT = "autoreparam"  # the package's own __init__, which re-exports
WINGS = {"mcmc", "learn", "results"}
BELOW_SAMPLING = {*WINGS, "program", "render", "disk", "keywords", "errors"}
# What each room may import, besides itself.
FLOORS = {
    "errors": set(),
    "disk": {"errors"},
    "keywords": {"errors"},
    "render": set(),
    "zoo": {"errors"},
    "program": {"render", "disk", "keywords", "errors"},
    "mcmc": {"program", "errors"},
    "learn": {"program", "errors"},
    "results": {"program", "render", "disk", "keywords", "errors"},
    "run": BELOW_SAMPLING,
    "sampling": {"run", *BELOW_SAMPLING},
    "paper": {"run", "sampling", *BELOW_SAMPLING},
    "experiments": {FRONT, "sampling", "paper", "zoo", *BELOW_SAMPLING},
    "cli": {FRONT, "experiments", "sampling", "run", "paper", "zoo", *BELOW_SAMPLING},
}
# Files of the front door beside sampling.py.
SAME_ROOM = {"interop": "sampling", "many": "sampling", "prediction": "sampling"}
WINGS_OF_LIBRARIES = {
    "numpyro": {"program", "zoo"},
    "blackjax": {"mcmc"},
    "optax": {"learn"},
    "arviz": {"results"},
    "arviz_base": {"results"},
    "arviz_stats": {"results"},
    "xarray": {"results"},
    "matplotlib": {"results", "experiments"},
    "zarr": {"results"},
    "rich": {"render", "results", "experiments", "cli"},
    "markdown_it": {"render"},
    "typer": {"cli"},
    "pooch": {"zoo"},
}


def room(module):
    """The room of a module of this package: `autoreparam.program.trace` is in `program`."""
    parts = module.split(".")
    return SAME_ROOM.get(parts[1], parts[1]) if len(parts) > 1 else FRONT


def imports(path, typing_too=True):
    """The modules that a file imports, anywhere in it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = set()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.If)
            and ast.unparse(node.test) == "TYPE_CHECKING"
            and not typing_too
        ):
            skipped.update(child for line in node.body for child in ast.walk(line))
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write absolute imports"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module


everywhere = pytest.mark.parametrize("module", MODULES)


@everywhere
def test_imports_go_down_and_never_sideways(module):
    here = room(module)
    if here == FRONT:
        return
    assert here in FLOORS, f"{module} is in no room that the plan of the house knows"
    for imported in imports(MODULES[module]):
        if imported.split(".")[0] == "autoreparam":
            assert room(imported) in {here, *FLOORS[here]}, f"{module} imports {imported}"


@everywhere
def test_each_upstream_library_stays_in_its_wing(module):
    for imported in imports(MODULES[module], typing_too=False):
        wings = WINGS_OF_LIBRARIES.get(imported.split(".")[0])
        assert wings is None or room(module) in wings, f"{module} imports {imported}"


def test_no_imports_go_in_a_circle_not_even_those_for_types_or_inside_functions():
    graph = {
        module: {name for name in imports(path) if name in MODULES} - {module}
        for module, path in MODULES.items()
    }
    TopologicalSorter(graph).prepare()  # raises CycleError, which shows the cycle


@everywhere
def test_no_file_is_longer_than_350_lines(module):
    lines = len(MODULES[module].read_text(encoding="utf-8").splitlines())
    assert lines <= 350, f"{module} has {lines} lines; one idea per file"


def test_the_walk_sees_what_is_there():
    assert {"autoreparam.program.trace", "autoreparam.program.families.positive"} <= set(MODULES)
    trace = set(imports(MODULES["autoreparam.program.trace"]))
    assert {"jax", "numpyro.handlers", "autoreparam.program.record"} <= trace
    assert room("autoreparam.program.families.positive") == "program"
