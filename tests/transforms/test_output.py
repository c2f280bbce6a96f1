"""All or nothing: what is in the output folder before, during and after a conversion, whatever happens to it."""

from __future__ import annotations

import contextlib
import errno
import gzip
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from tests.reference import files_of, random_text, read_back, read_text
from transforms import DatasetError, OutputExists, UserError, check_dataset, claim, convert_libsvm, open_dataset
from transforms import convert as convert_module
from transforms.claim import ClaimKeeper, Start, claims_of
from transforms.errors import ClaimHeld, ClaimLost
from transforms.inputs import cut_blocks
from transforms.storage import StorageOptions

Write = Callable[[str, bytes], str]
ROOT = Path(__file__).resolve().parents[2]
SMALL = b"1 1:1 2:2\n0 1:3\n1 4:1\n"
OTHER = b"1 7:1\n0 8:3\n0 9:1\n"
MAIN = "from pipeline.commands.convert import main; main()"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def small(client: Client, out: Path, write: Write) -> Path:
    """A finished data set."""
    convert_libsvm(write("small.svm", SMALL), str(out), partitions=2, client=client)
    return out


def is_whole(folder: Path, text: bytes) -> bool:
    dataset = open_dataset(str(folder))
    return check_dataset(dataset) == [] and read_back(dataset).columns == read_text(text).columns


# --- what is there already ------------------------------------------------------------------------------------------


def test_an_existing_data_set_is_refused(client: Client, small: Path, write: Write) -> None:
    before = files_of(small)
    with pytest.raises(OutputExists, match="--overwrite"):
        convert_libsvm(write("other.svm", OTHER), str(small), client=client)
    assert files_of(small) == before


def test_an_existing_data_set_is_replaced_when_asked(client: Client, small: Path, write: Write) -> None:
    convert_libsvm(write("other.svm", OTHER), str(small), partitions=1, overwrite=True, client=client)
    assert is_whole(small, OTHER)
    assert set(files_of(small)) == {"dataset.json", "labels.parquet", "part-00000.parquet"}


@pytest.mark.parametrize("bad", [b"1 1:1\nx\n", b"1 1:1\n", b""], ids=["bad line", "one label", "empty"])
def test_a_failed_overwrite_keeps_the_old_data_set(client: Client, small: Path, write: Write, bad: bytes) -> None:
    before = files_of(small)
    with pytest.raises(UserError):
        convert_libsvm(write("bad.svm", bad), str(small), overwrite=True, client=client)
    assert files_of(small) == before
    assert not (small / "_temporary").exists()


def link_out_to(folder: Path, out: Path) -> None:
    out.mkdir()
    (out / "_temporary").symlink_to(folder)


def move_into(folder: Path, out: Path) -> None:
    out.mkdir()
    folder.rename(out / "_temporary")


@pytest.mark.parametrize("how", [{"overwrite": True}, {"resume": True}], ids=["overwrite", "resume"])
@pytest.mark.parametrize("lay", [link_out_to, move_into], ids=["a link", "a folder"])
def test_what_no_conversion_left_in_temporary_is_not_deleted(
    client: Client, tmp_path: Path, out: Path, write: Write, how: dict[str, Any], lay: Callable[[Path, Path], None]
) -> None:
    (tmp_path / "precious" / "0").mkdir(parents=True)
    (tmp_path / "precious" / "keep.txt").write_text("keep")
    lay(tmp_path / "precious", out)
    with pytest.raises(OutputExists, match=r"_temporary.*nothing was deleted"):
        convert_libsvm(write("small.svm", SMALL), str(out), client=client, **how)
    assert (out / "_temporary" / "keep.txt").read_text() == "keep"
    assert sorted(path.name for path in (out / "_temporary").iterdir()) == ["0", "keep.txt"]


