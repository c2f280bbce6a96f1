"""LIBSVM text -> a feature-partitioned data set: the Map/Reduce graph and its driver (section 3 of the paper).

All or nothing: everything is written under OUTPUT/_temporary and moved into place at the end; dataset.json comes
last, and without it there is no data set.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from distributed import Client, Future
from distributed.system import MEMORY_LIMIT

from transforms.assign import assign_buckets
from transforms.dataset import Dataset, open_dataset
from transforms.dataset_record import BadLines, DatasetRecord
from transforms.embedded import nothing_kept, pageless
from transforms.errors import BadLine, ClusterLost, UserError
from transforms.examples import BAD_LINES_NAMED, BadSpotFound, located
from transforms.fragments import Fragment
from transforms.holdout import check_fraction
from transforms.inputs import Block, InputFile, cut_blocks, find_inputs
from transforms.labels import MIXED_WEIGHTS, LabelMap, LabelsInfo, choose_positive, remedy_of_text, wrong_labels
from transforms.liveness import ANSWER_SECONDS, ask_scheduler, ask_workers
from transforms.mapreduce import (
    Catalogue,
    Job,
    Mapped,
    count_lines,
    map_block,
    reduce_partition,
    write_labels,
)
from transforms.output import commit, is_finished, workplace
from transforms.parts import PartInfo
from transforms.plan import Plan, Resources, default_block_size, default_partitions
from transforms.progress import NoProgress, Progress
from transforms.reading import MAX_LINE
from transforms.storage import StorageOptions, display, open_storage, real_path
from transforms.tasks import Shared, Submitted, as_finished, attended, release

MAX_ROWS = 2**31 - 1  # examples are int32


def convert_libsvm(
    inputs: str | Sequence[str],
    output: str,
    *,
    partitions: int | None = None,
    strategy: str = "spread",
    zero_based: bool = False,
    positive_label: float | None = None,
    numeric_labels: bool = False,
    on_bad_line: str = "raise",
    hold_out: float = 0.0,
    resume: bool = False,
    overwrite: bool = False,
    block_size: int | None = None,
    max_line_bytes: int = MAX_LINE,
    storage_options: dict[str, Any] | None = None,
    client: Client | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Convert LIBSVM text (files, globs, folders, any fsspec URL) into a data set at `output`.

    client: a Dask client; by default the current one, or else an in-process cluster for the time of the call.
    partitions, block_size: by default from the input's size and the cluster's memory.
    numeric_labels: labels are numbers, for squared loss. By default the larger of two, or positive_label, becomes +1.
    on_bad_line: "raise" stops at a bad line; "skip" leaves it out, counts it, and names the first few in dataset.json.
    max_line_bytes: a longer line is a bad one.
    hold_out: leave this share of the examples out, by a hash of each (transforms/holdout.py), to judge models by them.
    resume: continue a conversion that was cut off, and leave fragments behind if this one is cut off, too.
    """
    if resume and overwrite:
        raise UserError("resume and overwrite exclude each other: continue what is there, or start over")
    options = StorageOptions(storage_options or {})
    urls = [inputs] if isinstance(inputs, str) else list(inputs)
    files = check_places(urls, output, options)
    fs, path = open_storage(output, options)
    wanted: dict[str, Any] = {
        "inputs": [file.identity() for file in files],
        "partitions": partitions,
        "block_size": block_size,
        "strategy": strategy,
        "zero_based": zero_based,
        "positive_label": positive_label,
        "numeric_labels": numeric_labels,
        "hold_out": check_fraction(hold_out),
    }
    if is_finished(fs, path, wanted, resume=resume, overwrite=overwrite):
        return open_dataset(output, options)
    with ExitStack() as stack:
        client = stack.enter_context(client_or_embedded(client))
        resources = cluster_resources(client)
        plan = Plan(
            inputs=wanted["inputs"],
            partitions=default_partitions(files, resources) if partitions is None else partitions,
            block_size=default_block_size(files, resources) if block_size is None else block_size,
            strategy=strategy,
            zero_based=zero_based,
            positive_label=positive_label,
            on_bad_line=on_bad_line,
            hold_out=hold_out,
            max_line_bytes=max_line_bytes,
            numeric_labels=numeric_labels,
        )
        place = stack.enter_context(workplace(output, options, plan, wanted, resume=resume, overwrite=overwrite))
        job = Job(output, options, place.folder, place.keeper.claim, place.plan.recipe(), resume)
        description = _run(client, job, place.plan, files, progress or NoProgress())
        _refuse_changed_inputs(files, urls, options)
        commit(fs, path, place, description)
    return open_dataset(output, options)


