"""report.html of a run: one page that needs nothing else, with bokeh's plots, tables, and a summary in plain words."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

from bokeh.document import Document
from bokeh.embed import components
from bokeh.resources import Resources
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pipeline.report import format as report_format
from pipeline.report import packed as report_packed
from pipeline.report import tables as report_tables
from pipeline.report import words as report_words
from pipeline.report.data import RunData, read_run
from pipeline.report.names import read_names
from pipeline.report.plots import make_sections
from pipeline.stored import REPORT
from transforms import OutputExists, __version__
from transforms.storage import StorageOptions, display, explained, open_storage, redact, whole_file

SCRIPTS = ("report.js", "chosen.js", "features.js")
_BEGINNING = b"<!doctype html>"


def write_report(
    run: str,
    output: str | None = None,
    *,
    feature_names: str | None = None,
    storage_options: dict[str, Any] | None = None,
) -> str:
    """Write the report of a run, whole or not at all, and return its URL (without credentials).

    output: the file. [default: report.html in the run folder]
    feature_names: a text file; line k names feature k, counted as the data set counts, or lines are "id<TAB>name".
    """
    options = StorageOptions(storage_options or {})
    output = output or f"{run.rstrip('/')}/{REPORT}"
    data = read_run(run, options)
    if feature_names is not None:
        names = read_names(feature_names, options, data.model.features, data.model.index_base)
        data = replace(data, names=names)
    _check_output(output, options)
    page = render(data).encode()
    with whole_file(output, options) as file:
        file.write(page)
    return redact(output)


def render(data: RunData) -> str:
    """The page."""
    sections = make_sections(data)
    figures = {plot.key: plot.figure for section in sections for plot in section.plots}
    for key, plot in figures.items():
        plot.name = key
        for renderer in plot.renderers:  # nothing can be selected: without these the page is smaller and made faster
            renderer.update(selection_glyph=None, nonselection_glyph=None, muted_glyph=None, hover_glyph=None)
    document = Document()
    with document.models.freeze():  # else bokeh counts its models anew for every plot
        for plot in figures.values():
            document.add_root(plot)
    script, places = components(figures)
    loader = PackageLoader("pipeline.report", "templates")
    environment = Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    return environment.get_template("report.html").render(
        data=data,
        words=report_words,
        tables=report_tables,
        fmt=report_format,
        sections=sections,
        places={key: Markup(place) for key, place in places.items()},
        plot_script=Markup(script),
        bokeh=Markup(Resources(mode="inline", components=["bokeh"], minified=True).render_js()),
        style=_asset("report.css"),
        scripts=[_asset(name) for name in SCRIPTS],
        packed=report_packed,
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=__version__,
    )


def _asset(name: str) -> Markup:
    return Markup((files("pipeline.report") / "templates" / name).read_text(encoding="utf-8"))


def _check_output(output: str, options: StorageOptions) -> None:
    """A report replaces a report, and nothing else."""
    fs, path = open_storage(output, options)
    where = display(fs, path)
    with explained(where):
        fs.invalidate_cache()
        if fs.isdir(path):
            raise OutputExists(f"{where}: is a folder; the output is a file, such as {where.rstrip('/')}/{REPORT}")
        old = fs.read_block(path, 0, len(_BEGINNING)) if fs.exists(path) else _BEGINNING
    if old.lower() != _BEGINNING:
        raise OutputExists(f"{where}: is there already, and is no report: choose another --output")
