"""Configuration files in memory."""

from nginx_tune.host.door import HostReadError


class Files:
    """A tree in memory."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files

    def read_bytes(self, path: str) -> bytes:
        if path not in self.files:
            raise HostReadError(path, "No such file")
        return self.files[path]

    def list_dir(self, path: str) -> list[str]:
        return [name.removeprefix(f"{path}/") for name in self.files if name.startswith(f"{path}/")]
