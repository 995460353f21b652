"""An nginx in a chroot has other files behind the same paths."""

import shutil
import subprocess
from pathlib import Path

import pytest
from apply_site import Site
from change_files import snapshot
from started import number_in, until, workers_of

from nginx_tune.change.apply.model_journal import RefusedError
from nginx_tune.host.live import LiveHost
from nginx_tune.nginx.processes import same_mounts

NGINX = "/usr/sbin/nginx"


def _jail(site: Site) -> Path:
    """What nginx needs, at the same paths, and the site's files."""
    jail = site.root / "jail"
    said = subprocess.run(["ldd", NGINX], capture_output=True, text=True, check=True).stdout
    libraries = [word for word in said.split() if word.startswith("/")]
    for path in (NGINX, "/etc/passwd", "/etc/group", *libraries):
        (jail / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, jail / path[1:])
    for path in ("/dev", "/var/log/nginx", f"{site.root}/tmp"):
        (jail / path[1:]).mkdir(parents=True)
    (jail / "dev" / "null").touch()
    shutil.copytree(site.tree, jail / str(site.tree)[1:])
    return jail


@pytest.mark.needs("root", "nginx")
def test_an_nginx_in_a_chroot_is_no_reader_of_our_files(root: Path) -> None:
    site = Site(root, NGINX)
    before = snapshot(site.tree)
    jail = _jail(site)
    subprocess.run(["chroot", jail, NGINX, "-c", site.conf], check=True, capture_output=True)
    pid = number_in(jail / str(site.root / "nginx.pid")[1:])
    until(lambda: workers_of(pid))
    assert same_mounts(LiveHost(), pid) is False
    for named in (None, pid):
        with pytest.raises(RefusedError, match="chroot"):
            site.apply({"conf.d/site.conf": site.server("return 204;")}, pid=named)
        assert snapshot(site.tree) == before
        assert site.ask() == "old\n"


@pytest.mark.needs("root")
def test_a_mount_namespace_of_its_own_with_the_same_mounts_has_our_files() -> None:
    """As under ``unshare -n -m``: the number of the namespace alone says nothing of files."""
    found = {}
    for inside in ("true", "mount --bind /var/tmp /mnt", "mount -t tmpfs none /mnt"):
        script = f"{inside} && echo ready && exec sleep 60"
        command = ["unshare", "-n", "-m", "sh", "-c", script]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            try:
                found[inside] = same_mounts(LiveHost(), process.pid)
            finally:
                process.terminate()
    assert [inside for inside, is_same in found.items() if is_same] == ["true"]
    assert None not in found.values()
