"""Caches of other modules than proxy, and of directories that no location would use."""

import msgspec
from made_decisions import decide
from rows import each_row
from situations import GIBIBYTE, MEBIBYTE, host, load, nginx

from nginx_tune.change.plan.changing import as_changes
from nginx_tune.change.plan.solver import kind_in, site_in
from nginx_tune.conf.tree import parse_text
from nginx_tune.decide.cache_layout import NEW_CACHE_RISKS
from nginx_tune.decide.defaults import complete_site
from nginx_tune.decide.workload.profiles import workload_for
from nginx_tune.documents.decisions import Decision, Setting
from nginx_tune.documents.facts import Dataset, PathStorage
from nginx_tune.documents.site import Site
from nginx_tune.documents.workload import Kind, ObjectSizes

WORDPRESS = """\
events {}
http {
    %s_cache_path /data/1/wp keys_zone=wp:10m max_size=1g inactive=1h;
    server {
        listen 80;
        location / { %s_cache wp; %s_pass 127.0.0.1:9000; }
        location /api/ { proxy_pass http://127.0.0.1:81; }
    }
}
"""


def held(
    conf: str, kind: Kind = "cache", room: PathStorage | None = None, **parts: object
) -> dict[str, Decision]:
    tree = parse_text(conf, file="/n.conf")
    facts = host(disks=3, mount="/data", nginx=nginx("1.26.3", ["--with-threads"]))
    if room is not None:
        storage = msgspec.structs.replace(facts.storage, paths=[room])
        facts = msgspec.structs.replace(facts, storage=storage)
    given = complete_site(site_in(tree, Site(**parts)), facts, kind)  # type: ignore[arg-type]
    workload = load(kind, data_bytes=None, cold_peak=200)
    decisions = as_changes(decide(facts, workload, site=given), tree)
    return {d.id: d for d in decisions.decisions}


def settings_of(found: dict[str, Decision]) -> list[Setting]:
    return [s for d in found.values() for s in d.settings]


@each_row("module", ["fastcgi", "uwsgi", "scgi"])
def test_a_cache_of_another_module_is_decided_in_its_own_words(module: str) -> None:
    conf = WORDPRESS % (module, module, module)
    shown = kind_in(parse_text(conf, file="/n.conf"))
    assert shown is not None
    assert shown.kind == "cache"
    found = settings_of(held(conf))
    assert not [s for s in found if s.directive.startswith(("proxy_cache", "split_clients"))]
    (line,) = [s for s in found if s.directive == f"{module}_cache_path"]
    assert line.args[0] == "/data/1/wp"
    assert {"keys_zone=wp:10m", "max_size=1g", "inactive=1h", "use_temp_path=off"} <= {*line.args}
    assert [(p.line, p.change) for p in line.places] == [(3, True)]


@each_row(
    ("module", "lines", "proposed"),
    [
        ("fastcgi", "", ["fastcgi_cache_lock"]),
        ("fastcgi", "fastcgi_cache_lock on;", []),
        ("proxy", "proxy_cache_lock on;", []),
        ("proxy", "fastcgi_cache_lock on;", ["proxy_cache_lock"]),
    ],
)
def test_what_stands_is_not_proposed(module: str, lines: str, proposed: list[str]) -> None:
    conf = WORDPRESS.replace("        location /api/ { proxy_pass http://127.0.0.1:81; }\n", "")
    conf = conf.replace("listen 80;", f"listen 80; {lines}") % ((module,) * 3)
    lock = held(conf)["cache-misses"]
    assert [one.directive for one in lock.proposed] == proposed
    assert lock.verdict == ("not_enough_evidence" if proposed else "keep")


def test_caches_that_the_site_chooses_itself_are_read_by_one_pool() -> None:
    """No pool for each disk is written then, and nothing speaks of one."""
    conf = (WORDPRESS % (("fastcgi",) * 3)).replace(
        "    server {", "    fastcgi_cache_path /data/2/b keys_zone=b:10m;\n    server {"
    )
    pools = held(conf)["per-disk-pools"]
    assert [(s.directive, s.args) for s in pools.settings] == [("aio", ["threads"])]
    assert "One pool for all disks" in pools.summary
    said = " ".join([pools.summary, pools.settings[0].reason, *pools.risks])
    assert "each disk has its own queue" not in said
    assert "threads over all workers" not in said
    assert pools.predicted == []
    apart = decide(
        host(disks=2, mount="/data"),
        load("cache", data_bytes=None, cold_peak=200),
        site=Site(cache_dirs=["/data/1", "/data/2"]),
    )
    (own,) = (one for one in apart.decisions if one.id == "per-disk-pools")
    assert "threads over all workers" in " ".join(own.risks)
    assert own.predicted


