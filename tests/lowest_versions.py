"""Print the lower bounds of pyproject.toml's run-time dependencies as pip constraints, for `make test-lowest`."""

import re
import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
for requirement in project["dependencies"]:
    name, version = re.fullmatch(r"([\w-]+)(?:\[[\w,]+\])?>=([\d.]+)", requirement).groups()  # type: ignore[union-attr]
    sys.stdout.write(f"{name}=={version}.*\n")
