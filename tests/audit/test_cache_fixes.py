"""What rules of caches advise is in the words of the module that caches, and drops nothing."""

from rows import each_row

from nginx_tune.audit.engine import audit
from nginx_tune.audit.rule import Rule, linux
from nginx_tune.audit.rules import (
    ca_key_without_args,
    ca_slice_incomplete,
    ca_stampede,
    ca_temp_other_fs,
)
from nginx_tune.conf.tree import parse_text
from nginx_tune.documents.findings import Finding

CONF = """
events {}
http {
    fastcgi_cache_path /mnt/ssd/cache keys_zone=f:10m max_size=1g;
    proxy_cache_path /c keys_zone=c:10m max_size=1g;
    fastcgi_temp_path /var/spool/nginx;
    server { %s }
}
"""
PROXY = "location / { proxy_pass http://10.0.0.1; proxy_cache c; %s }"
FASTCGI = "location / { fastcgi_pass 127.0.0.1:9; fastcgi_cache f; fastcgi_cache_key $uri$args; }"


def found(rule: Rule, server: str, *, host: bool = False) -> list[Finding]:
    tree = parse_text(CONF % server, file="/n.conf")
    facts = ca_temp_other_fs.RULE.bad.facts if host else linux(version="1.22.1")
    assert facts is not None
    return audit(tree, facts, rules=[rule]).findings


@each_row(
    ("stale", "advised"),
    [
        ("", "proxy_cache_use_stale updating;"),
        (
            "proxy_cache_use_stale error timeout http_500;",
            "proxy_cache_use_stale error timeout http_500 updating;",
        ),
        ("proxy_cache_use_stale off;", "proxy_cache_use_stale updating;"),
    ],
)
def test_a_stampede_is_shown_by_what_is_set(stale: str, advised: str) -> None:
    (one,) = found(ca_stampede.RULE, PROXY % stale)
    shown = [str(evidence.value) for evidence in one.evidence]
    assert (stale.rstrip(";") in shown) == bool(stale)
    assert sum("(default)" in value for value in shown) == (1 if stale else 2)
    assert "proxy_cache_lock on;" in one.fix
    assert advised in one.fix


def test_a_cache_of_fastcgi_is_advised_in_its_own_words() -> None:
    (stampede,) = found(ca_stampede.RULE, FASTCGI)
    assert "fastcgi_cache_lock on;" in stampede.fix
    assert "fastcgi_cache_use_stale updating;" in stampede.fix
    (copied,) = found(ca_temp_other_fs.RULE, FASTCGI, host=True)
    assert "fastcgi_cache_path" in copied.fix
    assert "proxy_" not in stampede.fix + copied.fix
    assert not found(ca_stampede.RULE, FASTCGI.replace("}", "fastcgi_cache_lock on; }"))


@each_row(
    ("key", "advised"),
    [
        ("$uri$slice_range", "$uri$is_args$args$slice_range"),
        ("${uri}x$slice_range", "${uri}$is_args${args}x$slice_range"),
        ("$scheme$host$document_uri", "$scheme$host$document_uri$is_args$args"),
        ('"$host $uri"', '"$host $uri$is_args$args"'),
    ],
)
def test_an_advised_key_keeps_all_that_the_key_has(key: str, advised: str) -> None:
    sliced = (
        "slice 1m; proxy_set_header Range $slice_range; proxy_cache_valid 200 206 1h; "
        "proxy_cache_key {};"
    )
    (one,) = found(ca_key_without_args.RULE, PROXY % sliced.format(key))
    assert one.fix.startswith(f"proxy_cache_key {advised};")
    cured = PROXY % sliced.format(advised)
    assert not found(ca_key_without_args.RULE, cured)
    if "slice_range" in key:
        assert not found(ca_slice_incomplete.RULE, cured)