def test_no_cache_that_no_location_would_use() -> None:
    """Its loader would delete what lies there, and nothing would ever be kept in it."""
    own = WORDPRESS % (("fastcgi",) * 3)
    static = "events {} http { server { listen 80; root /srv/1; } }"
    named = own.replace("fastcgi", "proxy").replace("proxy_pass 1", "proxy_pass http://1")
    for conf in (own, static, named):
        found = held(conf, cache_dirs=["/elsewhere"])
        assert not [s for s in settings_of(found) if "/elsewhere" in s.args], conf
        risks = [risk for d in found.values() for risk in d.risks]
        assert any("no cache in /elsewhere" in risk for risk in risks), conf
    plain = "events {} http { server { listen 80; location / { proxy_pass http://127.0.0.1:9; } } }"
    used = settings_of(held(plain, cache_dirs=["/elsewhere"]))
    assert [s for s in used if s.directive == "proxy_cache_path" and "/elsewhere" in s.args]
    assert [s for s in used if s.directive == "proxy_cache"]


def test_a_cache_whose_place_is_not_known_is_left_alone() -> None:
    """A name relative to a prefix that nobody gave."""
    conf = (WORDPRESS % (("fastcgi",) * 3)).replace("/data/1/wp", "wp")
    assert not [s for s in settings_of(held(conf)) if s.directive.endswith("_cache_path")]


SMALL = WORDPRESS.replace(" inactive=1h", "").replace("1g", "400m") % (("fastcgi",) * 3)


def test_nothing_must_stay_free_where_the_room_is_not_known() -> None:
    """With min_free=1g on a file system of 512 MB nginx removed all that it had."""
    lines = settings_of(held(SMALL.replace("/data/1/wp", "/small")))
    assert not [s for s in lines if s.directive == "fastcgi_cache_path"]


def test_what_must_stay_free_is_a_small_share() -> None:
    conf = SMALL.replace("/data/1/wp", "/small/c")
    room = PathStorage(
        path="/small", filesystem="tmpfs", size_bytes=512 * MEBIBYTE, available_bytes=510 * MEBIBYTE
    )
    (line,) = [s for s in settings_of(held(conf, room=room)) if s.directive == "fastcgi_cache_path"]
    assert "min_free=20m" in line.args
    assert not set(NEW_CACHE_RISKS) & set(held(conf, room=room)["cache-layout"].risks)
    full = msgspec.structs.replace(room, available_bytes=401 * MEBIBYTE)
    assert not [s for s in settings_of(held(conf, room=full)) if s.directive.endswith("cache_path")]


@each_row(
    ("filesystem", "free_mebibytes", "in_place"),
    [("xfs", 100_000, True), ("xfs", 500, False), ("tmpfs", 100_000, False)],
)
def test_answers_are_written_in_place_where_they_have_room(
    filesystem: str, free_mebibytes: int, *, in_place: bool
) -> None:
    """An answer of 10 MiB was cut in a full cache; by a temporary file elsewhere it was sent."""
    room = PathStorage(
        path="/data",
        filesystem=filesystem,
        leaf_disks=["sda"] if filesystem == "xfs" else [],
        size_bytes=200_000 * MEBIBYTE,
        available_bytes=free_mebibytes * MEBIBYTE,
    )
    conf = WORDPRESS % (("fastcgi",) * 3)
    lines = [s for s in settings_of(held(conf, room=room)) if s.directive == "fastcgi_cache_path"]
    assert any("use_temp_path=off" in line.args for line in lines) == in_place


