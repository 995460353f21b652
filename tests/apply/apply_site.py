"""A real nginx with a tree of its own, and changes to it as a plan would ask for."""

import contextlib
import os
import select
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from change_files import sha256
from free_ports import free_port
from started import until

from nginx_tune.change.apply import run
from nginx_tune.change.apply.examine import Proposed
from nginx_tune.change.apply.journal import State
from nginx_tune.change.apply.run import Applied, ApplyOptions, Onlooker, apply_change
from nginx_tune.host.live import LiveHost


def amid_watch(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """As soon as the new configuration was seen to answer."""
    real = run.watch

    def watch(*given: Any, **named: Any) -> None:
        happens()
        real(*given, **named)

    monkeypatch.setattr(run, "watch", watch)


class Site:
    """A running nginx, its files, and what it says."""

    def __init__(self, root: Path, binary: str, user: str = "root") -> None:
        self.root = root
        self.user = user
        self.binary = binary
        self.port = free_port()
        self.conf = root / "etc" / "nginx.conf"
        self.tree = root / "etc"
        self.state = State(root / "state")
        (self.tree / "conf.d").mkdir(parents=True)
        (root / "tmp").mkdir()
        self.conf.write_text(self.text())
        (self.tree / "conf.d" / "site.conf").write_text(self.server())

    def text(self, top: str = "", http: str = "", *, workers: int = 1) -> str:
        temporary = "".join(
            f"{name}_temp_path {self.root}/tmp/{name};"
            for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        return (
            f"user {self.user}; worker_processes {workers};\n"
            f"{top}\n"
            + ("" if "pid " in top else f"pid {self.root}/nginx.pid;\n")
            + ("" if "error_log " in top else f"error_log {self.root}/error.log;\n")
            + "events { worker_connections 64; }\n"
            f"http {{\n{temporary} access_log off;\n{http}\ninclude conf.d/*;\n}}\n"
        )

    def server(self, body: str = 'return 200 "old\\n";', listen: str = "") -> str:
        return f"server {{ listen {listen or f'127.0.0.1:{self.port}'}; {body} }}\n"

    def start(self) -> None:
        subprocess.run([self.binary, "-c", self.conf], check=True, capture_output=True)

        def answers() -> bool:
            with contextlib.suppress(OSError):
                self.ask()
                return True
            return False

        until(answers)

    @property
    def pid(self) -> int:
        return int((self.root / "nginx.pid").read_text() or 0)

    def stop(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            held = os.pidfd_open(pid)
            os.kill(pid, signal.SIGTERM)
            if not select.select([held], [], [], 5)[0]:
                os.kill(pid, signal.SIGKILL)
            os.close(held)

    def ask(self, port: int | None = None) -> str:
        with socket.create_connection(("127.0.0.1", port or self.port), timeout=3) as one:
            one.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return one.makefile("rb").read().partition(b"\r\n\r\n")[2].decode()

    def propose(self, edits: dict[str, str]) -> list[Proposed]:
        found = []
        for name, text in edits.items():
            path = self.tree / name
            there = path.exists()
            found.append(
                Proposed(
                    path=str(path),
                    content=text.encode(),
                    sha256_before=sha256(path.read_bytes()) if there else None,
                    sha256_after=sha256(text.encode()),
                )
            )
        return found

    def overlay(self, *more: str, main: str = "") -> list[str]:
        """The words of ``apply`` for a new server, or for another main file."""
        new = self.root / "new.conf"
        new.write_text(main or self.server('return 200 "new\\n";'))
        name = "nginx.conf" if main else "conf.d/site.conf"
        return [
            "apply", "--overlay", f"{self.tree}/{name}={new}", "-c", str(self.conf),
            "--state-dir", str(self.state.path), "--watch", "200ms", *more,
        ]  # fmt: skip

    def apply(self, edits: dict[str, str], **wish: object) -> Applied:
        say = wish.pop("say", lambda _: None)
        asked = {"conf_path": str(self.conf), "watch_seconds": 0.2, **wish}
        proposed = self.propose(edits)
        return apply_change(
            LiveHost(), self.state, proposed, {}, ApplyOptions(**asked),  # type: ignore[arg-type]
            onlooker=Onlooker(say=say),  # type: ignore[arg-type]
        )  # fmt: skip
