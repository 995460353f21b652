"""The process inside, for a test: who opens or runs what on file systems that nginx can write to.

Each of them is marked with fanotify as it is made. A process of its own answers the kernel before
anything is opened, so who asks can be looked at while it waits (fanotify(7)). With
``NGINX_TUNE_TEST_OUTSIDE`` covers are also put over their paths in the lab's own mounts, which is
what the test must see. They are not to lie in one another: to open a file of the inner one is to
open one of the outer one.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import runpy
import struct
import sys
from pathlib import Path

from nginx_tune.nginx.lab.enclosure import Enclosure
from nginx_tune.sandbox import kernel_calls as calls
from nginx_tune.sandbox.covers import Covers
from nginx_tune.sandbox.places import settle

_CLASS_CONTENT, _OPEN_PERM, _OPEN_EXEC_PERM = 4, 0x10000, 0x40000
_MARK_ADD, _MARK_FILESYSTEM = 1, 0x100
_EVENT = struct.Struct("=IBBHQii")
_RESPONSE = struct.Struct("=iI")
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fanotify_mark.argtypes = [
    ctypes.c_int, ctypes.c_uint, ctypes.c_uint64, ctypes.c_int, ctypes.c_char_p,
]  # fmt: skip


def _check(status: int) -> int:
    if status < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return status


class Watch:
    """The listener, whose answers a child of this process gives."""

    def __init__(self, report: str) -> None:
        self._listener = _check(_libc.fanotify_init(_CLASS_CONTENT, os.O_RDONLY | os.O_CLOEXEC))
        # A pipe: a file that is open for writing would keep its mount from becoming read-only.
        number = os.open(report, os.O_WRONLY)
        if os.fork() == 0:
            os.closerange(0, 3)  # whoever waits for the process inside waits for it alone
            self._answer(number)
        os.close(number)

    def mark(self, path: Path) -> None:
        """Watch the file system that a path lies on."""
        mask = _OPEN_PERM | _OPEN_EXEC_PERM
        flags = _MARK_ADD | _MARK_FILESYSTEM
        _check(_libc.fanotify_mark(self._listener, flags, mask, -100, os.fsencode(path)))

    def _answer(self, report: int) -> None:
        here = Path("/proc/self/ns/pid").stat().st_ino
        while True:
            data = os.read(self._listener, 1 << 16)
            while data:
                length, _, _, _, mask, file, pid = _EVENT.unpack_from(data)
                data = data[length:]
                try:
                    is_outside = Path(f"/proc/{pid}/ns/pid").stat().st_ino == here
                    command = Path(f"/proc/{pid}/cmdline").read_bytes()[:200]
                except OSError:
                    is_outside, command = True, b"?"
                line = {
                    "outside": is_outside,
                    "pid": pid,
                    "command": command.replace(b"\0", b" ").decode(errors="replace"),
                    "runs": bool(mask & _OPEN_EXEC_PERM),
                    "path": str(Path(f"/proc/self/fd/{file}").readlink()),
                }
                os.write(report, json.dumps(line).encode() + b"\n")
                with contextlib.suppress(OSError):  # whoever asked was killed
                    os.write(self._listener, _RESPONSE.pack(file, 1))
                os.close(file)


def _install(watch: Watch, outside: list[str]) -> None:
    mounting, covering = Covers._mount, Enclosure.cover
    laying = Covers._mount_over

    def mount(self: Covers, source: str, name: str, kind: str, flags: int, data: str) -> None:
        mounting(self, source, name, kind, flags, data)
        if not name.endswith(".layers"):  # reached through the overlay alone, which is marked
            watch.mark(self.path(name))

    def mount_over(self: Covers, name: str, lower: str, layers: str) -> None:
        laying(self, name, lower, layers)
        watch.mark(self.path(name))

    def cover(self: Enclosure, directory: str, inner: tuple[str, ...] = ()) -> None:
        covering(self, directory, inner)
        real = settle(directory).path
        if real not in outside:
            return
        # As once: in the lab's own mounts too, with what programs need of it in sight.
        layers = Path(self._state, f"outside-{self._made}")
        for name in ("upper", "work"):
            (layers / name).mkdir(parents=True)
        data = f"lowerdir={real},upperdir={layers}/upper,workdir={layers}/work"
        calls.mount("outside", real, "overlay", 0, data)
        watch.mark(Path(real))

    Covers._mount = mount  # type: ignore[method-assign]
    Covers._mount_over = mount_over  # type: ignore[method-assign]
    Enclosure.cover = cover  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    outside = os.environ.get("NGINX_TUNE_TEST_OUTSIDE", "").split(":")
    _install(Watch(os.environ["NGINX_TUNE_TEST_REPORT"]), outside)
    sys.argv[0] = "nginx_tune.experiment.inside"
    runpy.run_module("nginx_tune.experiment.inside", run_name="__main__")
