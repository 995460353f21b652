"""What nginx would write over, delete or give to another user, before anybody could undo it."""

import itertools
import os
import pwd
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from apply_site import Site
from started import reload, until

from nginx_tune.change.apply.hindrances import foreign_file
from nginx_tune.change.apply.model_journal import RefusedError

pytestmark = pytest.mark.needs("root", "nginx", "nobody")
Make = Callable[..., Site]
NOBODY = pwd.getpwnam("nobody").pw_uid


def with_pid(site: Site, pid: Path | str) -> dict[str, str]:
    """The main file with another ``pid``."""
    return {"nginx.conf": site.text(f"pid {pid};")}


def with_user(site: Site, user: str) -> dict[str, str]:
    """The main file with another ``user``."""
    return {"nginx.conf": site.text().replace(f"user {site.user};", f"user {user};")}


# pid


def test_a_pid_on_a_file_of_something_else_is_refused(make_site: Make) -> None:
    site = make_site()
    theirs = site.root / "theirs"
    for content in (b"site data\n", b"1\n", b"12x"):
        theirs.write_bytes(content)
        with pytest.raises(
            RefusedError, match=r"nginx\.conf:2: pid .*theirs: nginx would overwrite"
        ):
            site.apply(with_pid(site, theirs))
        assert theirs.read_bytes() == content
        assert site.ask() == "old\n"


def test_a_pid_on_what_is_no_plain_file_of_ours_is_refused(make_site: Make) -> None:
    site = make_site()
    places = {
        kind: site.root / f"of a {kind}" for kind in ("link", "directory", "hard link", "another's")
    }
    places["link"].symlink_to(site.tree / "absent")
    places["directory"].mkdir()
    for kind in ("hard link", "another's"):
        places[kind].write_bytes(b"")
    (site.root / "other").hardlink_to(places["hard link"])
    os.chown(places["another's"], NOBODY, -1)
    for there in places.values():
        with pytest.raises(RefusedError, match="nginx would overwrite that file"):
            site.apply(with_pid(site, f'"{there}"'))
    assert not (site.tree / "absent").exists(), "nginx -t alone would make what a link leads to"


def test_what_nginx_makes_is_nothing_that_an_include_reads(make_site: Make) -> None:
    """Of an empty pid file nginx -t is content, the reload after the next one is not."""
    site = make_site()
    place = site.tree / "conf.d" / "zz"
    for edits in (
        {"nginx.conf": site.text(f"pid {place};")},
        {"conf.d/site.conf": site.server(f'return 200 "new\\n"; proxy_temp_path {place};')},
    ):
        for written in ({}, {"conf.d/zz": "# new\n"}):
            with pytest.raises(RefusedError, match=r"/zz: the configuration includes .*conf\.d/\*"):
                site.apply({**edits, **written})
            assert not place.exists()


def test_what_is_hidden_from_an_include_may_lie_beside_it(make_site: Make) -> None:
    site = make_site()
    edits = with_pid(site, site.tree / "conf.d" / ".pid")
    assert site.apply(edits).outcome == "kept"
    assert site.apply({"conf.d/site.conf": site.server("return 204;")}).outcome == "kept"


def test_a_pid_where_nothing_is_lost_is_taken(make_site: Make) -> None:
    site = make_site()
    number = site.pid
    for name, content in (("none", None), ("empty", b""), ("of nobody", b"4194304\n")):
        other = site.root / f"{name.replace(' ', '-')}.pid"
        if content is not None:
            other.write_bytes(content)
        assert site.apply(with_pid(site, other)).outcome == "kept", name
        assert other.read_text().strip() == str(number)


