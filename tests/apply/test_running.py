"""A change is refused where a reload would bring in more than it, or take more away."""

import errno
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from apply_site import Site
from change_files import snapshot
from free_ports import free_port

from nginx_tune.change.apply import calls, run
from nginx_tune.change.apply.examine import Permissions
from nginx_tune.change.apply.model_journal import RefusedError, RejectedError
from nginx_tune.change.apply.undo import roll_back
from nginx_tune.conf.tree import parse_text
from nginx_tune.host.live import LiveHost
from nginx_tune.nginx.reload.address import AcceptingSocket, unheard

Make = Callable[..., Site]
NEW = 'return 200 "new\\n";'


@pytest.fixture
def shop(make_site: Make, root: Path) -> Site:
    """Beside the usual server one on a port of its own, by a link of ``sites``."""
    (root / "etc" / "available").mkdir(parents=True)
    (root / "etc" / "sites").mkdir()
    (root / "older").write_text("server_tokens off;\n")
    os.utime(root / "older", (1, 1))
    for name in ("shop", "second"):
        (root / "etc" / "available" / name).write_text(
            f"server {{ listen 127.0.0.1:{free_port()}; return 200 {name}; }}\n"
        )
    (root / "etc" / "sites" / "shop").symlink_to("../available/shop")
    site = make_site(http="include sites/*; include sites-none/*;")
    (root / "moved").write_text("server_tokens off;\n")
    time.sleep(0.3)
    return site


def _retarget(site: Site) -> None:
    """As ``ln -sfn`` does."""
    (site.tree / "sites" / ".new").symlink_to("../available/second")
    (site.tree / "sites" / ".new").rename(site.tree / "sites" / "shop")


def _exchange_directory(site: Site) -> None:
    (site.root / "made").mkdir()
    (site.tree / "sites-none").symlink_to(site.root / "made")


EDITS: dict[str, tuple[Callable[[Site], object], str]] = {
    "removed": (lambda site: (site.tree / "sites" / "shop").unlink(), "/sites: a name in it"),
    "renamed": (lambda site: (site.tree / "conf.d" / "site.conf").rename(site.root / "site.off"),
                "/conf.d: a name in it"),
    "linked": (lambda site: (site.tree / "sites" / "b").symlink_to("../available/second"),
               "/sites/b: changed"),
    "retargeted": (_retarget, "/sites/shop: changed"),
    "copied with its times": (
        lambda site: shutil.copy2(site.root / "older", site.tree / "conf.d" / "site.conf"),
        "/conf.d/site.conf: changed"),
    "moved in": (lambda site: (site.root / "moved").rename(site.tree / "conf.d" / "more.conf"),
                 "/conf.d/more.conf: changed"),
    "a directory that was not there": (_exchange_directory, "/sites-none: changed"),
    "a directory that is gone": (lambda site: (site.tree / "sites").rename(site.root / "off"),
                                 "/etc: a name in it"),
}  # fmt: skip


@pytest.mark.needs("root", "nginx")
@pytest.mark.parametrize("how", list(EDITS))
def test_what_nginx_has_not_read_yet_is_not_brought_in(shop: Site, how: str) -> None:
    edit, said = EDITS[how]
    edit(shop)
    before = snapshot(shop.tree)
    with pytest.raises(RefusedError, match=f"{said}.* after nginx last read it"):
        shop.apply({"nginx.conf": shop.conf.read_text() + "# more\n"}, permissions=_MAY_LOSE)
    assert snapshot(shop.tree) == before
    assert shop.ask() == "old\n"


_MAY_LOSE = Permissions(loses=True)


@pytest.mark.needs("root", "nginx")
def test_changes_one_after_another_are_no_edits_of_somebody_else(shop: Site) -> None:
    """Each moves the times of its files and directories, after the reload too."""
    for number in range(2):
        text = shop.server(f'return 200 "{number}\\n";')
        assert (
            shop.apply({"conf.d/site.conf": text, f"sites/{number}": "# new\n"}).outcome == "kept"
        )
    with pytest.raises(RejectedError, match="unknown directive"):
        shop.apply({"conf.d/site.conf": "nothing;\n", "sites/2": "# new\n"})
    roll_back(LiveHost(), shop.state, shop.state.all()[1].id)
    assert shop.apply({"sites/2": "# new\n"}).outcome == "kept"
    # What was written down is of what lay there: an edit since does not hide behind it.
    time.sleep(0.3)
    (shop.tree / "sites" / "shop").unlink()
    with pytest.raises(RefusedError, match=r"/sites: a name in it .*after nginx last read it"):
        shop.apply({"sites/3": "# new\n"})