def test_an_age_is_the_operators() -> None:
    """Also where facts say how large the disk and the cache are."""
    conf = (WORDPRESS % (("proxy",) * 3)).replace("proxy_pass 1", "proxy_pass http://1")
    for own in ("inactive=1h", ""):
        tree = parse_text(conf.replace("inactive=1h", own), file="/n.conf")
        scan = Dataset(path="/data/1/wp", files=9000, bytes=GIBIBYTE // 2)
        facts = msgspec.structs.replace(host(disks=3, mount="/data"), datasets=[scan])
        given = site_in(tree, Site())
        decisions = as_changes(decide(facts, load("cache"), site=given), tree)
        (line,) = [
            s
            for d in decisions.decisions
            for s in d.settings
            if s.directive == "proxy_cache_path"
        ]  # fmt: skip
        assert [arg for arg in line.args if arg.startswith("inactive")] == ([own] if own else [])


@each_row(("is_assumed", "is_bound"), [(True, False), (False, True)])
def test_no_bound_by_the_keys_of_objects_whose_size_is_assumed(
    is_assumed: bool, is_bound: bool
) -> None:
    """A cache of larger objects would lose what is beyond, though its keys name all of it."""
    conf = WORDPRESS.replace(" max_size=1g", "") % ("fastcgi", "fastcgi", "fastcgi")
    tree = parse_text(conf, file="/n.conf")
    facts = host(disks=3, mount="/data", nginx=nginx("1.26.3", ["--with-threads"]))
    room = PathStorage(
        path="/data/1/wp", mount_point="/data", filesystem="xfs", size_bytes=8192 * GIBIBYTE
    )
    facts = msgspec.structs.replace(
        facts,
        storage=msgspec.structs.replace(facts.storage, paths=[room]),
        memory=msgspec.structs.replace(facts.memory, total_bytes=4 * GIBIBYTE),
    )
    workload = load("cache", data_bytes=None, cold_peak=200, file_bytes=64 << 10)
    if is_assumed:
        workload = msgspec.structs.replace(workload, sizes=ObjectSizes())
    given = complete_site(site_in(tree, Site()), facts, "cache")
    found = as_changes(decide(facts, workload, site=given), tree).decisions
    lines = [s for d in found for s in d.settings if s.directive == "fastcgi_cache_path"]
    bound = any(arg.startswith("max_size=") for line in lines for arg in line.args)
    assert bound is is_bound
    assert any("as much as the keys" in line.reason for line in lines) is is_bound


@each_row("module", ["proxy", "fastcgi", "uwsgi", "scgi"])
@each_row(
    ("scanned", "held_bytes", "keys", "is_bound"),
    [
        ("/data/1/www", 665_527, "10m", False),
        ("/data/1", 665_527, "10m", False),
        ("/data/1/wp", 665_527, "10m", True),
        ("/data/1/wp", 900 * GIBIBYTE, "10m", False),
        ("/data/1/wp", 665_527, "30g", False),
    ],
    ids=["served files", "all around", "the cache", "more than that", "keys for more"],
)
def test_sizes_of_served_files_bound_no_cache(
    module: str, scanned: str, held_bytes: int, keys: str, *, is_bound: bool
) -> None:
    """183 files of 3.6 KiB made max_size=28g and 1.2 GB of keys for answers of any size."""
    conf = WORDPRESS.replace(" max_size=1g", "").replace("wp:10m", f"wp:{keys}")
    conf = conf.replace("location / ", "root /data/1/www; location /f/ { } location / ")
    conf = conf % ((module,) * 3)
    if module == "proxy":
        conf = conf.replace("proxy_pass 127", "proxy_pass http://127")
    tree = parse_text(conf, file="/n.conf")
    facts = host(disks=3, mount="/data", disk_class="nvme", nginx=nginx("1.26.3", []))
    room = PathStorage(
        path="/data/1",
        filesystem="xfs",
        leaf_disks=["sda"],
        size_bytes=3000 * GIBIBYTE,
        available_bytes=1500 * GIBIBYTE,
    )
    facts = msgspec.structs.replace(
        facts,
        storage=msgspec.structs.replace(facts.storage, paths=[room]),
        memory=msgspec.structs.replace(facts.memory, total_bytes=24 * GIBIBYTE),
        datasets=[Dataset(path=scanned, files=max(183, held_bytes // 3636), bytes=held_bytes)],
    )
    given = complete_site(site_in(tree, Site(roots=["/data/1/www"])), facts, "cache")
    found = as_changes(decide(facts, workload_for("cache", facts, site=given), site=given), tree)
    (line,) = [
        s for d in found.decisions for s in d.settings if s.directive == f"{module}_cache_path"
    ]
    words = {arg.partition("=")[0] for arg in line.args}
    assert {"use_temp_path"} <= words
    assert ("max_size" in words) is is_bound
    assert ("min_free" in words) is is_bound
    assert ("loader_files" in words) is (scanned == "/data/1/wp")
    if scanned != "/data/1/wp":
        assert f"keys_zone=wp:{keys}" in line.args
