"""Print the `dev` dependency group, one requirement per line, for pips that cannot read groups."""

import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
for requirement in project["dependency-groups"]["dev"]:
    if not requirement.startswith("penstock["):
        print(requirement)
