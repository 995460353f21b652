"""Readers that trees are read through in tests."""

from pathlib import Path

from nginx_tune.conf.tree import ConfTree, read_tree
from nginx_tune.host.door import HostReadError


class Files:
    """Files by path, held in memory."""

    def __init__(self, files: dict[str, str | bytes]) -> None:
        self.files = {
            path: text.encode() if isinstance(text, str) else text for path, text in files.items()
        }

    def read_bytes(self, path: str) -> bytes:
        if path not in self.files:
            raise HostReadError(f"read {path}", "No such file or directory")
        return self.files[path]

    def list_dir(self, path: str) -> list[str]:
        below = [name.removeprefix(path.rstrip("/") + "/") for name in self.files]
        names = {b.split("/")[0] for b, n in zip(below, self.files, strict=True) if b != n}
        if not names:
            raise HostReadError(f"list {path}", "No such file or directory")
        return sorted(names)


class Disk:
    """The real files."""

    def read_bytes(self, path: str) -> bytes:
        try:
            return Path(path).read_bytes()
        except OSError as error:
            raise HostReadError(f"read {path}", str(error.strerror)) from None

    def list_dir(self, path: str) -> list[str]:
        try:
            return [entry.name for entry in Path(path).iterdir()]
        except OSError as error:
            raise HostReadError(f"list {path}", str(error.strerror)) from None


def tree_of(files: dict[str, str | bytes] | str, main: str = "/etc/nginx/nginx.conf") -> ConfTree:
    return read_tree(main, Files(files if isinstance(files, dict) else {main: files}))
