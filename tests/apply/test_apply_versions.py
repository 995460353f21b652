"""The traps of a reload on other versions of nginx than the installed one."""

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from apply_site import Site
from change_files import snapshot
from free_ports import free_port
from matrix_program import own_executable
from nginx_versions import marked

from nginx_tune.change.apply.model_journal import RejectedError
from nginx_tune.change.apply.undo import roll_back
from nginx_tune.host.live import LiveHost
from nginx_tune.nginx.reload.host_refusals import Looked

pytestmark = [
    pytest.mark.needs("root", "patchelf"),
    pytest.mark.parametrize("series", marked("1.18", "1.26", "1.30")),
]
Make = Callable[..., Site]
ZONE = "limit_req_zone ${} zone=one:1m rate=100r/s;"


@pytest.fixture
def program(series: str, root: Path) -> str:
    """The nginx of a series, as the process that ``apply`` sees."""
    return str(own_executable(series, root))


def _refused_by_a_reload(site: Site, edits: dict[str, str], reason: str) -> None:
    """nginx -t is content, the change is taken back, the old configuration answers."""
    pid, before = site.pid, snapshot(site.tree)
    applied = site.apply(edits)
    assert applied.outcome == "rolled_back"
    assert reason in applied.reason
    assert snapshot(site.tree) == before
    assert site.pid == pid
    assert site.ask() == "old\n"


def test_a_good_change_is_kept(make_site: Make, program: str, series: str) -> None:
    site = make_site(binary=program)
    applied = site.apply({"conf.d/site.conf": site.server('return 200 "$nginx_version\\n";')})
    assert (applied.outcome, applied.reason, applied.notes) == ("kept", "", [])
    assert site.ask().startswith(f"{series}.")


LISTENS = [
    ("{0} http2", "{0}"),  # one server's word holds for both
    ("{0}", "{0} http2"),
    ("127.0.0.1:{0} http2", "{0}"),  # one socket, asked at 127.0.0.1
    ("{0} http2", "127.0.0.1:{0}"),
    ("localhost:{0} http2", "{0}"),  # what a name stands for is not known: it must accept
]


def test_an_address_is_asked_by_its_own_listen_and_as_it_is_spoken(
    make_site: Make, program: str, root: Path
) -> None:
    """Until 1.25.1 nothing but HTTP/2 is spoken where a ``listen`` says so."""
    site = make_site(binary=program)
    new = [f"unix:{root}/h2 http2", f"127.0.0.1:{free_port()} http2",
           f"127.0.0.1:{free_port()} http2 proxy_protocol"]  # fmt: skip
    for listens in LISTENS:
        port = free_port()
        new += [one.format(port) for one in listens]
    text = "".join(site.server("return 204;", one) for one in new)
    applied = site.apply({"conf.d/h2.conf": text})
    assert (applied.outcome, applied.reason) == ("kept", "")


def test_an_address_that_begins_to_speak_http_2_is_kept_and_taken_back(
    program: str, root: Path
) -> None:
    """A rollback asks the old listener as it speaks again."""
    site = Site(root, program)
    ports = {"http2": free_port(), "http2 proxy_protocol": free_port()}
    old = "".join(site.server(listen=f"127.0.0.1:{port}") for port in ports.values())
    (site.tree / "conf.d" / "other.conf").write_text(old)
    site.start()
    new = "".join(
        site.server("return 204;", f"127.0.0.1:{port} {options}") for options, port in ports.items()
    )
    changed = site.apply({"conf.d/other.conf": new})
    assert (changed.outcome, changed.reason) == ("kept", "")
    assert roll_back(LiveHost(), site.state, None)[1] == "reloaded"
    assert [site.ask(port) for port in ports.values()] == ["old\n"] * 2


def test_http_2_by_its_own_directive_leaves_the_other_protocol(
    make_site: Make, program: str, series: str
) -> None:
    site = make_site(binary=program)
    port = free_port()
    edits = {"conf.d/h2.conf": site.server('http2 on; return 200 "both\\n";', f"127.0.0.1:{port}")}
    if series == "1.18":  # it is of 1.25.1
        with pytest.raises(RejectedError, match='unknown directive "http2"'):
            site.apply(edits)
        return
    applied = site.apply(edits)
    assert (applied.outcome, applied.reason) == ("kept", "")
    assert site.ask(port) == "both\n"


def test_a_changed_zone_key_is_taken_back(make_site: Make, program: str) -> None:
    site = make_site(http=ZONE.format("binary_remote_addr"), binary=program)
    changed = {"nginx.conf": site.text(http=ZONE.format("remote_addr"))}
    _refused_by_a_reload(site, changed, 'limit_req "one" uses the "$remote_addr" key')


def test_a_port_that_somebody_took_meanwhile_is_taken_back(
    make_site: Make, program: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is taken before is refused before any file is changed."""
    monkeypatch.setattr("nginx_tune.change.apply.hindrances.taken_here", lambda *_: Looked([], []))
    site = make_site(binary=program)
    with socket.create_server(("127.0.0.1", port := free_port())):
        changed = {
            "nginx.conf": site.text(f"pid {root}/other.pid;"),
            "conf.d/a.conf": site.server(listen=f"127.0.0.1:{port}"),
        }
        _refused_by_a_reload(site, changed, "failed (98")
    assert not (root / "other.pid").exists()


def test_workers_that_die_at_once_are_taken_back(make_site: Make, program: str, root: Path) -> None:
    site = make_site(binary=program)
    changed = {"nginx.conf": site.text(f"working_directory {root}/none;")}
    _refused_by_a_reload(site, changed, "exited with fatal code 2")