def check_places(
    urls: Sequence[str],
    output: str,
    options: StorageOptions,
    *,
    resume: bool = True,
    overwrite: bool = True,
) -> list[InputFile]:
    """The inputs that there are. Refuses those that are missing, or lie in the output, and an output that is there."""
    files = find_inputs(urls, options)
    fs, path = open_storage(output, options)
    _refuse_output_among_inputs(files, fs, path)
    if not (resume or overwrite):
        is_finished(fs, path, {}, resume=False, overwrite=False)
    return files


def _refuse_output_among_inputs(files: Iterable[InputFile], fs: Any, path: str) -> None:
    where = display(fs, path)
    folder = real_path(fs, where)
    for file in files:
        name = real_path(fs, file.name)
        if name == folder or name.startswith(f"{folder}/"):
            raise UserError(f"{file.name}: this input lies in the output folder {where}: choose another output")


@contextmanager
def client_or_embedded(client: Client | None) -> Iterator[Client]:
    """The client given, the current one, or an in-process cluster for as long as it is needed.

    The work goes on without workers that do not answer or are lost.
    """
    if client is None:
        try:
            client = Client.current()
        except ValueError:
            with nothing_kept(), Client(processes=False, memory_limit=0, **pageless(processes=False)) as embedded:
                yield embedded
            return
    with attended(client):
        yield client


