"""What nginx does while it serves: requests that have it write, send and run code.

Each place of victims gets a location of each kind; ``requests`` are the URLs to ask for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sandbox_arena import FAR, PORT, Place

LISTEN = 18_088
_SELF = f"http://127.0.0.1:{LISTEN}"

_KINDS = {
    "log": "root {d}; access_log {d}/$host.log; return 200 x;",
    "log-old": "access_log {d}/old; return 200 x;",
    "log-uri": "root {d}; access_log {d}$uri-log; return 200 x;",
    "log-gzip": "access_log {d}/log.gz combined gzip flush=1s; return 200 x;",
    "error-log": "error_log {d}/log0 debug; return 404;",
    "error-log-new": "error_log {d}/error.log debug; root {d}; try_files /none =404;",
    "store": "proxy_store {d}/stored; proxy_store_access all:rw; proxy_pass {self}/body;",
    "store-old": "proxy_store {d}/truncated; proxy_pass {self}/body;",
    "store-uri": "root {d}; proxy_store on; proxy_pass {self}/body;",
    "temp": "proxy_temp_path {d}/proxy-temp; proxy_buffers 2 4k; proxy_buffer_size 4k; "
    "proxy_busy_buffers_size 4k; proxy_pass {self}/body;",
    "cache": "proxy_cache zone-{n}; proxy_cache_valid any 1m; proxy_pass {self}/body;",
    "delete": "proxy_method DELETE; proxy_pass {self}/dav-{n}/delete/unlinked;",
    "put": "proxy_method PUT; proxy_set_body x; proxy_pass {self}/dav-{n}/put/put;",
    "put-old": "proxy_method PUT; proxy_set_body x; proxy_pass {self}/dav-{n}/put-old/log1;",
    "make": "proxy_method MKCOL; proxy_pass {self}/dav-{n}/make/made/;",
    "move": "proxy_method MOVE; proxy_set_header Destination {self}/dav-{n}/move/moved; "
    "proxy_pass {self}/dav-{n}/move/renamed;",
    "copy": "proxy_method COPY; proxy_set_header Destination {self}/dav-{n}/copy/copied; "
    "proxy_pass {self}/dav-{n}/copy/old;",
    "body": "proxy_method POST; proxy_set_body x; proxy_pass {self}/take-{n}/x;",
    "take": "client_body_temp_path {d}/body-temp; client_body_in_file_only on; "
    "proxy_pass {self}/body;",
    "syslog": "access_log syslog:server=unix:{s}-log; return 200 x;",
    "error-syslog": "error_log syslog:server=unix:{s}-log debug; return 404;",
    "memcached": "set $memcached_key x; memcached_pass unix:{s};",
    "proxy": "proxy_pass http://unix:{s}:/;",
    "proxy-variable": "set $where unix:{s}:/; proxy_pass http://$where;",
    "fastcgi": "fastcgi_pass unix:{s};",
    "scgi": "scgi_pass unix:{s};",
    "uwsgi": "uwsgi_pass unix:{s};",
    "grpc": "grpc_pass grpc://unix:{s};",
    "fastcgi-store": "fastcgi_store {d}/fastcgi-stored; fastcgi_pass 127.0.0.1:{port};",
    "index": "alias {d}/; autoindex on; random_index on;",
    "pipe": "alias {d}/../host-pipe;",
    "log-pipe": "access_log {d}/../host-pipe; return 200 x;",
    "log-pipe-variable": "root {d}/..; set $fifo host-pipe; access_log {d}/../$fifo; return 200 x;",
}

_LUA = {
    "lua": "content_by_lua_block {{ for _, n in ipairs({{'old', 'lua-new'}}) do "
    "local f = io.open('{d}/' .. n, 'a'); if f then f:write('attacked'); f:close() end end "
    "os.remove('{d}/log2'); os.rename('{d}/log3', '{d}/log4'); "
    "os.execute('echo attacked >> {d}/log1; kill {victim}; mount -o remount,rw /') "
    "local s = ngx.socket.tcp(); s:settimeout(300); s:connect('unix:{s}'); ngx.say('x') }}"
}
_PERL = {
    "perl": 'perl \'sub {{ my $r = shift; open(my $f, ">>", "{d}/old"); print $f "attacked"; '
    'unlink("{d}/log2"); mkdir("{d}/perl"); kill(15, {victim}); '
    'system("echo attacked >> {d}/log1; umount {d}"); $r->send_http_header; return 0; }}\';'
}

_ONCE = {
    "far": f"proxy_pass http://{FAR}:{PORT}/;",
    "near": f"proxy_pass http://127.0.0.1:{PORT}/;",
    "near-6": f"proxy_pass http://[::1]:{PORT}/;",
    "far-log": f"access_log syslog:server={FAR}:{PORT}; return 200 x;",
    "near-log": f"access_log syslog:server=127.0.0.1:{PORT}; return 200 x;",
    "resolver": f"resolver 127.0.0.1:{PORT} valid=1s; resolver_timeout 1s; set $n a.example; "
    "proxy_pass http://$n/;",
    "far-resolver": f"resolver {FAR}:{PORT}; resolver_timeout 1s; set $n b.example; "
    "proxy_pass http://$n/;",
    "mirror": "mirror /near/; return 200 x;",
    "device-socket": "proxy_pass http://unix:/dev/nginx-tune-victim:/;",
    "run-socket": "proxy_pass http://unix:/run/nginx-tune-victim:/;",
    "device-log": "access_log syslog:server=unix:/dev/log-log; return 200 x;",
    "auth": f"auth_request /far/; proxy_pass {_SELF}/body;",
}


PIPES = ("log-pipe", "log-pipe-variable")
"""nginx is not started with the first; the second holds the worker for ever, which is ended."""
_SLOW = ("log-pipe-variable",)
"""In one place only."""

KINDS = (*_KINDS, *_LUA, *_PERL)
"""Each has a directory of victims of its own in each place."""


def all_but(*wanted: str) -> list[str]:
    """What to leave out for these alone."""
    return [kind for kind in (*KINDS, *_ONCE) if kind not in wanted]


def kinds(modules: Sequence[str]) -> dict[str, str]:
    """What there is for each place, with what the build can load."""
    found = dict(_KINDS)
    found |= _LUA if "lua" in modules else {}
    found |= _PERL if "perl" in modules else {}
    return found


def configuration(
    places: Sequence[Place], sockets: Sequence[str], *, victim: int, root: bool,
    modules: Sequence[str], directory: str, without: Sequence[str] = (),
) -> tuple[str, list[str]]:  # fmt: skip
    """The file and what is to be asked for."""
    locations: list[str] = []
    urls: list[str] = []
    for kind, text in _ONCE.items():
        if kind in without:
            continue
        locations.append(f"location /{kind}/ {{ {text} }}")
        urls.append(f"/{kind}/x")
    for number, place in enumerate(places):
        for kind, text in kinds(modules).items():
            if kind in without or (kind in _SLOW and number):
                continue
            words = {"d": f"{place.directory}/{kind}", "n": number, "s": sockets[number],
                     "self": _SELF, "port": PORT, "victim": victim}  # fmt: skip
            # What is passed on goes to the very name that stands there.
            is_exact = "{self}" in text or kind == "pipe"
            place_of_kind = f"= /{kind}-{number}/x" if is_exact else f"/{kind}-{number}/"
            locations.append(f"location {place_of_kind} {{ {text.format(**words)} }}")
            urls.append(f"/{kind}-{number}/{'' if kind == 'index' else 'x'}")
        locations.append(
            f"location /dav-{number}/ {{ alias {place.directory}/; create_full_put_path on; "
            "dav_methods PUT DELETE MKCOL COPY MOVE; dav_access user:rw group:rw all:rw; }"
        )
    caches = "\n".join(
        f"proxy_cache_path {place.directory}/cache keys_zone=zone-{number}:64k "
        f"use_temp_path={'on' if number % 2 else 'off'};"
        for number, place in enumerate(places)
    )
    newline = "\n"
    waits = "".join(
        f"{one}_connect_timeout 1s; {one}_read_timeout 1s; {one}_send_timeout 1s;\n"
        for one in ("proxy", "fastcgi", "scgi", "uwsgi", "grpc", "memcached")
    )
    text = f"""{newline.join(_loads(modules))}
{"user root;" if root else ""}
pid {places[0].directory}/pid;
lock_file {places[1].directory}/lock;
error_log {places[-1].directory}/main.log debug;
working_directory {places[2].directory};
env PATH;
events {{}}
http {{
log_subrequest on;
{caches}
{waits}
server {{
listen 127.0.0.1:{LISTEN};
location = /memory {{ return 200 x; }}
location /files/ {{ root {directory}; }}
location = /body {{ alias {directory}/body; }}
{newline.join(locations)}
}} }}
"""
    return text, urls


def _loads(modules: Sequence[str]) -> Iterator[str]:
    for name in modules:
        if name == "lua":
            yield "load_module modules/ndk_http_module.so;"
        yield f"load_module modules/ngx_http_{name}_module.so;"