def test_a_file_is_not_an_output_folder(client: Client, write: Write) -> None:
    target = write("file", b"precious")
    choices: list[dict[str, Any]] = [{}, {"overwrite": True}, {"resume": True}]
    for options in choices:
        with pytest.raises(OutputExists, match="is a file"):
            convert_libsvm(write("in.svm", SMALL), target, client=client, **options)
    assert Path(target).read_bytes() == b"precious"


def test_a_folder_with_other_files_is_refused(client: Client, out: Path, write: Write) -> None:
    write("out/notes.txt", b"mine")
    with pytest.raises(OutputExists, match="other files"):
        convert_libsvm(write("in.svm", SMALL), str(out), client=client)
    assert files_of(out) == {"notes.txt": b"mine"}


def test_an_empty_folder_is_fine_and_stays_when_the_work_fails(client: Client, out: Path, write: Write) -> None:
    out.mkdir()
    with pytest.raises(UserError):
        convert_libsvm(write("bad.svm", b"x\n"), str(out), client=client)
    assert list(out.iterdir()) == []
    convert_libsvm(write("in.svm", SMALL), str(out), client=client)
    assert is_whole(out, SMALL)


FOREIGN = ["notes.txt", "sub/part-00000.parquet", "part-00000-c2a1.snappy.parquet", "part-notes.parquet"]


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("bad", [False, True], ids=["good", "failing"])
def test_files_of_others_are_never_deleted(client: Client, small: Path, write: Write, name: str, bad: bool) -> None:
    (small / name).parent.mkdir(exist_ok=True)
    (small / name).write_bytes(b"mine")
    source = write("other.svm", b"x\n" if bad else OTHER)
    if bad:
        with pytest.raises(UserError):
            convert_libsvm(source, str(small), overwrite=True, client=client)
    else:
        convert_libsvm(source, str(small), overwrite=True, client=client)
    assert (small / name).read_bytes() == b"mine"


def test_files_of_others_are_not_deleted_where_there_is_no_data_set(client: Client, out: Path, write: Write) -> None:
    """A folder that another tool filled: --overwrite may refuse it or add to it, but not empty it."""
    write("out/part-00007.parquet", b"mine")
    with contextlib.suppress(OutputExists):
        convert_libsvm(write("in.svm", SMALL), str(out), partitions=1, overwrite=True, client=client)
    assert (out / "part-00007.parquet").read_bytes() == b"mine"


# --- two writers ----------------------------------------------------------------------------------------------------


def claimed(out: Path, **holder: Any) -> Path:
    path = out / "_temporary" / "claim.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"token": "t", "host": socket.gethostname(), "beat": 0} | holder))
    return path


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.mark.parametrize("options", [{}, {"resume": True}, {"overwrite": True}], ids=["plain", "resume", "overwrite"])
def test_a_live_claim_is_refused(
    client: Client, out: Path, write: Write, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "HEARTBEAT_SECONDS", 0.05)
    out.mkdir()
    (out / "_temporary").mkdir()
    keeper = ClaimKeeper(str(out), StorageOptions(), str(out / "_temporary" / "claim.json"))
    keeper.take(takeover=False)
    try:
        with pytest.raises(OutputExists, match=r"writing here|unfinished"):
            convert_libsvm(write("in.svm", SMALL), str(out), client=client, **options)
        keeper.claim.check(keeper._fs)
    finally:
        keeper.release()


@pytest.mark.parametrize("option", ["resume", "overwrite"])
def test_the_claim_of_a_dead_process_is_taken_over(client: Client, out: Path, write: Write, option: str) -> None:
    claimed(out, pid=dead_pid())
    options: dict[str, Any] = {option: True}
    convert_libsvm(write("in.svm", SMALL), str(out), client=client, **options)
    assert is_whole(out, SMALL)
    assert not (out / "_temporary").exists()


def test_the_claim_of_a_silent_process_elsewhere_is_taken_over(
    client: Client, out: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "PATIENCE_SECONDS", 0.6)
    claimed(out, pid=os.getpid(), host="elsewhere")
    convert_libsvm(write("in.svm", SMALL), str(out), resume=True, client=client)
    assert is_whole(out, SMALL)


