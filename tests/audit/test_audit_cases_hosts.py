"""Where the rules about hosts in keys, chains of roots and filters must speak or be silent."""

from cases import outcome
from rows import each_row

from nginx_tune.audit.engine import audit
from nginx_tune.audit.rule import linux
from nginx_tune.conf.tree import parse_text

CACHE = "proxy_cache_path /c keys_zone=c:10m max_size=1g;"
PASSED = "location / { proxy_pass http://10.0.0.1; proxy_set_header Host $host; proxy_cache c; %s }"
TWO = "listen 80; server_name a.example.com b.example.com;"
ONE = "listen 80; server_name a.example.com;"
UNSAID = "server_name a.example.com;"
FIRST = "server { listen 80 default_server; return 444; }"


@each_row(
    ("text", "found"),
    [
        (f"server {{ {TWO} {PASSED % ''} }}", 1),
        (f"server {{ listen 80; server_name *.example.com; {PASSED % ''} }}", 1),
        (f"server {{ listen 80; {PASSED % ''} }}", 1),
        (f"server {{ {ONE} {PASSED % ''} }}", 1),
        (f"{FIRST} server {{ {ONE} {PASSED % ''} }}", 0),
        (f"server {{ {ONE} {PASSED % ''} }} {FIRST}", 0),
        (f"server {{ {ONE} {PASSED % ''} }} {FIRST.replace('80', '0.0.0.0:080')}", 0),
        (f"server {{ {ONE} {PASSED % ''} }} {FIRST.replace('_server', '')}", 0),
        (f"server {{ {ONE} {PASSED % ''} }} {FIRST.replace('80', '127.0.0.1:80')}", 1),
        (f"server {{ {ONE} {PASSED % ''} }} {FIRST.replace('80', '[::]:80')}", 1),
        (f"server {{ {ONE} listen 8080; {PASSED % ''} }} {FIRST}", 1),
        (f"server {{ {UNSAID} {PASSED % ''} }} {FIRST}", 0),
        (f"server {{ {UNSAID} {PASSED % ''} }} {FIRST.replace('default_server', '')}", 1),
        (f"{FIRST.replace('default_server', '')} server {{ {UNSAID} {PASSED % ''} }}", 0),
        (f"server {{ {TWO} {PASSED % 'proxy_cache_key $host$uri;'} }}", 0),
        (f"server {{ {TWO} {PASSED % 'proxy_cache_key $scheme$http_host$uri;'} }}", 0),
        (f"server {{ {TWO} {PASSED % 'proxy_cache_key $scheme$request_uri;'} }}", 1),
        (f"server {{ {TWO} {PASSED % 'proxy_cache_key $scheme$uri$cookie_a;'} }}", 1),
        (("map $host $site { default 1; }"
         f"server {{ {TWO} {PASSED % 'proxy_cache_key $site$uri;'} }}"), 0),
        (f"server {{ {TWO} {(PASSED % '').replace('proxy_set_header Host $host;', '')} }}", 0),
        (f"server {{ {TWO} {(PASSED % '').replace('Host $host', 'Host app.internal')} }}", 0),
        (f"server {{ {TWO} {(PASSED % '').replace('//10.0.0.1', '//$host')} }}", 0),
        (f"server {{ {TWO} {(PASSED % '').replace('proxy_cache c', 'proxy_cache off')} }}", 0),
        ((f"{FIRST} server {{ {ONE} {PASSED % ''} }}"
         f"server {{ listen 80; server_name b.example.com; {PASSED % ''} }}"), 2),
    ],
)  # fmt: skip
def test_hosts_in_cache_keys(text: str, found: int) -> None:
    conf = f"events {{}} http {{ {CACHE} {text} }}"
    assert outcome("ca-key-without-host", conf, None) == found


@each_row(
    ("text", "severity"),
    [
        (f"server {{ {ONE} {PASSED % ''} }}", "info"),
        (f"server {{ listen 80; server_name _; {PASSED % ''} }}", "advice"),
        (f"server {{ {TWO} {PASSED % ''} }}", "error"),
    ],
)
def test_one_site_is_poisoned_only_by_names_that_nobody_gave_it(text: str, severity: str) -> None:
    tree = parse_text(f"events {{}} http {{ {CACHE} {text} }}")
    found = [one for one in audit(tree, None).findings if one.rule == "ca-key-without-host"]
    assert [one.severity for one in found] == [severity]


def chain(count: int, aio: str = "") -> str:
    lines = ""
    for n in range(1, count + 1):
        name, following = ("/" if n == 1 else f"@r{n}"), f"try_files $uri @r{n + 1};"
        pool = aio.replace("N", str(n))
        lines += f"location {name} {{ root /d{n}; {pool} {following if n < count else ''} }}\n"
    pools = "".join(f"thread_pool p{n} threads=4;\n" for n in range(1, count + 1) if aio)
    return f"{pools}events {{}} http {{ server {{ {lines} }} }}"


DISKS = linux(disks={f"/d{n}": (f"sd{'abc'[n - 1]}", "hdd") for n in (1, 2, 3)})
SAME = linux(disks={f"/d{n}": ("sda", "hdd") for n in (1, 2, 3)})


@each_row(
    ("conf", "facts", "found"),
    [
        (chain(11), None, 0),
        (chain(12), None, 1),
        (chain(40), None, 1),
        (chain(3), DISKS, 0),
        (chain(3, "aio threads=pN;"), DISKS, 1),
        (chain(3, "aio threads=pN;"), SAME, 0),
        (chain(3, "aio threads=pN;"), None, 0),
        (chain(3, "aio threads=cold;").replace("server {", "server { location /hot/ { root /d1;"
         " aio threads=hot; try_files $uri @r2; }"), DISKS, 0),
        (("events {} http { server { location / { try_files $uri @a; }"
         " location @a { try_files $uri @a; } } }"), None, 0),
        ("events {} http { server { location / { try_files $uri =404; } } }", None, 0),
    ],
)  # fmt: skip
def test_chains_of_roots(conf: str, facts: object, found: int) -> None:
    assert outcome("io-try-files-chain", conf, facts) == found  # type: ignore[arg-type]


@each_row(
    ("lines", "found"),
    [
        ("aio threads; sub_filter a b;", 1),
        ("aio threads=default; ssi on;", 1),
        ("aio threads; ssi off;", 0),
        ("aio off; sub_filter a b;", 0),
        ("sub_filter a b;", 0),
        ("aio threads; gzip on;", 0),
    ],
)
def test_filters_beside_pools(lines: str, found: int) -> None:
    conf = f"events {{}} http {{ server {{ location / {{ root /srv; {lines} }} }} }}"
    assert outcome("io-threads-body-filter", conf, None) == found
