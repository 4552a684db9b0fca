from __future__ import annotations

import contextlib
import itertools
import os
import stat
import threading
import time
from pathlib import Path

import pytest

from core.errors import MeahError
from core.ids import WORKER, new_id
from workers.workspace import Size, Workspace, all_workspaces, remove
from workers.workspace_names import MAX_DEPTH, check_path, context_paths
from workers.workspace_removal import remove_tree

HOSTILE_NAMES = [
    ("", "empty"),
    ("..", "parent"),
    ("../secret", "parent"),
    ("a/../../secret", "parent"),
    ("a/..", "parent"),
    (".", "empty"),
    ("./a", "empty"),
    ("a//b", "empty"),
    ("a/", "empty"),
    ("/", "absolute"),
    ("/etc/passwd", "absolute"),
    ("/dev/null", "device"),
    ("/dev", "device"),
    ("/proc/self/root/etc/passwd", "device"),
    ("//server/share/x", "device"),
    ("\\\\server\\share\\x", "device"),
    ("\\\\.\\PhysicalDrive0", "device"),
    ("\\\\?\\C:\\x", "device"),
    ("C:\\Windows\\win.ini", "device"),
    ("C:/Windows/win.ini", "device"),
    ("c:relative", "device"),
    ("a\\..\\b", "backslash"),
    ("..\\secret", "backslash"),
    ("NUL", "device"),
    ("nul.txt", "device"),
    ("src/con", "device"),
    ("Aux.tar.gz", "device"),
    ("PRN ", "trailing"),
    ("PRN .txt", "device"),
    ("com1", "device"),
    ("LPT9.log", "device"),
    ("COM¹", "device"),
    ("CONIN$", "device"),
    ("a\0b", "nul"),
    ("a\nb", "hidden"),
    ("a\x1b[31m", "hidden"),
    ("a\x7f", "hidden"),
    ("a\u202ecod.exe", "hidden"),
    ("a\u200b.py", "hidden"),
    ("a\u2066b", "hidden"),
    ("a\ufeffb", "hidden"),
    ("file.", "trailing"),
    ("file ", "trailing"),
    ("dir./x", "trailing"),
    ("dir /x", "trailing"),
    ("file.txt:stream", "colon"),
    ("file::$DATA", "colon"),
    ("a" * 256, "length"),
    ("é" * 128, "length"),
    ("a/" * MAX_DEPTH + "b", "length"),
    ("/".join(["a" * 250] * 17), "length"),
    ("\udcff", "encoding"),
    ("a/\ud800", "encoding"),
]

GOOD_NAMES = [
    "a",
    "src/app.py",
    ".gitignore",
    "...a",
    "a b/c d.txt",
    "console.log",
    "nullable.py",
    "COM10",
    "résumé.md",
    "日本語.txt",
    "dev/null",
    "a" * 255,
]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    made = Workspace(tmp_path / "workspaces", new_id(WORKER))
    made.create()
    return made


def refused(action: object, *args: object) -> MeahError:
    assert callable(action)
    with pytest.raises(MeahError) as caught:
        action(*args)
    return caught.value


@pytest.mark.parametrize(("name", "reason"), HOSTILE_NAMES)
def test_hostile_names_are_refused_before_the_disk_is_touched(workspace: Workspace, name: str, reason: str) -> None:
    for action in (
        lambda: workspace.write(name, "x"),
        lambda: workspace.read(name),
        lambda: check_path(name),
    ):
        error = refused(action)
        assert (error.code, error.reason) == ("E_PATH_ESCAPE", reason)
        error.message.encode()
        assert "\x1b" not in error.message
    assert refused(context_paths, ["ok", name]).code == "E_PATH_ESCAPE"
    assert os.listdir(workspace.path) == []
    assert os.listdir(workspace.root) == [workspace.worker_id]


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_ordinary_names_are_written_and_read_back(workspace: Workspace, name: str) -> None:
    workspace.write(name, "text é")
    assert workspace.read(name) == "text é".encode()


