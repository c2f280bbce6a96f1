"""The documentation site around mkdocs: `make docs`.

    python docs/site.py gather FOLDER     what the site is made of, for mkdocs.yml
    python docs/site.py check FOLDER      follow every link of the pages that mkdocs wrote there

No text is kept twice. README.md is the front page; docs/, CONTRIBUTING.md and its neighbours lie as they do in the
repository, so that links between them hold in both; notebooks become pages with the outputs that they are committed
with, and the commands' --help is a page.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click

from pipeline.commands.convert import command as convert_libsvm
from pipeline.commands.submit import command as dask_submit

ROOT = Path(__file__).parents[1]
BESIDE = ("CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "SECURITY.md")
NOTEBOOK_LINK = re.compile(r"(?<=\]\()([^)\s]+)\.ipynb(?=[)#])")
BEGINS_BLOCK = re.compile(r"^(- |\d+\. |\|)")


def gather(folder: Path) -> None:
    """Lay out the sources of the site as they lie in the repository."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder / "docs", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for name in BESIDE:
        shutil.copy(ROOT / name, folder / name)
    shutil.copy(ROOT / "README.md", folder / "index.md")
    (folder / "docs" / "commands.md").write_text(describe_commands(), encoding="utf-8")
    (folder / "notebooks").mkdir()
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        convert_notebook(path, folder / "notebooks")
    for page in folder.rglob("*.md"):
        page.write_text(adapt(page.read_text(encoding="utf-8")), encoding="utf-8")


def adapt(markdown: str) -> str:
    """Lead links to notebooks to their pages; part lists and tables from a paragraph above, as GitHub does."""
    lines: list[str] = []
    in_code = False
    for line in markdown.splitlines():
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and not line.startswith("    "):
            line = NOTEBOOK_LINK.sub(r"\1.md", line)
            above = lines[-1] if lines else ""
            if BEGINS_BLOCK.match(line) and above and not BEGINS_BLOCK.match(above) and not above.startswith(" "):
                lines.append("")
        lines.append(line)
    return "\n".join(lines) + "\n"


def describe_commands() -> str:
    """The --help of every command, as a terminal of 100 columns shows it."""
    sections = ["# Commands\n\nWhat `--help` says. `dask-submit NAME` is also there as `dask dglmnet NAME`."]
    for title, command in [("convert-libsvm", convert_libsvm), *commands_of(dask_submit)]:
        context = click.Context(command, info_name=title, max_content_width=100, terminal_width=100)
        sections.append(f"## {title}\n\n```text\n{command.get_help(context).rstrip()}\n```")
    return "\n\n".join(sections) + "\n"


def commands_of(group: click.Group) -> list[tuple[str, click.Command]]:
    context = click.Context(group, info_name="dask-submit")
    found = ((name, group.get_command(context, name)) for name in group.list_commands(context))
    return [(f"dask-submit {name}", command) for name, command in found if command is not None]


def convert_notebook(path: Path, folder: Path) -> None:
    """Write a notebook as a page, and its plots as pictures beside it."""
    parts, plots = [], 0
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                plots += 1
                (folder / f"{path.stem}-{plots}.png").write_bytes(base64.b64decode(data["image/png"]))
                parts.append(f"![Plot {plots}]({path.stem}-{plots}.png)")
            else:
                text = "".join(output.get("text") or data.get("text/plain", ""))
                parts.append(f"```text\n{text.rstrip()}\n```")
    (folder / f"{path.stem}.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


class Links(HTMLParser):
    """The places of a page that a link may lead to, and where its own links lead."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.targets: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.places.add(value)
            elif name in ("href", "src", "srcset") and value:
                self.targets.append(value)


def check(site: Path) -> list[str]:
    """Links that lead nowhere, but for those that leave the site."""
    site = site.resolve()
    pages = {path: Links(path.read_text(encoding="utf-8")) for path in site.rglob("*.html") if path.name != "404.html"}
    dead = []
    for path, page in pages.items():
        for target in page.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            aim = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            lost = parts.fragment and aim in pages and unquote(parts.fragment) not in pages[aim].places
            if lost or not (aim.is_file() or (aim / "index.html").is_file()):
                dead.append(f"{path.relative_to(site)}: {target}")
    return sorted(set(dead))


def main(what: str, folder: Path) -> None:
    if what == "gather":
        gather(folder)
    elif dead := check(folder):
        sys.exit("links that lead nowhere:\n" + "\n".join(dead))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
