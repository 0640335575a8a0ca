"""Locks of folders: one process at a time trains in a work directory, runs a sweep, or writes an index."""

import contextlib
import errno
import fcntl
import os
import pathlib
from collections.abc import Iterator
from typing import TextIO

from attn_jax.data.files import check_links, clear_partial, open_plain, reason
from attn_jax.errors import UserError


@contextlib.contextmanager
def claim(workdir: pathlib.Path) -> Iterator[TextIO]:
    """Checks that a work directory has no links and locks it as `locked`; raises as `check_links` and `lock`."""
    check_links(workdir)
    with locked(workdir) as file:
        yield file


@contextlib.contextmanager
def locked(workdir: pathlib.Path) -> Iterator[TextIO]:
    """Locks a folder; an error inside the context removes the lock and new folders again. Raises as `lock`."""
    new = [folder for folder in (workdir, *workdir.parents) if not folder.exists()]
    locked_before = (workdir / "lock").exists()
    file = lock(workdir)
    try:
        clear_partial(workdir)
        yield file
    except BaseException:
        if not locked_before:
            (workdir / "lock").unlink(missing_ok=True)
        file.close()
        with contextlib.suppress(OSError):  # a folder with files stays
            for folder in new:
                folder.rmdir()
        raise


def lock(workdir: pathlib.Path) -> TextIO:
    """Locks a folder against other writing processes until this process ends or the file is closed.

    Raises:
        UserError: another process holds the lock, or the directory is not writable.
    """
    path = workdir / "lock"
    if workdir.exists() and not workdir.is_dir():
        raise UserError(f"{workdir} is a file; expected a folder, or a name that is not taken")
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        file = open_plain(path)  # never written to: the path may be a hard link to another file
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return file
        file.close()  # another process has just removed it
        return lock(workdir)
    except OSError as error:
        if error.errno == errno.EAGAIN:
            raise UserError(f"{workdir} is in use: another process is writing there") from None
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):  # a file system without locks
            raise UserError(f"cannot write {workdir}: {reason(error)}") from error
    return file