@pytest.mark.parametrize("worker_id", ["", "..", "w_", "w_" + "0" * 19, "W_" + "0" * 20, "w_" + "0" * 20 + "/x"])
def test_a_workspace_is_only_made_for_a_workers_id(tmp_path: Path, worker_id: str) -> None:
    assert refused(Workspace, tmp_path, worker_id).code == "E_PATH_ESCAPE"
    assert refused(remove, tmp_path, worker_id).code == "E_PATH_ESCAPE"


def test_directories_and_files_are_for_the_owner_alone(workspace: Workspace) -> None:
    previous = os.umask(0)
    try:
        workspace.write("context/src/app.py", "x")
    finally:
        os.umask(previous)
    modes = {
        part: stat.S_IMODE((workspace.path / part).stat().st_mode)
        for part in (".", "context", "context/src", "context/src/app.py")
    }
    assert modes == {".": 0o700, "context": 0o700, "context/src": 0o700, "context/src/app.py": 0o600}
    assert stat.S_IMODE(workspace.root.stat().st_mode) == 0o700


def test_writing_again_replaces_the_whole_file_and_leaves_no_draft(workspace: Workspace) -> None:
    workspace.write("result.md", "a long first answer")
    workspace.write("result.md", b"short")
    assert workspace.read("result.md") == b"short"
    assert os.listdir(workspace.path) == ["result.md"]


def test_creating_twice_keeps_what_is_there(workspace: Workspace) -> None:
    workspace.write("a", "1")
    workspace.create()
    assert workspace.read("a") == b"1"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text("secret")
    return folder


@pytest.mark.parametrize("name", ["link", "folder/secret", "folder/new", "inside", "broken"])
def test_no_link_is_followed_wherever_it_leads(workspace: Workspace, outside: Path, name: str) -> None:
    workspace.write("real", "real")
    (workspace.path / "link").symlink_to(outside / "secret")
    (workspace.path / "folder").symlink_to(outside)
    (workspace.path / "inside").symlink_to("real")
    (workspace.path / "broken").symlink_to(outside / "new")
    for action in (lambda: workspace.read(name), lambda: workspace.write(name, "stolen")):
        assert refused(action).code == "E_PATH_ESCAPE"
    assert (outside / "secret").read_text() == "secret"
    assert sorted(os.listdir(outside)) == ["secret"]
    assert workspace.read("real") == b"real"


def test_a_link_in_the_workspaces_own_place_is_refused(tmp_path: Path, outside: Path) -> None:
    root = tmp_path / "workspaces"
    root.mkdir()
    workspace = Workspace(root, new_id(WORKER))
    workspace.path.symlink_to(outside)
    for action in (
        workspace.create,
        lambda: workspace.read("secret"),
        lambda: workspace.write("secret", "x"),
        workspace.size,
        workspace.remove,
    ):
        assert refused(action).code == "E_PATH_ESCAPE"
    assert (outside / "secret").read_text() == "secret"
    assert all_workspaces(root) == []
    assert workspace.exists()


def test_a_file_with_two_links_is_neither_read_nor_written(workspace: Workspace, outside: Path) -> None:
    os.link(outside / "secret", workspace.path / "hard")
    for action in (lambda: workspace.read("hard"), lambda: workspace.write("hard", "x")):
        error = refused(action)
        assert (error.code, error.reason) == ("E_PATH_ESCAPE", "hard_link")
    assert (outside / "secret").read_text() == "secret"


def test_a_fifo_in_a_files_place_is_refused_without_waiting(workspace: Workspace) -> None:
    os.mkfifo(workspace.path / "fifo")
    started = time.monotonic()
    for action in (lambda: workspace.read("fifo"), lambda: workspace.write("fifo", "x")):
        assert refused(action).code == "E_PATH_ESCAPE"
    assert time.monotonic() - started < 2