def test_the_old_pid_file_by_another_name_is_refused(make_site: Make) -> None:
    """As /var/run/nginx.pid for /run/nginx.pid: nginx writes it, and removes it by its old name."""
    site = make_site()
    (site.root / "run").symlink_to(site.root)
    edits = with_pid(site, site.root / "run" / "nginx.pid")
    with pytest.raises(RefusedError, match=r"same file as .*nginx\.pid: a reload"):
        site.apply(edits)
    # What nginx itself makes of it.
    (site.tree / "nginx.conf").write_text(edits["nginx.conf"])
    subprocess.run(["/usr/sbin/nginx", "-c", site.conf, "-s", "reload"], check=True)
    until(lambda: not (site.root / "nginx.pid").exists())


# Owners


def owner(path: Path) -> tuple[int, int]:
    return path.stat().st_uid, path.stat().st_mode & 0o777


TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


@pytest.mark.parametrize("user", ["nobody nogroup", "root"])
def test_what_is_there_is_not_given_away(make_site: Make, user: str) -> None:
    site = make_site(user=user)
    whats = ("others",) if user == "root" else ("full", "empty", "file")
    for name, what in itertools.product(TEMPORARY, whats):
        there = site.root / f"{name}-{what}"
        if what == "file":
            there.write_bytes(b"x")
        else:
            there.mkdir(mode=0o755)
        if what == "full":
            (there / "x").write_bytes(b"x")
        if what == "others":
            os.chown(there, 1, 1)
        before = owner(there)
        server = site.server(f'return 200 "new\\n"; {name}_temp_path {there};')
        said = rf"site\.conf:1: {name}_temp_path .*{there.name}.*owner of the existing"
        with pytest.raises(RefusedError, match=said):
            site.apply({"conf.d/site.conf": server})
        assert owner(there) == before, there.name


def test_an_empty_directory_for_a_cache_is_not_given_away(make_site: Make) -> None:
    """Such as /run/sshd, which is no longer sshd's when it is not root's."""
    site = make_site(user="nobody nogroup")
    caches = site.tree / "conf.d" / "caches.conf"
    for module in ("proxy", "fastcgi", "uwsgi", "scgi"):
        there = site.root / f"there-{module}"
        there.mkdir(mode=0o755)
        text = f"{module}_cache_path {there} keys_zone=z:1m;\n"
        said = rf"caches\.conf:1: {module}_cache_path .*owner of the existing"
        with pytest.raises(RefusedError, match=said):
            site.apply({"conf.d/caches.conf": text})
        assert owner(there) == (0, 0o755), module
        # What nginx itself makes of it.
        caches.write_text(text)
        subprocess.run(["/usr/sbin/nginx", "-t", "-c", site.conf], check=True, capture_output=True)
        assert owner(there)[0] == NOBODY, module
        caches.unlink()
        reload(site.pid)  # it has read the directory as it is now


def test_a_place_that_its_owner_may_not_use_is_not_opened(make_site: Make) -> None:
    site = make_site()
    there = site.root / "there"
    there.mkdir(mode=0o500)
    server = site.server(f"return 204; proxy_temp_path {there};")
    with pytest.raises(RefusedError, match="owner of the existing directory"):
        site.apply({"conf.d/site.conf": server})
    assert owner(there) == (0, 0o500)


def test_what_is_not_there_yet_and_what_is_the_workers_are_taken(make_site: Make) -> None:
    site = make_site(user="nobody nogroup")
    (site.root / "theirs").mkdir()
    (site.root / "theirs" / "x").write_bytes(b"")
    os.chown(site.root / "theirs", NOBODY, 0)
    body = f"proxy_temp_path {site.root}/absent; client_body_temp_path {site.root}/theirs;"
    edits = {"conf.d/site.conf": site.server(f'{body} return 200 "new\\n";')}
    assert site.apply(edits).outcome == "kept"
    assert owner(site.root / "absent")[0] == NOBODY


def test_another_user_does_not_take_directories_from_workers_that_run(make_site: Make) -> None:
    site = make_site()
    there = site.root / "tmp" / "proxy"
    before = owner(there)
    with pytest.raises(
        RefusedError, match=r"user nobody: even nginx -t would make it the owner of .*/tmp/"
    ):
        site.apply(with_user(site, "nobody nogroup"))
    assert owner(there) == before
    assert site.apply({"conf.d/site.conf": site.server("return 204;")}).outcome == "kept"


