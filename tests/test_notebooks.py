"""The notebooks run top to bottom, and what they are committed with is what they show."""

from __future__ import annotations

import math
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

for _module in ("nbclient", "nbformat", "ipykernel", "matplotlib", "moto", "s3fs"):
    pytest.importorskip(_module, reason=f"{_module} is missing: pip install 'dglmnet[notebooks]' runs the notebooks")

from notebooks.execute import METADATA, execute_all, find_notebooks, read  # noqa: E402

NOTEBOOKS = find_notebooks()
MACHINE = re.compile(r"(?<![\w:/.])/(bin|data|etc|home|mnt|opt|private|proc|root|tmp|Users|usr|var|work)/|~/")
ADDRESS = re.compile(r"\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b")
NUMBER = re.compile(r"(\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)")
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown_by(cell: Any) -> list[Any]:
    """What a cell shows, but for what others log while it runs, such as a cluster that is being closed."""
    return [output for output in cell.outputs if output.get("name") != "stderr"]


def texts(cell: Any) -> Iterator[str]:
    """What a cell shows, as text."""
    for output in shown_by(cell):
        yield output.get("text") or output.get("data", {}).get("text/plain", "")


def alike(shown: str, committed: str) -> bool:
    """The same words, and numbers that are the same but for rounding and the solver's tolerance."""
    ours, theirs = (NUMBER.split(" ".join(text.split())) for text in (shown, committed))
    if [word.strip() for word in ours[::2]] != [word.strip() for word in theirs[::2]]:
        return False
    pairs = zip(ours[1::2], theirs[1::2], strict=True)
    return all(math.isclose(_number(a), _number(b), rel_tol=0.05, abs_tol=0.01) for a, b in pairs)


def _number(text: str) -> float:
    return float(text.replace(",", ""))


@pytest.fixture(scope="module")
def executed() -> dict[Path, Any]:
    return dict(zip(NOTEBOOKS, execute_all(NOTEBOOKS), strict=True))


def test_there_are_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == [
        "01_quickstart",
        "02_path_and_sparsity",
        "03_cluster",
        "04_paper_experiment",
        "05_rare_events",
        "06_speed",
    ]


@each_notebook
def test_notebook_runs_and_shows_what_is_committed(path: Path, executed: dict[Path, Any]) -> None:
    notebook = executed[path]
    if isinstance(notebook, BaseException):
        raise notebook
    for now, then in zip(code_cells(notebook), code_cells(read(path)), strict=True):
        assert [output.output_type for output in shown_by(now)] == [output.output_type for output in shown_by(then)]
        if "volatile" in now.metadata.get("tags", []):
            continue
        for shown, kept in zip(texts(now), texts(then), strict=True):
            assert alike(shown, kept), f"run `make notebooks`: this cell now shows\n{shown}\nand not\n{kept}"


@each_notebook
def test_committed_notebook_was_executed_in_order_and_without_complaint(path: Path) -> None:
    cells = code_cells(read(path))
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert all(cell.outputs for cell in cells[1:])  # the first sets up, and says nothing
    outputs = [output for cell in cells for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    assert not [text for cell in cells for text in texts(cell) if "Warning" in text or "Traceback" in text]


@each_notebook
def test_committed_notebook_tells_nothing_of_a_machine(path: Path) -> None:
    notebook = read(path)
    assert notebook.metadata == METADATA
    assert all(set(cell.metadata) <= {"tags"} for cell in notebook.cells)
    for cell in notebook.cells:
        for text in [cell.source, *(texts(cell) if cell.cell_type == "code" else ())]:
            assert not MACHINE.search(text)
            assert socket.gethostname() not in text.split()
            assert set(ADDRESS.findall(text)) <= {"127.0.0.1"}


@each_notebook
def test_notebook_keeps_to_public_names(path: Path) -> None:
    source = "\n".join(cell.source for cell in code_cells(read(path)))
    assert "from dglmnet import" in source
    assert not re.search(r"\b(from|import) (dglmnet\.|(pipeline|solver|transforms)\b)", source)


def test_numbers_are_compared_by_value_and_words_by_letter() -> None:
    assert alike("λ  6.210   1,103 words", "λ  6.211  1,104 words")
    assert not alike("λ  6.210   1,103 words", "λ  6.210  1,303 words")
    assert not alike("best: model 3 of 8", "best: model 4 of 8")
    assert not alike("is there: True", "is there: False")