def test_a_directory_or_a_file_in_the_others_place_is_refused(workspace: Workspace) -> None:
    workspace.write("folder/file", "x")
    assert refused(workspace.read, "folder").code == "E_PATH_ESCAPE"
    assert refused(workspace.write, "folder", "x").code == "E_PATH_ESCAPE"
    assert refused(workspace.write, "folder/file/below", "x").code == "E_PATH_ESCAPE"
    assert workspace.read("folder/file") == b"x"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Readme.md", "README.md"),
        ("r\u00e9sum\u00e9", "re\u0301sume\u0301"),
        ("stra\u00dfe", "STRASSE"),
        ("Src/a.py", "src/b.py"),
        ("a", "a/b"),
        ("a/b", "a"),
        ("A", "a/b"),
        ("a/b/c", "A/B/d"),
    ],
)
def test_names_that_some_file_system_takes_for_one_are_refused(workspace: Workspace, first: str, second: str) -> None:
    error = refused(context_paths, [first, second])
    assert (error.code, error.reason) == ("E_INVALID_REQUEST", "name_collision")
    assert first in error.message
    assert second in error.message
    workspace.write(first, "first")
    assert refused(workspace.write, second, "second").code in {"E_INVALID_REQUEST", "E_PATH_ESCAPE"}
    assert workspace.read(first) == b"first"


def test_the_same_name_twice_is_refused_for_context_items() -> None:
    assert refused(context_paths, ["a.py", "a.py"]).reason == "name_collision"


def test_a_name_that_is_too_deep_only_below_context_is_refused_at_once() -> None:
    name = "a/" * (MAX_DEPTH - 1) + "b"
    assert check_path(name)
    assert refused(context_paths, [name]).reason == "length"


def test_context_items_go_below_context_in_order() -> None:
    assert context_paths(["b/one", "a", "b/two"]) == ["context/b/one", "context/a", "context/b/two"]


def test_what_is_not_there_is_not_found(workspace: Workspace) -> None:
    assert refused(workspace.read, "missing").code == "E_NOT_FOUND"
    assert refused(workspace.read, "no/where").code == "E_NOT_FOUND"
    gone = Workspace(workspace.root, new_id(WORKER))
    assert refused(gone.read, "a").code == "E_NOT_FOUND"
    assert refused(gone.write, "a", "x").code == "E_NOT_FOUND"
    assert not gone.exists()


def test_a_file_over_the_cap_is_refused(workspace: Workspace) -> None:
    workspace.write("big", b"x" * 11)
    assert workspace.read("big", max_bytes=11) == b"x" * 11
    with pytest.raises(MeahError, match="more than 10 bytes"):
        workspace.read("big", max_bytes=10)


def test_errors_name_no_path_of_this_machine(workspace: Workspace, tmp_path: Path) -> None:
    (workspace.path / "link").symlink_to(tmp_path)
    error = refused(workspace.read, "link/x")
    assert str(tmp_path) not in str(error.as_dict())
    nowhere = Workspace(tmp_path / "none", new_id(WORKER))
    assert str(tmp_path) not in str(refused(nowhere.read, "x").as_dict())


def test_size_counts_files_and_follows_no_link(workspace: Workspace, outside: Path) -> None:
    assert workspace.size() == Size(0, 0)
    workspace.write("a", b"12345")
    workspace.write("b/c/d", b"123")
    (workspace.path / "link").symlink_to(outside)
    (workspace.path / "file-link").symlink_to(outside / "secret")
    os.mkfifo(workspace.path / "fifo")
    assert workspace.size() == Size(2, 8)


def test_removing_takes_everything_inside_and_nothing_outside(workspace: Workspace, outside: Path) -> None:
    workspace.write("a/b/c", "x")
    (workspace.path / "a" / "link").symlink_to(outside)
    os.link(outside / "secret", workspace.path / "hard")
    assert workspace.remove() is True
    assert not workspace.exists()
    assert (outside / "secret").read_text() == "secret"
    assert workspace.remove() is False
    assert remove(workspace.root / "nowhere", workspace.worker_id) is False


