"""Traffic of ``stream`` and ``mail``: what has nginx write and send while it serves these.

Each server listens at a port of its own; ``configuration`` gives the file and what is asked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from sandbox_arena import FAR, PORT, Place
from sandbox_requests import LISTEN

_FIRST = 19_000
_HELLO = "hello there\n"
_STREAM = {
    "log": "access_log {d}/stream-$remote_addr.log short; return x;",
    "log-old": "access_log {d}/old short; return x;",
    "log-upward": "access_log {d}/../{name}/$protocol-log short; return x;",
    "log-gzip": "access_log {d}/stream.gz short gzip flush=1s; return x;",
    "error-log": "error_log {d}/log0 debug; return x;",
    "error-log-new": "error_log {d}/stream-error.log debug; proxy_pass 127.0.0.1:9;",
    "syslog": "access_log syslog:server=unix:{s}-log short; return x;",
    "error-syslog": "error_log syslog:server=unix:{s}-log debug; return x;",
    "proxy": "proxy_pass unix:{s};",
    "proxy-variable": "set $where unix:{s}; proxy_pass $where;",
    "proxy-header": "proxy_protocol on; proxy_pass unix:{s};",
    "upload": "proxy_upload_rate 1k; proxy_download_rate 1k; proxy_pass unix:{s};",
}
"""For each place of victims."""
_STREAM_ONCE = {
    "far": f"proxy_pass {FAR}:{PORT};",
    "near": f"proxy_pass 127.0.0.1:{PORT};",
    "near-6": f"proxy_pass [::1]:{PORT};",
    "far-variable": f"set $where {FAR}:{PORT}; proxy_pass $where;",
    "far-log": f"access_log syslog:server={FAR}:{PORT} short; return x;",
    "resolver": f"resolver {FAR}:{PORT}; resolver_timeout 1s; set $n a.example; "
    f"proxy_pass $n:{PORT};",
    "preread": f"ssl_preread on; resolver 127.0.0.1:{PORT}; resolver_timeout 1s; "
    f"proxy_pass $named:{PORT};",
    "bound": f"proxy_bind 127.0.0.1; proxy_pass 127.0.0.1:{PORT};",
    "group": "proxy_next_upstream on; proxy_pass victims;",
}
_DATAGRAMS = {
    "udp-far": f"proxy_responses 0; proxy_pass {FAR}:{PORT};",
    "udp-near": f"proxy_responses 0; proxy_pass 127.0.0.1:{PORT};",
    "udp-unix": "proxy_responses 0; proxy_pass unix:{s}-log;",
}
"""No answer comes of these."""
_LOGIN = {
    "imap": "a LOGIN me secret\n",
    "pop3": "USER me\r\nPASS secret\n",
    "smtp": "EHLO a.example\nAUTH PLAIN AG1lAHNlY3JldA==\n",
}
_AUTH = {
    "own": f"127.0.0.1:{LISTEN}/auth",
    "far": f"{FAR}:{PORT}/auth",
    "near": f"127.0.0.1:{PORT}/auth",
    "unix": "unix:{s}:/auth",
}
"""Whom mail asks; the first one sends it on to a victim's port."""


def client_hello(name: str) -> str:
    """What ``ssl_preread`` looks for, in hexadecimal digits: a TLS record with a server name."""
    listed = b"\0" + len(name).to_bytes(2, "big") + name.encode()
    names = len(listed).to_bytes(2, "big") + listed
    extensions = b"\0\0" + len(names).to_bytes(2, "big") + names
    body = b"\3\3" + b"r" * 32 + b"\0" + b"\0\2\0\x2f" + b"\1\0"
    body += len(extensions).to_bytes(2, "big") + extensions
    hello = b"\1" + len(body).to_bytes(3, "big") + body
    return (b"\x16\3\1" + len(hello).to_bytes(2, "big") + hello).hex()


def configuration(
    places: Sequence[Place], sockets: Sequence[str], *, modules: Sequence[str], root: bool
) -> tuple[str, list[str]]:
    """The file and what is to be asked for."""
    servers: list[str] = []
    urls = ["/memory", "/auth"]
    written: list[tuple[str, dict[str, str | int]]] = [
        (text, {"d": place.directory, "name": Path(place.directory).name, "s": sockets[number]})
        for number, place in enumerate(places)
        for text in _STREAM.values()
    ]
    written += [(text, {}) for text in _STREAM_ONCE.values()]
    for text, words in written:
        port = _FIRST + len(servers)
        servers.append(f"server {{ listen 127.0.0.1:{port}; {_filled(text, words)} }}")
        is_tls = "ssl_preread" in text
        urls.append(
            f"{port} " + (f"hex:{client_hello('a.example')}" if is_tls else f"raw:{_HELLO}")
        )
    for text in _DATAGRAMS.values():
        port = _FIRST + len(servers)
        filled = _filled(text, {"s": sockets[0]})
        servers.append(f"server {{ listen 127.0.0.1:{port} udp; {filled} }}")
        urls.append(f"{port} udp:{_HELLO}")
    mail: list[str] = []
    for number, (kind, (name, asked)) in enumerate(
        (kind, one) for kind in _LOGIN for one in _AUTH.items()
    ):
        port = _FIRST + len(servers) + len(mail)
        log = f"error_log {places[number % len(places)].directory}/mail-{kind}-{name} debug;"
        auth = asked.format(s=sockets[number % len(places)])
        mail.append(
            f"server {{ listen 127.0.0.1:{port}; protocol {kind}; {log} auth_http {auth}; }}"
        )
        urls.append(f"{port} raw:{_LOGIN[kind]}")
    newline = "\n"
    loads = newline.join(f"load_module {module};" for module in modules)
    text = f"""{loads}
{"user root;" if root else ""}
error_log {places[-1].directory}/main.log debug;
events {{}}
http {{ server {{
listen 127.0.0.1:{LISTEN};
location = /memory {{ return 200 x; }}
location = /auth {{ add_header Auth-Status OK; add_header Auth-Server 127.0.0.1;
add_header Auth-Port {PORT}; return 200 x; }}
}} }}
stream {{
log_format short "$remote_addr $status";
proxy_connect_timeout 300ms; proxy_timeout 300ms; preread_timeout 300ms;
map $ssl_preread_server_name $named {{ default b.example; a.example 127.0.0.1; }}
upstream victims {{ server 127.0.0.1:{PORT}; server {FAR}:{PORT}; server unix:{sockets[0]}; }}
{newline.join(servers)}
}}
mail {{
server_name a.example; auth_http_timeout 300ms; proxy_timeout 500ms; timeout 2s;
smtp_auth plain; imap_auth plain; pop3_auth plain;
{newline.join(mail)}
}}
"""
    return text, urls


def _filled(text: str, words: dict[str, str | int]) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: str(words[found[1]]), text)
