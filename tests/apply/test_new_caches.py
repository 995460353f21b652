"""A cache in a directory that holds files of somebody else: nginx would delete them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from apply_site import Site

from nginx_tune.change.apply.hindrances import foreign_file
from nginx_tune.change.apply.model_journal import RefusedError

pytestmark = pytest.mark.needs("root", "nginx")
Make = Callable[..., Site]
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