def test_leftovers_are_not_taken_over_without_being_asked(client: Client, out: Path, write: Write) -> None:
    path = claimed(out, pid=dead_pid())
    before = path.read_bytes()
    with pytest.raises(OutputExists, match=r"--resume.*--overwrite"):
        convert_libsvm(write("in.svm", SMALL), str(out), client=client)
    assert path.read_bytes() == before


def test_only_one_of_two_newcomers_gets_the_claim(out: Path) -> None:
    (out / "_temporary").mkdir(parents=True)
    path = str(out / "_temporary" / "claim.json")
    first, second = (ClaimKeeper(str(out), StorageOptions(), path) for _ in range(2))
    first.take(takeover=False)
    with pytest.raises(OutputExists, match=f"process {os.getpid()}"):
        second.take(takeover=False)
    first.release()
    second.take(takeover=False)
    second.release()
    assert not Path(path).exists()


def test_later_start_of_the_same_work_takes_the_claim_and_an_earlier_one_never_gets_it_back(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The earlier one may live, unheard of: its process exists, and refreshes the claim."""
    monkeypatch.setattr(claim, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(claim, "NOTICE_SECONDS", 0.5)
    monkeypatch.setattr(claim, "PATIENCE_SECONDS", 1.0)
    out.mkdir()

    def keeper(work: str, number: int) -> ClaimKeeper:
        with claims_of(Start(work, number)):
            return ClaimKeeper(str(out), StorageOptions(), str(out / "claim.json"))

    first, second = keeper("run", 1), keeper("run", 2)
    first.take(takeover=True)
    second.take(takeover=True)
    with pytest.raises(ClaimLost):
        first.claim.check(first._fs)
    first.release()
    for other in (keeper("run", 1), keeper("run", 2), keeper("another", 3)):
        with pytest.raises(ClaimHeld):
            other.take(takeover=True)
    second.claim.check(second._fs)
    second.release()
    assert not (out / "claim.json").exists()


def test_a_claim_that_was_lost_stops_every_later_write(out: Path) -> None:
    (out / "_temporary").mkdir(parents=True)
    path = out / "_temporary" / "claim.json"
    keeper = ClaimKeeper(str(out), StorageOptions(), str(path))
    keeper.take(takeover=False)
    path.write_text(json.dumps({"token": "somebody else"}))
    with pytest.raises(OutputExists, match="taken over"):
        keeper.claim.check(keeper._fs)
    keeper.release()
    assert json.loads(path.read_text()) == {"token": "somebody else"}


def test_a_heartbeat_never_looks_like_a_lost_claim(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks check the claim while its owner rewrites it: they must see the old text or the new, never half of it."""
    monkeypatch.setattr(claim, "HEARTBEAT_SECONDS", 0.0)
    (out / "_temporary").mkdir(parents=True)
    keeper = ClaimKeeper(str(out), StorageOptions(), str(out / "_temporary" / "claim.json"))
    keeper.take(takeover=False)
    try:
        for _ in range(3000):
            keeper.claim.check(keeper._fs)
    finally:
        keeper.release()


def test_a_data_set_that_appeared_meanwhile_is_not_overwritten(
    client: Client, out: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer began and finished between our first look at the folder and our claim on it."""
    source, resources = write("in.svm", SMALL), convert_module.cluster_resources

    def finish_another(of: Client) -> Any:
        monkeypatch.setattr(convert_module, "cluster_resources", resources)
        convert_libsvm(write("other.svm", OTHER), str(out), client=client)
        return resources(of)

    monkeypatch.setattr(convert_module, "cluster_resources", finish_another)
    with pytest.raises(OutputExists):
        convert_libsvm(source, str(out), client=client)
    assert is_whole(out, OTHER)


# --- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parents", ["", "new/deeper/"])
def test_an_error_leaves_nothing_behind(client: Client, tmp_path: Path, write: Write, parents: str) -> None:
    source = write("bad.svm", b"1 1:1\n0 1:1\n" * 50 + b"x\n")
    with pytest.raises(UserError):
        convert_libsvm(source, str(tmp_path / f"{parents}out"), block_size=50, client=client)
    assert not (tmp_path / parents / "out").exists()


def test_an_error_with_resume_leaves_fragments_and_no_data_set(client: Client, out: Path, write: Write) -> None:
    source = write("bad.svm", b"1 1:1\n0 1:1\n" * 50 + b"x\n")
    with pytest.raises(UserError):
        convert_libsvm(source, str(out), block_size=50, resume=True, client=client)
    names = set(files_of(out))
    assert any(name.endswith(".fragment") for name in names)
    assert "_temporary/claim.json" not in names
    assert "dataset.json" not in names
    with pytest.raises(DatasetError, match="--resume"):
        open_dataset(str(out))


def test_the_input_changed_while_it_was_read(client: Client, out: Path, write: Write) -> None:
    source = write("in.svm", SMALL)

    class Meddler:
        def phase(self, name: str, total: int, unit: str) -> None:
            if name == "reduce":
                Path(source).write_bytes(SMALL + SMALL)

        def advance(self, amount: int) -> None:
            pass

    with pytest.raises(UserError, match="changed while"):
        convert_libsvm(source, str(out), client=client, progress=Meddler())
    assert not out.exists()


def test_the_input_cut_short_while_it_was_read(
    client: Client, out: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write("in.svm", SMALL)

    def cut_then_shorten(*args: Any) -> Any:
        blocks = cut_blocks(*args)
        Path(source).write_bytes(SMALL[:10])
        return blocks

    monkeypatch.setattr(convert_module, "cut_blocks", cut_then_shorten)
    with pytest.raises(UserError, match=r"shorter|changed"):
        convert_libsvm(source, str(out), client=client)
    assert not out.exists()


@pytest.mark.parametrize("when", ["fragment", "labels.parquet", "part-00001.parquet", "plan.json", "dataset.json"])
@pytest.mark.parametrize("existing", [False, True], ids=["new", "overwrite"])
def test_a_full_disk_leaves_nothing_that_looks_whole(
    client: Client, out: Path, write: Write, monkeypatch: pytest.MonkeyPatch, when: str, existing: bool
) -> None:
    """Every way to open a file for writing fails for one kind of file, after some bytes."""
    if existing:
        convert_libsvm(write("small.svm", SMALL), str(out), partitions=2, client=client)
    before = files_of(out)
    source = write("other.svm", OTHER)
    with monkeypatch.context() as patch:
        _fill_disk(patch, when)
        with pytest.raises((OSError, UserError)):
            convert_libsvm(source, str(out), partitions=2, overwrite=existing, client=client)
    if existing and when != "dataset.json":
        assert files_of(out) == before
    elif existing:
        assert "dataset.json" not in files_of(out) or is_whole(out, OTHER) or files_of(out) == before
    else:
        assert not out.exists()


def _fill_disk(patch: pytest.MonkeyPatch, when: str) -> None:
    from fsspec.implementations.local import LocalFileSystem

    open_file, write_bytes = LocalFileSystem.open, Path.write_bytes

    def full(name: str) -> bool:
        return when in name.rsplit("/", 1)[-1]

    def open_or_fail(self: Any, path: str, mode: str = "rb", **options: Any) -> Any:
        if full(path) and mode != "rb":
            Path(path).touch()
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return open_file(self, path, mode, **options)

    def write_or_fail(self: Path, data: Any) -> int:
        if full(str(self)):
            write_bytes(self, data[:10])
            raise OSError(errno.ENOSPC, "No space left on device", str(self))
        return write_bytes(self, data)

    patch.setattr(LocalFileSystem, "open", open_or_fail)
    patch.setattr(Path, "write_bytes", write_or_fail)


def test_a_file_size_limit_ends_the_command_with_one_line(tmp_path: Path) -> None:
    """A real failing write, in a process of its own."""
    (tmp_path / "in.svm").write_bytes(random_text(1, 2000, 3000, 20))
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000)); "
    ignore = "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    done = subprocess.run(
        [sys.executable, "-c", ignore + limit + MAIN, "in.svm", "out", "--quiet", "--workers", "1"],
        cwd=tmp_path,
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert re.search(r"out/_temporary/block-\S+: File too large: .*ulimit -f", done.stderr)
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


# --- resume ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def unfinished(client: Client, out: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, bytes]]:
    """A conversion that failed after the Map phase and two of its parts, with --resume."""
    text = random_text(3, 200, 60, 5)
    source = write("in.svm", text)

    def refuse(*args: Any) -> None:
        raise UserError("stopped by the test")

    with monkeypatch.context() as patch:
        patch.setattr(convert_module, "_refuse_changed_inputs", refuse)
        with pytest.raises(UserError, match="stopped by the test"):
            convert_libsvm(source, str(out), partitions=3, block_size=1500, resume=True, client=client)
    yield source, text


def test_resume_gives_the_same_bytes(client: Client, tmp_path: Path, out: Path, unfinished: tuple[str, bytes]) -> None:
    source, text = unfinished
    convert_libsvm(source, str(out), resume=True, client=client)
    convert_libsvm(source, str(tmp_path / "fresh"), partitions=3, block_size=1500, client=client)
    assert files_of(out) == files_of(tmp_path / "fresh")
    assert is_whole(out, text)


def test_resume_does_not_read_again_what_was_read(client: Client, out: Path, unfinished: tuple[str, bytes]) -> None:
    source, _ = unfinished
    fragments = {path: path.stat().st_mtime_ns for path in (out / "_temporary").glob("*.fragment")}
    assert len(fragments) > 3
    seen: dict[Path, int] = {}

    class Watcher:
        def phase(self, name: str, total: int, unit: str) -> None:
            if name == "reduce":
                seen.update({path: path.stat().st_mtime_ns for path in fragments})

        def advance(self, amount: int) -> None:
            pass

    convert_libsvm(source, str(out), resume=True, client=client, progress=Watcher())
    assert seen == fragments


@pytest.mark.parametrize("damage", ["cut", "empty", "gone", "another plan's", "foreign"])
@pytest.mark.parametrize("kind", ["block-000001-0000.fragment", "part-00001.parquet"])
def test_a_damaged_leftover_is_made_again(
    client: Client, tmp_path: Path, out: Path, unfinished: tuple[str, bytes], damage: str, kind: str
) -> None:
    source, _ = unfinished
    victim = out / "_temporary" / kind
    content = victim.read_bytes()
    if kind.startswith("block"):
        for part in (out / "_temporary").glob("part-*"):
            part.unlink()  # so that the fragments are needed
    if damage == "gone":
        victim.unlink()
    elif damage == "another plan's":
        other = content[:8] + b"0123456789abcdef" + content[24:].replace(b"\x01\x00\x00\x00", b"\x02\x00\x00\x00")
        victim.write_bytes(other if kind.startswith("block") else b"")
    else:
        victim.write_bytes({"cut": content[: len(content) // 2], "empty": b"", "foreign": b"x" * 500}[damage])
    convert_libsvm(source, str(out), resume=True, client=client)
    convert_libsvm(source, str(tmp_path / "fresh"), partitions=3, block_size=1500, client=client)
    assert files_of(out) == files_of(tmp_path / "fresh")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"partitions": 4}, "partitions was 3, is 4"),
        ({"block_size": 99}, "block size was 1500, is 99"),
        ({"strategy": "neighbours"}, "strategy was 'spread', is 'neighbours'"),
        ({"zero_based": True}, "zero based was False, is True"),
        ({"positive_label": -1.0}, "positive label was None, is -1"),
    ],
)
def test_resume_with_other_options_is_refused(
    client: Client, out: Path, unfinished: tuple[str, bytes], options: dict[str, Any], named: str
) -> None:
    before = files_of(out)
    with pytest.raises(OutputExists, match=named):
        convert_libsvm(unfinished[0], str(out), resume=True, client=client, **options)
    assert files_of(out) == before


def test_resume_with_other_inputs_is_refused(
    client: Client, out: Path, write: Write, unfinished: tuple[str, bytes]
) -> None:
    with pytest.raises(OutputExists, match=r"inputs was .*in\.svm.*is .*in\.svm.*other\.svm"):
        convert_libsvm([unfinished[0], write("other.svm", OTHER)], str(out), resume=True, client=client)
    Path(unfinished[0]).write_bytes(SMALL)
    with pytest.raises(OutputExists, match="inputs was"):
        convert_libsvm(unfinished[0], str(out), resume=True, client=client)


@pytest.mark.parametrize("finished", [True, False])
def test_resume_without_the_positive_label_that_was_chosen_is_refused(
    client: Client, out: Path, write: Write, finished: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No --positive-label means the larger label, not whatever an earlier run chose."""
    source = write("in.svm", SMALL)
    with monkeypatch.context() as patch:
        if not finished:
            patch.setattr(convert_module, "commit", lambda *args: (_ for _ in ()).throw(UserError("stopped")))
        try:
            convert_libsvm(source, str(out), resume=True, positive_label=0, client=client)
        except UserError:
            assert not finished
    with pytest.raises(OutputExists, match="positive label was 0"):
        convert_libsvm(source, str(out), resume=True, client=client)


def test_resume_of_a_finished_data_set_returns_it(client: Client, small: Path, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in small.iterdir()}
    dataset = convert_libsvm(str(tmp_path / "small.svm"), str(small), resume=True, client=client)
    assert {path: path.stat().st_mtime_ns for path in small.iterdir()} == before
    assert dataset.n == 3
    with pytest.raises(OutputExists, match="partitions was 2, is 5"):
        convert_libsvm(str(tmp_path / "small.svm"), str(small), resume=True, partitions=5, client=client)


def test_resume_where_nothing_is_starts(client: Client, out: Path, write: Write) -> None:
    convert_libsvm(write("in.svm", SMALL), str(out), resume=True, client=client)
    assert is_whole(out, SMALL)
    assert not (out / "_temporary").exists()


def test_overwrite_ignores_leftovers(client: Client, out: Path, unfinished: tuple[str, bytes], write: Write) -> None:
    convert_libsvm(write("other.svm", OTHER), str(out), overwrite=True, client=client)
    assert is_whole(out, OTHER)
    assert not (out / "_temporary").exists()


def test_a_resumed_compressed_file_gives_the_same_bytes(
    client: Client, tmp_path: Path, out: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write("in.svm.gz", gzip.compress(random_text(3, 200, 60, 5)))
    options: dict[str, Any] = {"partitions": 2, "block_size": 1500, "client": client}
    with monkeypatch.context() as patch:
        patch.setattr(convert_module, "commit", lambda *args: (_ for _ in ()).throw(UserError("stopped")))
        with pytest.raises(UserError, match="stopped"):
            convert_libsvm(source, str(out), resume=True, **options)
    (out / "_temporary" / "block-000000-0003.fragment").unlink()
    convert_libsvm(source, str(out), resume=True, **options)
    convert_libsvm(source, str(tmp_path / "fresh"), **options)
    assert files_of(out) == files_of(tmp_path / "fresh")


def test_a_skipping_run_can_be_resumed_and_keeps_its_notes(
    client: Client, out: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write("in.svm", b"1 1:1\nbad\n0 1:1\n" * 30)
    options: dict[str, Any] = {"block_size": 60, "client": client, "resume": True}
    with monkeypatch.context() as patch:
        patch.setattr(convert_module, "commit", lambda *args: (_ for _ in ()).throw(UserError("stopped")))
        with pytest.raises(UserError, match="stopped"):
            convert_libsvm(source, str(out), on_bad_line="skip", **options)
    with pytest.raises(UserError, match="expected a label"):
        convert_libsvm(source, str(out), on_bad_line="raise", **options)
    bad = convert_libsvm(source, str(out), on_bad_line="skip", **options).description["bad_lines"]
    assert bad["count"] == 30
    assert ", line 29, column 1:" in bad["first"][9]


# --- a process that is ended from outside ---------------------------------------------------------------------------


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT)}


def _start(folder: Path, *options: str) -> subprocess.Popen[str]:
    arguments = ["in.svm", "out", "--block-size", "4kB", "--partitions", "3", "--workers", "1", "--quiet", *options]
    # A shell starts background jobs deaf to Ctrl-C, and with them this suite and all that it starts.
    listening = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {MAIN}"
    return subprocess.Popen(
        [sys.executable, "-c", listening, *arguments],
        cwd=folder,
        env=_environment(),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def _wait_for_fragments(process: subprocess.Popen[str], folder: Path, count: int) -> None:
    """Until so many fragments are there: the conversion is half way."""
    while process.poll() is None:
        if len(list(folder.glob("out/_temporary/*.fragment"))) >= count:
            return
        time.sleep(0.005)
    raise AssertionError(f"ended too early: {process.communicate()[1]}")


@pytest.fixture
def long_input(tmp_path: Path) -> bytes:
    """Some 100 blocks of 4 kB."""
    text = random_text(4, 500, 300, 20) * 4
    (tmp_path / "in.svm").write_bytes(text)
    return text


def test_a_killed_conversion_resumes_to_the_same_bytes(client: Client, tmp_path: Path, long_input: bytes) -> None:
    process = _start(tmp_path, "--resume")
    _wait_for_fragments(process, tmp_path, 20)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    left = {path: path.stat().st_mtime_ns for path in tmp_path.glob("out/_temporary/*.fragment")}
    assert 20 <= len(left) < len(long_input) / 4096
    with pytest.raises(DatasetError):
        open_dataset(str(tmp_path / "out"))

    resumed = _start(tmp_path, "--resume")
    assert resumed.wait(120) == 0, resumed.communicate()[1]
    resumed.communicate()
    convert_libsvm(str(tmp_path / "in.svm"), str(tmp_path / "fresh"), partitions=3, block_size=4000, client=client)
    assert files_of(tmp_path / "out") == files_of(tmp_path / "fresh")


def test_a_conversion_killed_without_resume_can_be_overwritten(tmp_path: Path, long_input: bytes) -> None:
    process = _start(tmp_path)
    _wait_for_fragments(process, tmp_path, 5)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    refused = _start(tmp_path)
    assert refused.wait(120) == 2
    assert "--resume" in refused.communicate()[1]
    again = _start(tmp_path, "--overwrite")
    assert again.wait(120) == 0, again.communicate()[1]
    again.communicate()
    assert is_whole(tmp_path / "out", long_input)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "term"])
@pytest.mark.parametrize("options", [(), ("--processes",)], ids=["threads", "processes"])
def test_an_interrupted_conversion_leaves_nothing(
    tmp_path: Path, long_input: bytes, sent: signal.Signals, options: tuple[str, ...]
) -> None:
    process = _start(tmp_path, *options)
    _wait_for_fragments(process, tmp_path, 5)
    # A terminal sends Ctrl-C to the whole process group; a service manager sends SIGTERM to the main process.
    if sent is signal.SIGINT:
        os.killpg(process.pid, sent)
    else:
        process.send_signal(sent)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert errors.strip().splitlines() == ["convert-libsvm: error: interrupted"]
    assert not (tmp_path / "out").exists()


def test_an_interrupted_conversion_with_resume_keeps_its_fragments(tmp_path: Path, long_input: bytes) -> None:
    process = _start(tmp_path, "--resume")
    _wait_for_fragments(process, tmp_path, 5)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130
    names = {path.name for path in tmp_path.glob("out/_temporary/*")}
    assert "claim.json" not in names
    assert len([name for name in names if name.endswith(".fragment")]) >= 5
    assert not (tmp_path / "out" / "dataset.json").exists()