def cluster_resources(client: Client) -> Resources:
    """Threads of the cluster, and the memory that one thread of its smallest worker may use."""

    def shape(dask_scheduler: Any) -> list[tuple[int, int]]:
        return [(ws.nthreads, ws.memory_limit) for ws in dask_scheduler.workers.values()]

    workers = ask_scheduler(client, shape)
    if not workers:
        raise UserError(f"the scheduler at {client.scheduler.address} has no workers: start some with `dask worker`")
    threads = sum(nthreads for nthreads, _ in workers)
    memory = min((limit or MEMORY_LIMIT // threads * nthreads) // nthreads for nthreads, limit in workers)
    return Resources(threads, memory)


# --- Map, then Reduce -----------------------------------------------------------------------------------------------


def _run(client: Client, job: Job, plan: Plan, files: Sequence[InputFile], progress: Progress) -> DatasetRecord:
    """The graph: Map over blocks, then Reduce. Returns what dataset.json will say."""
    blocks = cut_blocks(files, plan.block_size)
    if not blocks:
        raise UserError(
            f"the input has no examples: {files[0].name}{' and all other files are' if files[1:] else ' is'} empty"
        )
    progress.phase("map", sum(block.size for block in blocks), "B")
    mapped: dict[int, list[Mapped]] = {}
    bucket_nnz = np.zeros(plan.buckets, dtype=np.int64)
    try:
        with _tasks(client, job, map_block, [(block,) for block in blocks]) as results:
            for index, result in results:
                for one in result:
                    bucket_nnz += one.bucket_nnz
                mapped[index] = [replace(one, bucket_nnz=one.bucket_nnz[:0]) for one in result]
                progress.advance(blocks[index].size)
    except BadSpotFound as found:
        raise _bad_line(client, job, blocks, mapped, found) from None
    return reduce_fragments(client, job, plan, blocks, mapped, bucket_nnz, progress)


def reduce_fragments(
    client: Client,
    job: Job,
    plan: Plan,
    blocks: Sequence[Block],
    mapped: dict[int, list[Mapped]],
    bucket_nnz: np.ndarray,
    progress: Progress,
) -> DatasetRecord:
    """What follows Map: labels, then Reduce over partitions. `blocks` are those of text, if it was text."""
    catalogue = _catalogue(mapped, blocks, plan)
    owner = assign_buckets(bucket_nnz, plan.partitions)
    # On every worker: Dask would otherwise run all Reduce tasks where the one copy is.
    shared = Shared(client, lambda: catalogue)
    progress.phase("reduce", int(bucket_nnz.sum()), "nonzeros")
    with _tasks(client, job, write_labels, [(shared,)]) as results:
        labels = next(results)[1]
    parts: dict[int, PartInfo] = {}
    spans = [(k, shared, _spans(owner == k)) for k in range(plan.partitions)]
    with _tasks(client, job, reduce_partition, spans) as results:
        for index, part in results:
            parts[index] = part
            progress.advance(part.nnz)
    return _description(plan, blocks, mapped, catalogue, labels, [parts[k] for k in sorted(parts)])


@contextmanager
def _tasks(
    client: Client, job: Job, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]
) -> Iterator[Iterator[tuple[int, Any]]]:
    """Run a task for each tuple of arguments and hand out (index, result) as they finish.

    When the block is left by an error, tasks that wait are cancelled and those that run are waited for, so that
    nothing is written after the output was cleaned up.
    """
    name = f"{function.__name__.replace('_', '-')}-{job.claim.token[:8]}"
    tasks = Submitted(client, function, [(job, *mine) for mine in arguments], name)
    futures = [tasks.submit(k) for k in range(len(arguments))]
    with as_they_finish(client, futures, tasks.submit_again) as results:
        yield results


@contextmanager
def as_they_finish(
    client: Client, futures: list[Future], again: Callable[[int], Future] | None = None
) -> Iterator[Iterator[tuple[int, Any]]]:
    """(index, result) of tasks in the order they finish; left by an error, none of them works on.

    again: submits a task once more (`as_finished`).
    """

    def results() -> Iterator[tuple[int, Any]]:
        for k, result in as_finished(client, futures, again):
            yield k, result
            futures[k].release()

    try:
        yield results()
    except BaseException:
        release(client, futures)
        _drain(client, {future.key for future in futures})
        raise


def _drain(client: Client, keys: set[str], patience: float = 60.0) -> None:
    """Wait until no worker knows any of these tasks (cancelling does not stop one that runs).

    A worker that does not answer is not waited for: if it comes back, the claim keeps its tasks from writing.
    """

    def known(dask_worker: Any) -> list[str]:
        return [str(key) for key in (*dask_worker.state.tasks, *dask_worker.active_threads.values())]

    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        try:
            on_workers, _ = ask_workers(client, known, patience=ANSWER_SECONDS)
        except ClusterLost:
            return
        if not any(keys.intersection(tasks) for tasks in on_workers.values()):
            return
        time.sleep(0.02)


def _bad_line(
    client: Client, job: Job, blocks: Sequence[Block], mapped: dict[int, list[Mapped]], found: BadSpotFound
) -> BadLine:
    """The bad line with its number in the file: lines before it are counted where a block has not told yet."""
    block, spot = blocks[found.block], found.spot
    earlier = _blocks_before(block, blocks)
    told = sum(_lines(mapped[other.index]) for other in earlier if other.index in mapped)
    asked = [(other,) for other in earlier if other.index not in mapped]
    with _tasks(client, job, count_lines, asked) as counts:
        return located(block, spot, told + sum(count for _, count in counts))


def _blocks_before(block: Block, blocks: Sequence[Block]) -> list[Block]:
    """Those that hold what stands before a block in the same file."""
    first = block.index
    while blocks[first].continues:
        first -= 1
    return list(blocks[first : block.index])


def _lines(results: Iterable[Mapped]) -> int:
    return sum(int(one.fragment.header["lines"]) for one in results)


def _catalogue(mapped: dict[int, list[Mapped]], blocks: Sequence[Block], plan: Plan) -> Catalogue:
    """Put the fragments in order and settle what the labels mean."""
    fragments = [one.fragment for index in sorted(mapped) for one in mapped[index]]
    offsets = np.concatenate(([0], np.cumsum([fragment.rows for fragment in fragments], dtype=np.int64))).tolist()
    if offsets[-1] > MAX_ROWS:
        raise UserError(f"{offsets[-1]} examples: a data set holds at most {MAX_ROWS}; sample or split the input")
    if offsets[-1] == 0:
        raise UserError(f"the input has no examples{_among_kept(plan)}")
    positive = None if plan.numeric_labels else _positive(mapped, blocks, fragments, plan)
    weighted = [int(fragment.header["weighted"]) for fragment in fragments if fragment.rows]
    if any(weighted) and not all(weighted):
        raise UserError(MIXED_WEIGHTS)
    return Catalogue(fragments, offsets, positive, any(weighted))


def _positive(
    mapped: dict[int, list[Mapped]], blocks: Sequence[Block], fragments: Sequence[Fragment], plan: Plan
) -> float:
    """The label that is +1, of the two that there must be."""
    values = np.unique(np.concatenate([fragment.label_values for fragment in fragments])).tolist()
    if len(values) != 2:
        raise UserError(_label_error(mapped, blocks, values) + _among_kept(plan))
    return choose_positive(values, plan.positive_label)


def _among_kept(plan: Plan) -> str:
    return " among the examples that were not held out: hold out less" if plan.hold_out else ""


def _label_error(mapped: dict[int, list[Mapped]], blocks: Sequence[Block], values: list[float]) -> str:
    """Which labels there are, and a file where each stands."""
    places = [f"{value:g} in {_file_with(value, mapped, blocks)}" for value in values[:5]]
    return f"{wrong_labels(values)} ({'; '.join(places)}){remedy_of_text(values)}"


def _file_with(value: float, mapped: dict[int, list[Mapped]], blocks: Sequence[Block]) -> str:
    """The name of the first file where a label stands."""
    for index in sorted(mapped):
        for one in mapped[index]:
            file = one.fragment.file_of(value)
            if file is not None:
                return blocks[index].spans[file].file.name
    raise AssertionError(f"no fragment has the label {value:g}")


def _spans(mine: np.ndarray) -> np.ndarray:
    """A partition's buckets as runs [first, stop)."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], mine.astype(np.int8), [0]))))
    return edges.reshape(-1, 2)


# --- the result -----------------------------------------------------------------------------------------------------


def _description(
    plan: Plan,
    blocks: Sequence[Block],
    mapped: dict[int, list[Mapped]],
    catalogue: Catalogue,
    labels: LabelsInfo,
    parts: Sequence[PartInfo],
) -> DatasetRecord:
    return DatasetRecord.describe(
        examples=catalogue.rows,
        label_map=_label_map(catalogue),
        labels=labels,
        parts=parts,
        plan=plan,
        bad_lines=_bad_lines(blocks, mapped),
    )


def _label_map(catalogue: Catalogue) -> LabelMap | None:
    if catalogue.positive is None:
        return None
    values = {float(v) for fragment in catalogue.fragments for v in fragment.label_values}
    (negative,) = values - {catalogue.positive}
    return LabelMap(negative, catalogue.positive)


def _bad_lines(blocks: Sequence[Block], mapped: dict[int, list[Mapped]]) -> BadLines:
    """How many lines were skipped, and the first few with their numbers."""
    count = line = 0
    first: list[str] = []
    for block in blocks:
        line = line if block.continues else 0  # of the file, where the block begins
        for one in mapped[block.index]:
            count += int(one.fragment.header["bad"])
            for spot in one.spots[: BAD_LINES_NAMED - len(first)]:
                first.append(located(block, spot, line).place_and_reason)
        line += _lines(mapped[block.index])
    return BadLines(count=count, first=first)


def _refuse_changed_inputs(files: Sequence[InputFile], urls: Sequence[str], options: StorageOptions) -> None:
    """Raise if a file is not what it was. Looks where the files were found at first: a listing, not a call for each."""
    now = {file.name: file for file in find_inputs(urls, options)}
    for file in files:
        if now.get(file.name) != file:
            raise UserError(f"{file.name}: changed while it was being converted: convert again when it is at rest")
