"""A modelled disk from the side that uses it: its server, and the switch of its model."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import msgspec

from nginx_tune.documents.diskmodel import DiskModel
from nginx_tune.errors import UndecidedError
from nginx_tune.host.programs import own_module, start_text_program
from nginx_tune.nginx.lab.disk_server import ServerRequest
from nginx_tune.nginx.lab.lifetime import die_with_parent


def find_missing() -> str:
    """Why no disk can be modelled here; empty when one can."""
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return f"/dev/fuse: {error.strerror}"
    return ""


class ModelledFile:
    """An image seen as a file whose reads take their time; the model is off at first.

    The server ends with the process that made it; what the file was mounted on stays mounted in
    this mount namespace until ``close``.
    """

    def __init__(
        self, image: Path, point: Path, model: DiskModel, *, seed: int, writable: bool
    ) -> None:
        request = ServerRequest(
            image=str(image), point=str(point), model=model, seed=seed, writable=writable
        )
        self.path = point
        self.failed_reads = 0
        """Since the model was last turned on, as told when it was turned off."""
        self._process = start_text_program(
            own_module("nginx_tune.nginx.lab.disk_server", msgspec.json.encode(request).decode()),
            is_checked=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=die_with_parent,  # one prctl; no threads are running
        )
        self._expect("off")

    def switch(self, *, on: bool) -> None:
        """Answer as the model says, or at once."""
        word = "on" if on else "off"
        if self._process.stdin is not None:
            try:
                self._process.stdin.write(word + "\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                raise UndecidedError(f"the modelled disk ended: {self._last_words()}") from None
        self._expect(word)

    def close(self) -> None:
        """End the server: whoever still reads gets errors, and the file can be unmounted."""
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        self._process.wait()

    def _expect(self, word: str) -> None:
        line = "" if self._process.stdout is None else self._process.stdout.readline()
        said, _, failed = line.strip().partition(" ")
        if said != word:
            raise UndecidedError(f"the modelled disk ended: {self._last_words()}")
        self.failed_reads = int(failed)

    def _last_words(self) -> str:
        self._process.kill()
        text = "" if self._process.stderr is None else self._process.stderr.read().strip()
        return text.splitlines()[-1] if text else "no reason given"
