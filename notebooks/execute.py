"""Execute the notebooks top to bottom and write them back with their outputs: `make notebooks`.

What a notebook says of the machine it ran on is left out: times of cells, the kernel's name and version.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

FOLDER = Path(__file__).parent
CELL_SECONDS = 120
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def find_notebooks() -> list[Path]:
    """In the order they are to be read."""
    return sorted(FOLDER.glob("*.ipynb"))


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


def execute_all(paths: Iterable[Path]) -> list[Any]:
    """All at the same time; for each the notebook with its outputs, or the exception that it ended with."""

    async def gather() -> list[Any]:
        return await asyncio.gather(*(execute(path) for path in paths), return_exceptions=True)

    return asyncio.run(gather())


async def execute(path: Path) -> Any:
    """Run all cells in a new kernel of this very Python. Raises CellExecutionError at the first that fails."""
    notebook = read(path)
    with TemporaryDirectory() as sockets:  # instead of ports, which others on the machine could reach
        config = Config(KernelManager={"transport": "ipc", "ip": f"{sockets}/kernel"})
        client = NotebookClient(
            notebook,
            config=config,
            kernel_name="python3",
            timeout=CELL_SECONDS,
            record_timing=False,
            coalesce_streams=True,
        )
        await client.async_execute()
    notebook.metadata = nbformat.from_dict(METADATA)  # type: ignore[no-untyped-call]
    return notebook


def main(names: list[str]) -> None:
    paths = [Path(name) for name in names] or find_notebooks()
    for path, notebook in zip(paths, execute_all(paths), strict=True):
        if isinstance(notebook, BaseException):
            raise notebook
        nbformat.write(notebook, path)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main(sys.argv[1:])
