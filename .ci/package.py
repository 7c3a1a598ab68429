"""Says what is missing from, or does not belong in, a built wheel and source distribution."""

import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*")
          if path.is_file() and "__pycache__" not in path.parts}  # fmt: skip
BESIDE = {"README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE", "pyproject.toml", "mkdocs.yml",
          "tests/conftest.py", "docs/architecture.md"}  # fmt: skip


def check_wheel(names: set[str]) -> None:
    """The package with its type marker and nothing else: no tests, no data."""
    package = {name for name in names if ".dist-info/" not in name}
    assert package == SOURCE, f"the wheel differs from src: {sorted(package ^ SOURCE)}"
    assert "autoreparam/py.typed" in package
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names), "no license"


def check_source(names: set[str]) -> None:
    """All that is needed to build, to test and to read."""
    inside = {name.partition("/")[2] for name in names}
    wanted = BESIDE | {f"src/{name}" for name in SOURCE}
    assert wanted <= inside, f"the source distribution lacks {sorted(wanted - inside)}"


def main(paths: list[str]) -> None:
    """Checks each file by its kind."""
    kinds = set()
    for path in map(Path, paths):
        kinds.add(path.suffix)
        if path.suffix == ".whl":
            with zipfile.ZipFile(path) as wheel:
                check_wheel({name for name in wheel.namelist() if not name.endswith("/")})
        else:
            with tarfile.open(path) as source:
                check_source({member.name for member in source if member.isfile()})
    assert kinds == {".whl", ".gz"}, f"expected a wheel and a source distribution; found {paths}"


main(sys.argv[1:])