def test_a_user_who_has_the_directories_already_is_taken(make_site: Make) -> None:
    site = make_site(user="nobody nogroup")
    assert site.apply(with_user(site, "nobody root")).outcome == "kept"


# ports


def test_a_port_that_another_program_holds_is_refused_before_anything_is_changed(
    make_site: Make,
) -> None:
    """``nginx -t`` takes it; the reload would try for seconds, and then be taken back."""
    site = make_site()
    with socket.socket() as theirs:
        theirs.bind(("127.0.0.1", 0))
        theirs.listen()
        port = theirs.getsockname()[1]
        more = {"conf.d/more.conf": f"server {{ listen {port}; return 204; }}\n"}
        said = rf"more\.conf:1: bind\(\) to 0\.0\.0\.0:{port} fails .*holds 127\.0\.0\.1:{port}"
        with pytest.raises(RefusedError, match=said):
            site.apply(more)
        assert not (site.tree / "conf.d" / "more.conf").exists()
    assert site.apply(more).outcome == "kept"
    # What this nginx holds is no hindrance.
    again = {"conf.d/more.conf": f"server {{ listen {port}; return 205; }}\n"}
    assert site.apply(again).outcome == "kept"


ENTRY = "0123456789abcdef" * 2


def test_a_cache_among_foreign_files_is_refused(make_site: Make) -> None:
    site = make_site()
    there = site.root / "data"
    (there / "sub").mkdir(parents=True)
    photo = there / "sub" / "photo.jpg"
    photo.write_bytes(b"x")
    owner = there.stat().st_uid
    for module in ("proxy", "fastcgi"):
        text = f"{module}_cache_path {there} keys_zone=z:1m;\n"
        with pytest.raises(RefusedError, match=r"/caches\.conf:1: .*would delete .*photo\.jpg"):
            site.apply({"conf.d/caches.conf": text})
        assert photo.read_bytes() == b"x"
        assert there.stat().st_uid == owner
        assert not (site.tree / "conf.d" / "caches.conf").exists()


def test_a_cache_in_an_empty_place_or_on_a_cache_is_taken(make_site: Make) -> None:
    site = make_site()
    old = site.root / "old" / "a"
    old.mkdir(parents=True)
    (old / ENTRY).write_bytes(b"")
    lines = "".join(
        f"proxy_cache_path {site.root}/{name} keys_zone={name}:1m;\n" for name in ("old", "new")
    )
    assert site.apply({"conf.d/caches.conf": lines}).outcome == "kept"


def test_a_cache_that_stands_is_not_looked_into(make_site: Make) -> None:
    """Whatever lies there is nginx's already, or was spared by it: a README that its loader left
    alone until now is no reason to refuse another size."""
    site = make_site(http="")
    lines = f"proxy_cache_path {site.root}/c keys_zone=c:1m max_size={{}};\n"
    assert site.apply({"conf.d/caches.conf": lines.format("1g")}).outcome == "kept"
    (site.root / "c" / "late.txt").write_bytes(b"x")
    assert site.apply({"conf.d/caches.conf": lines.format("2g")}).outcome == "kept"


def test_what_is_a_caches_own(tmp_path: Path) -> None:
    assert foreign_file(str(tmp_path / "absent")) == ""
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "f" / "0e").mkdir(parents=True)
    (tmp_path / "f" / "0e" / ENTRY).write_bytes(b"")
    (tmp_path / "f" / "0e" / f"{ENTRY}.0000000012").write_bytes(b"")
    assert foreign_file(str(tmp_path)) == ""
    link = tmp_path / "f" / ("f" * 32)
    link.symlink_to(tmp_path / "f")
    assert foreign_file(str(tmp_path)) == str(link)
    link.unlink()
    (tmp_path / "index.html").write_bytes(b"")
    assert foreign_file(str(tmp_path)) == str(tmp_path / "index.html")
