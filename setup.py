"""The long description of a release: README.md without pictures and links that lead nowhere on a package index.

All else is in pyproject.toml.
"""

import re
from pathlib import Path

from setuptools import setup

PICTURE = re.compile(r"<picture>.*?</picture>\n*|!\[[^\]]*\]\([^)]*\)\n*", re.DOTALL)
RELATIVE_LINK = re.compile(r"\[([^\]]+)\]\((?!https?://)[^)]*\)")


def describe(readme: str) -> str:
    return RELATIVE_LINK.sub(r"\1", PICTURE.sub("", readme))


setup(
    long_description=describe((Path(__file__).parent / "README.md").read_text(encoding="utf-8")),
    long_description_content_type="text/markdown",
)
