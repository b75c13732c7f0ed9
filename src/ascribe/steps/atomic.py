"""Write a file or folder as a whole: the old one stands until the new one is on the disk.

Every output of Ascribe is written here, except for files that only grow, such as journals.
"""

import gzip
import json
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from glob import escape
from pathlib import Path
from secrets import token_hex
from typing import IO, cast

from ascribe.steps.errors import InputError
from ascribe.steps.strict_json import loads

TOKEN = "[0-9a-f]" * 16
LIST = ".ascribe.json"
"""File in a folder that was written as a whole: the list of its files."""


@contextmanager
def replacing(path: str | Path) -> Iterator[IO[bytes]]:
    """A file to write, which takes the place of ``path`` when the block ends without an error.

    It is a hidden draft beside ``path`` until then, so that a reader finds the old file or the new
    one, whatever happens to this process. An error removes the draft. A killed process leaves it,
    and the next writer of ``path`` removes it. Several writers have a draft each; the last one to
    end wins. Links are followed, permissions are kept, and devices and pipes are written directly.
    What is written to a ``.gz`` file is compressed.

    Raises:
        OSError: if the file cannot be written; the old file is as it was.
    """
    target = Path(os.path.realpath(path))
    mode = target.stat().st_mode if target.exists() else None
    if mode is not None and not stat.S_ISREG(mode):
        with target.open("wb") as device, _compressed(path, device) as contents:
            yield contents
        return
    try:
        if mode is not None:
            os.close(os.open(target, os.O_WRONLY))  # a file that is write-protected stays
        draft, lock = _new_draft(target)
    except OSError as error:
        error.filename = str(path)
        raise
    try:
        with draft.open("r+b") as file:
            if mode is not None:
                draft.chmod(stat.S_IMODE(mode))
            with _compressed(path, file) as contents:
                yield contents
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    finally:
        if lock is not None:
            os.close(lock)
    sync(target.parent)


def _compressed(path: str | Path, file: IO[bytes]) -> AbstractContextManager[IO[bytes]]:
    if Path(path).suffix != ".gz":
        return nullcontext(file)
    # Without a name and a time, which gzip would take from the draft and the clock.
    return cast("IO[bytes]", gzip.GzipFile("", "wb", fileobj=file, mtime=0))


@contextmanager
def replacing_folder(path: str | Path) -> Iterator[Path]:
    """A new folder to fill, which takes the place of ``path`` when the block ends without an error.

    See ``swap_folder``. An error leaves the old folder as it was.
    """
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    draft, lock = _new_draft(target, is_folder=True)
    try:
        yield draft
        swap_folder(draft, target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def swap_folder(draft: Path, target: Path) -> None:
    """Put a complete folder, with a list of its files, in the place of another one.

    The old folder becomes ``.NAME.TOKEN.old`` beside it, the new one takes its name, and then the
    files that the old one's list names are removed; others stay, in the new folder. A kill between
    the two renames leaves both folders whole; the next writer puts the old one back.
    """
    recover_folder(target)
    files = [str(entry.relative_to(draft)) for entry in draft.rglob("*") if not entry.is_dir()]
    write_file(draft / LIST, json.dumps({"files": sorted(files)}))
    for entry in [*draft.rglob("*"), draft]:
        sync(entry)
    if target.is_dir():
        target.rename(target.with_name(f"{_prefix(target)}{token_hex(8)}.old"))
    try:
        draft.rename(target)
    finally:
        recover_folder(target)
    sync(target.parent)


def recover_folder(target: Path) -> None:
    """End a swap of folders that was killed: put the old one back, if the new one is not there."""
    for entry in list(target.parent.glob(f"{escape(_prefix(target))}{TOKEN}.old")):
        if not target.exists():
            time.sleep(0.1)  # in which a process that lives ends its swap
        with suppress(FileNotFoundError):  # another process may do the same
            if not target.exists():
                entry.rename(target)
                continue
            old = read_list((entry / LIST).read_bytes() if (entry / LIST).exists() else None, entry)
            for file in [file for file in entry.rglob("*") if not file.is_dir()]:
                place = target / file.relative_to(entry)
                if str(file.relative_to(entry)) not in old["files"] and not place.exists():
                    place.parent.mkdir(parents=True, exist_ok=True)
                    file.rename(place)
            shutil.rmtree(entry.rename(entry.with_suffix(".draft")))


def read_list(contents: bytes | None, folder: object) -> dict[str, set[str]]:
    """The ``files`` that a folder's list names, and ``unfinished`` ones; ``ValueError`` if torn."""
    with suppress(ValueError):
        found = {} if contents is None else loads(contents)
        if isinstance(found, dict) and all(isinstance(one, list) for one in found.values()):
            return {name: set(map(str, found.get(name, ()))) for name in ("files", "unfinished")}
    raise InputError(f"the list {LIST} in {folder} is damaged", hint="remove it")


def write_file(path: str | Path, contents: str | bytes) -> int:
    """Write a whole file, text in UTF-8; returns its size in bytes."""
    data = contents.encode() if isinstance(contents, str) else contents
    with replacing(path) as file:
        return file.write(data)


def lock_file(descriptor: int, on_wait: Callable[[], None] | None = None) -> bool:
    """Lock a file against other processes that lock it; closing it ends the lock.

    Args:
        descriptor: the file.
        on_wait: called once if another process has the lock, before waiting for it; None: do not
            wait.

    Returns:
        Whether the file is locked. It is not where the system or the file system has no locks.
    """
    try:
        import fcntl
    except ImportError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if on_wait is None:
            return False
        on_wait()
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:
        return False
    return True


def sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk, where the system can."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _new_draft(target: Path, *, is_folder: bool = False) -> tuple[Path, int | None]:
    """An empty draft, and the descriptor that has it locked while its writer lives.

    Drafts of the same file or folder whose writers were killed are removed.
    """
    prefix = _prefix(target)
    for abandoned in list(target.parent.glob(f"{escape(prefix)}{TOKEN}.draft")):
        with suppress(OSError):
            descriptor = os.open(abandoned, os.O_RDONLY)
            try:
                if lock_file(descriptor):
                    shutil.rmtree(abandoned) if abandoned.is_dir() else abandoned.unlink()
            finally:
                os.close(descriptor)
    while True:
        draft = target.with_name(f"{prefix}{token_hex(8)}.draft")
        if is_folder:
            draft.mkdir()
            if os.name == "nt":  # where folders cannot be opened
                return draft, None
        flags = os.O_RDONLY if is_folder else os.O_WRONLY | os.O_CREAT | os.O_EXCL
        descriptor = os.open(draft, flags, 0o666)
        if not lock_file(descriptor, lambda: None):
            os.close(descriptor)  # nobody removes drafts that cannot be locked
            return draft, None
        # Another writer may have taken it for abandoned before it was locked.
        if os.fstat(descriptor).st_nlink:
            return draft, descriptor
        os.close(descriptor)


def _prefix(target: Path) -> str:
    """How names of drafts and old folders begin, of at most 255 bytes."""
    return f".{os.fsdecode(os.fsencode(target.name)[:200])}."
