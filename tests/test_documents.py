"""The code in the documents runs."""

import re
from pathlib import Path

import autoreparam as ar
from autoreparam.program.families import registry

ROOT = Path(__file__).parents[1]


def test_the_family_of_the_contributing_guide_is_reparameterized(monkeypatch, capsys):
    monkeypatch.setattr(registry, "_RULES", dict(registry._RULES))  # leave no rule behind
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    assert len(blocks) == 3
    names = {}
    for block in blocks:
        exec(block, names)
    assert "yes: location depends on tau" in capsys.readouterr().out
    site = ar.inspect(names["model"])["x"]
    assert (site.distribution, site.candidate) == ("Rayleigh", True)