def test_no_depth_keeps_it_from_being_removed(workspace: Workspace, outside: Path) -> None:
    here = os.getcwd()
    try:
        os.chdir(workspace.path)
        for _ in range(1_200):
            os.mkdir("d")
            Path("f").write_text("x")
            Path("link").symlink_to(outside)
            os.chdir("d")
    finally:
        os.chdir(here)
    assert workspace.remove() is True
    assert not workspace.exists() and (outside / "secret").read_text() == "secret"


def test_no_right_taken_away_keeps_it_from_being_removed(workspace: Workspace) -> None:
    inner = workspace.path / "closed" / "inner"
    inner.mkdir(parents=True)
    (inner / "file").write_text("x")
    for path, mode in ((inner, 0), (inner.parent, 0o500)):
        path.chmod(mode)
    folder = os.open(workspace.path, os.O_RDONLY)
    is_root = os.geteuid() == 0
    if is_root:
        # Root is let in everywhere, so this one is removed as a plain user would.
        for path in (inner, inner.parent, workspace.path):
            os.chown(path, 65_534, 65_534)
        os.seteuid(65_534)
    try:
        with pytest.raises(PermissionError):
            os.rmdir("closed/inner", dir_fd=folder)
        remove_tree("closed", folder)
    finally:
        if is_root:
            os.seteuid(0)
        os.close(folder)
    assert workspace.size() == Size(0, 0)
    assert workspace.remove() is True


def test_a_directory_is_removed_however_large(workspace: Workspace) -> None:
    for number in range(40):
        workspace.write(f"{number}/{number}/a", "x")
    os.mkfifo(workspace.path / "0" / "fifo")
    assert workspace.remove() is True and not workspace.exists()


def test_all_workspaces_lists_only_workers_directories(workspace: Workspace, tmp_path: Path) -> None:
    other = Workspace(workspace.root, new_id(WORKER))
    other.create()
    other.write("context/a", "1234")
    (workspace.root / "notes").mkdir()
    (workspace.root / new_id(WORKER)).write_text("a file")
    (workspace.root / new_id(WORKER)).symlink_to(tmp_path)
    found = {info.worker_id: (info.files, info.size_bytes) for info in all_workspaces(workspace.root)}
    assert found == {workspace.worker_id: (0, 0), other.worker_id: (1, 4)}
    assert all_workspaces(tmp_path / "nowhere") == []


def test_the_root_may_be_a_link_of_the_operators_own(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "workspaces").symlink_to(tmp_path / "disk")
    workspace = Workspace(tmp_path / "workspaces", new_id(WORKER))
    workspace.create()
    workspace.write("a", "x")
    assert (tmp_path / "disk" / workspace.worker_id / "a").read_text() == "x"


def test_no_descriptor_leaks(workspace: Workspace) -> None:
    workspace.write("a/b", "x")
    (workspace.path / "link").symlink_to("/")
    before = len(os.listdir("/dev/fd"))
    for _ in range(20):
        workspace.read("a/b")
        workspace.size()
        refused(workspace.read, "link/x")
        refused(workspace.read, "a")
        refused(workspace.write, "link", "x")
    assert len(os.listdir("/dev/fd")) == before


def test_a_directory_swapped_for_a_link_under_a_writer_never_leads_out(workspace: Workspace, outside: Path) -> None:
    folder = workspace.path / "folder"
    folder.mkdir()
    stop = threading.Event()

    def swap() -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            with contextlib.suppress(OSError):
                folder.rename(workspace.path / f"parked{number}")
            with contextlib.suppress(OSError):
                folder.symlink_to(outside)
            with contextlib.suppress(OSError):
                folder.unlink()

    swapper = threading.Thread(target=swap)
    swapper.start()
    refusals = 0
    try:
        for _ in range(300):
            try:
                workspace.write("folder/secret", "overwritten")
            except MeahError:
                refusals += 1
    finally:
        stop.set()
        swapper.join(5)
    assert refusals
    assert (outside / "secret").read_text() == "secret"
    assert os.listdir(outside) == ["secret"]
