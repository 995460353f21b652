"""Descriptors are kept open only where no client is served a file that was replaced."""

from msgspec.structs import replace
from rows import each_row
from situations import GIBIBYTE, host, load, site
from situations import decide_without_break_evens as decide

from nginx_tune.change.plan.changing import as_changes
from nginx_tune.change.plan.solver import site_in
from nginx_tune.conf.tree import ConfTree, parse_text
from nginx_tune.decide.model.cache import believed_ratio, zipf_classes
from nginx_tune.documents.decisions import Decision, Decisions

SMALL = load(data_bytes=10**8, file_bytes=10**4)
CONF = "events { } http { %s server { root /srv/www; %s } }"
FULL_TYPES = "types { application/vnd.apple.mpegurl m3u8; " + "".join(
    f"text/x-{number} x{number}; " for number in range(40)
)


def tree_of(http: str = "", server: str = "") -> ConfTree:
    return parse_text(CONF % (http, server), file="/n.conf")


def one(decisions: Decisions) -> Decision:
    return next(d for d in decisions.decisions if d.id == "open-file-cache")


def held(tree: ConfTree) -> Decision:
    decisions = decide(host(), SMALL, site=site_in(tree, site()))
    return one(as_changes(decisions, tree))


@each_row(
    ("http", "server", "named"),
    [
        ("", "location /up/ { dav_methods PUT DELETE; }", "dav_methods PUT DELETE"),
        ("", "location /up/ { create_full_put_path on; }", "create_full_put_path on"),
        ("", "location /x/ { proxy_pass http://127.0.0.1:1; proxy_store on; }", "proxy_store on"),
        ("", "location /x/ { fastcgi_pass 127.0.0.1:1; fastcgi_store on; }", "fastcgi_store on"),
        ("types { application/vnd.apple.mpegurl m3u8; video/mp2t ts; }", "", "mpegurl m3u8"),
        ("types { application/dash+xml mpd; }", "", "dash+xml mpd"),
        ("", r"location ~ \.m3u8$ { }", "m3u8"),
        ("", "location /hls/ { }", "location /hls/"),
        ("", "location /tv/ { hls; }", "hls"),
    ],
)
def test_a_tree_whose_files_change_in_use_keeps_none_open(
    http: str, server: str, named: str
) -> None:
    d = held(tree_of(http, server))
    assert (d.verdict, d.settings) == ("keep", [])
    assert "/n.conf:1" in d.summary
    assert named in d.summary


@each_row(
    ("http", "server"),
    [
        ("", ""),
        ("", "location /up/ { dav_methods off; }"),
        ("", "location /x/ { proxy_store off; }"),
        ("", "location /olive/ { }"),
        (FULL_TYPES + "}", ""),
    ],
)
def test_other_trees_say_how_long_the_old_is_served(http: str, server: str) -> None:
    d = held(tree_of(http, server))
    assert (d.verdict, d.settings) == ("not_enough_evidence", [])
    lines = {s.directive: s for s in d.proposed}
    assert lines["open_file_cache_valid"].args == ["3s"]
    said = "clients may get a replaced or removed file for up to 3s"
    assert said in lines["open_file_cache_valid"].reason
    assert said in d.summary
    assert any("GET after DELETE" in risk for risk in d.risks)
    assert d.confidence == "low", "warm opens alone"


def test_what_stands_stays_where_files_change_in_use() -> None:
    d = held(tree_of("open_file_cache max=9;", "location /up/ { dav_methods PUT; }"))
    assert (d.verdict, d.settings) == ("keep", [])


@each_row(
    "parts",
    [
        {"live_files": ["/news/"]},
        {"roots": ["/srv/a"], "root_prefixes": ["/hls/"]},
        {"roots": ["/srv/hls"]},
        {"hot_locations": ["/live/"]},
    ],
)
def test_a_site_without_a_tree_says_it_too(parts: dict[str, list[str]]) -> None:
    d = one(decide(host(), SMALL, site=site(**parts)))
    assert (d.verdict, d.settings) == ("keep", [])
    assert "replaced or removed" in d.summary
    other = site(roots=["/srv/a"], root_prefixes=["/videos/"])
    assert one(decide(host(), SMALL, site=other)).verdict == "not_enough_evidence"


def test_it_is_a_line_where_names_are_read_from_the_disk_alone() -> None:
    """Warm opens save microseconds; a picture that was replaced is sent with its old length."""
    cold = load(data_bytes=6 * 10**9, file_bytes=10**4, exponent=1.0, peak=None, rate=300.0)
    forgets = host(page_cache_bytes=2 * GIBIBYTE)
    d = one(decide(forgets, cold, site=site()))
    assert (d.verdict, d.confidence, d.proposed) == ("enable", "medium", [])
    assert [one.directive for one in d.settings] == ["open_file_cache", "open_file_cache_valid"]
    uncounted = replace(cold, dataset=replace(cold.dataset, provenance="assumed"))
    d = one(decide(forgets, uncounted, site=site()))
    assert (d.verdict, d.confidence, d.settings) == ("not_enough_evidence", "low", [])


def test_what_is_asked_for_often_is_seldom_looked_up_again() -> None:
    classes = zipf_classes(1000, 1.0)
    ratios = [believed_ratio(classes, requests) for requests in (0, 10, 1e3, 1e6, 1e9)]
    assert ratios[0] == 0
    assert ratios == sorted(ratios)
    assert ratios[-1] > 0.99
