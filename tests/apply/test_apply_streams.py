"""Listeners of stream: nothing can be asked of them, and a connection may end as it begins."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable

import pytest
from apply_site import Site
from change_files import snapshot
from free_ports import free_port
from nginx_versions import stream_modules

from nginx_tune.change.apply.undo import roll_back
from nginx_tune.host.live import LiveHost
from nginx_tune.nginx.reload.address import AcceptingSocket
from nginx_tune.nginx.reload.generation import ask_place
from nginx_tune.nginx.reload.workers import process_of

Make = Callable[..., Site]


@pytest.mark.parametrize(
    ("accepts", "speaks", "is_answer"),
    [(True, "unknown", True), (True, "http", False), (False, "unknown", False)],
)
def test_who_ends_a_connection_at_once_has_accepted_it(
    *, accepts: bool, speaks: str, is_answer: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        child = os.fork()
        if child == 0:
            while accepts:
                listener.accept()[0].close()
            signal.pause()
        try:
            process = process_of(child)
            assert process is not None
            place = AcceptingSocket("127.0.0.1", listener.getsockname()[1], "", speaks)
            asked = ask_place(LiveHost(), place, process, {child})
            assert (asked.is_answer, asked.who) == (is_answer, None)
            assert asked.why
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


@pytest.mark.needs("root", "nginx", "stream-modules")
def test_a_stream_whose_upstream_refuses_holds_no_change_up(make_site: Make) -> None:
    module = stream_modules()[0]
    port, nobody = free_port(), free_port()
    site = make_site(
        f"load_module {module};\n"
        f"stream {{ server {{ listen 127.0.0.1:{port}; proxy_pass 127.0.0.1:{nobody}; }} }}"
    )
    before = snapshot(site.tree)
    applied = site.apply({"conf.d/site.conf": site.server('return 200 "new\\n";')})
    assert (applied.outcome, applied.reason) == ("kept", "")
    assert applied.notes == [
        f"127.0.0.1:{port}: connections end at once, so it is unknown which worker accepts"
    ]
    assert site.ask() == "new\n"
    assert roll_back(LiveHost(), site.state, None)[1] == "reloaded"
    assert snapshot(site.tree) == before