@pytest.mark.needs("root", "nginx")
def test_what_was_written_down_stays_until_the_next_is_whole(
    shop: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = calls.rename_over

    def full(directory: int, one: str, other: str) -> None:
        if other == "loaded":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(directory, one, other)

    assert shop.apply({"sites/1": "# new\n"}).outcome == "kept"
    known = (shop.state.path / "loaded").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(calls, "rename_over", full)
        with pytest.raises(RejectedError, match="unknown directive"):
            shop.apply({"conf.d/site.conf": "nothing;\n"})
        assert (shop.state.path / "loaded").read_bytes() == known
        # Nor does a change fail by it.
        assert shop.apply({"sites/2": "# new\n"}).outcome == "kept"
    assert (shop.state.path / "loaded").read_bytes() == known


@pytest.mark.needs("root", "nginx")
def test_what_nginx_has_read_may_bear_any_time(make_site: Make) -> None:
    site = make_site(server="")
    (site.tree / "conf.d" / "future.conf").write_text("# of another clock\n")
    os.utime(site.tree / "conf.d" / "future.conf", (2**31 - 10, 2**31 - 10))
    pid = site.pid
    site.stop(pid)
    site.start()
    time.sleep(0.3)
    (site.tree / "unread").write_text("beside the includes\n")
    assert site.apply({"conf.d/site.conf": site.server(NEW)}).outcome == "kept"


@pytest.mark.needs("root", "nginx")
def test_a_listener_that_only_the_master_has_is_not_lost(
    shop: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the files say by now: its site may have gone before anybody looked."""
    monkeypatch.setattr(run, "check_loaded", lambda *_: None)
    port = (shop.tree / "available" / "shop").read_text().partition(":")[2].partition(";")[0]
    (shop.tree / "sites" / "shop").unlink()
    before = snapshot(shop.tree)
    edits = {"conf.d/site.conf": shop.server(NEW)}
    with pytest.raises(RefusedError, match=f"listens at 127.0.0.1:{port} now, and would not"):
        shop.apply(edits)
    assert snapshot(shop.tree) == before
    assert shop.ask(int(port)) == "shop"
    assert shop.apply(edits, permissions=_MAY_LOSE).outcome == "kept"


def test_which_sockets_a_configuration_has() -> None:
    table = [
        ("127.0.0.1", 80, "http { server { listen 127.0.0.1; } }", True),
        ("127.0.0.2", 80, "http { server { listen 127.0.0.1; } }", False),
        ("127.0.0.1", 81, "http { server { listen *:80-90; } }", True),
        ("127.0.0.1", 91, "http { server { listen *:80-90; } }", False),
        ("::1", 81, "http { server { listen 81; } }", False),
        ("::1", 81, "http { server { listen [::]:81; } }", True),
        ("0.0.0.0", 81, "http { server { listen [::]:81; } }", False),
        ("0.0.0.0", 81, "http { server { listen [::]:81 ipv6only=off; } }", True),
        ("::1", 81, "stream { server { listen [0:0::1]:81; } }", True),
        ("127.0.0.1", 81, "mail { server { listen localhost:81; } }", True),
        ("0.0.0.0", 1935, "rtmp { server { listen 1935; } }", True),
        ("0.0.0.0", 80, "http { server { } }", True),
        ("0.0.0.0", 80, "http { server { listen 81; } }", False),
    ]
    wrong = []
    for address, port, conf, is_heard in table:
        socket = AcceptingSocket(address, port, "", "http")
        if unheard([socket], parse_text(conf)) != ([] if is_heard else [socket.name]):
            wrong.append((address, port, conf))
    assert wrong == []
