"""Ordinary sites: each a tree of files as it lies on a host, and the right answer of each command.

A site is a directory here: its files below ``etc`` or ``usr`` as the host would have them, and
``site.toml`` with the answers. What every package brings (types, parameters of FastCGI) is written
where the tree is laid out; served files, certificates and directories only where nginx runs.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Literal

import msgspec
from nginx_versions import SYSTEM, present, stream_modules
from recorded_hosts import facts_file

HERE = Path(__file__).resolve().parent
HOST = facts_file("virtio-vm")
"""The made-up host of all sites: a virtual machine with 4 CPUs, 8 GB and one virtual disk."""


class Expected(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A finding: right, printed though it is false, or right and not printed."""

    rule: str
    at: str
    why: str
    kind: Literal["right", "false", "missing"] = msgspec.field(name="is", default="right")


class PlanLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line that plan writes, by which decision, and how it was judged."""

    at: str
    by: str
    line: str
    kind: Literal["needed", "harmless", "wrong"] = msgspec.field(name="is")
    why: str = ""
    """Empty for what holds of every site (`REASONS`)."""


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An edit that makes the site slower for a known reason."""

    file: str
    old: str
    new: str
    why: str


class Site(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The right answers for one tree."""

    title: str
    kind: Literal["static", "media", "cache", "proxy"]
    version: str = "1.22.1"
    product: Literal["nginx", "openresty", "Angie"] = "nginx"
    main: str = "etc/nginx/nginx.conf"
    sources: list[str] = []
    data: list[str] = []
    """Served files: a path, with a range in braces, and a size."""
    findings: list[Expected] = []
    plan: list[PlanLine] = []
    fault: Fault | None = None
    """What `validate` is asked about; without one it is not asked."""
    wrong: dict[str, str] = {}
    """By command, what it does here and why that is wrong."""


REASONS = {
    ("access-log", "harmless"): "fewer writes, for lines that come up to a second later "
    "(ngx_http_log_module.c: buffer, flush)",
    ("aio-write", "needed"): "answers larger than the memory's share go to the cache without "
    "holding the worker (https://nginx.org/en/docs/http/ngx_http_core_module.html#aio_write)",
    ("connections", "harmless"): "the load is not known, and a slot costs some 400 bytes "
    "(ngx_event.c, ngx_event_process_init)",
    ("file-limits", "needed"): "a unit of systemd starts nginx with 1024 descriptors, fewer than "
    "the connections and files that the tree and the plan ask for (ngx_event.c warns of it)",
    ("output-buffers", "harmless"): "over TLS the pool reads files in pieces of this size, twice "
    "as large as without (https://nginx.org/en/docs/http/ngx_http_core_module.html#output_buffers)",
    ("sendfile-max-chunk", "harmless"): "nginx itself bounds a call by 2m since 1.21.4; for a "
    "disk that nobody measured 512k bounds it closer (ngx_http_core_module.c)",
    ("thread-pools", "needed"): "the cache may be larger than the memory, and a read from the "
    "disk would hold the worker (https://blog.nginx.org/blog/thread-pools-boost-performance-9x)",
    ("workers", "needed"): "one worker uses one of four CPUs "
    "(https://nginx.org/en/docs/ngx_core_module.html#worker_processes)",
}
"""Why a decision's line is needed, or harmless, on all sites that do not say otherwise."""


def names() -> list[str]:
    """All sites."""
    return sorted(path.parent.name for path in HERE.glob("*/site.toml"))


@cache
def read_site(name: str) -> Site:
    """The right answers of a site."""
    return msgspec.toml.decode((HERE / name / "site.toml").read_bytes(), type=Site)


_TYPES = {
    "text/html": "html htm", "text/css": "css", "text/plain": "txt", "text/xml": "xml",
    "application/javascript": "js mjs", "application/json": "json", "image/svg+xml": "svg",
    "image/png": "png", "image/jpeg": "jpg jpeg", "image/gif": "gif", "image/webp": "webp",
    "image/x-icon": "ico", "font/woff2": "woff2", "video/mp4": "mp4", "video/mp2t": "ts",
    "application/zip": "zip", "application/wasm": "wasm",
}  # fmt: skip
_PARAMETERS = {
    "QUERY_STRING": "$query_string", "REQUEST_METHOD": "$request_method",
    "CONTENT_TYPE": "$content_type", "CONTENT_LENGTH": "$content_length",
    "REQUEST_URI": "$request_uri", "DOCUMENT_ROOT": "$document_root",
    "SERVER_PROTOCOL": "$server_protocol", "REMOTE_ADDR": "$remote_addr",
    "SERVER_NAME": "$server_name",
}  # fmt: skip


def _packaged() -> dict[str, str]:
    """The files that every package brings beside its main one."""
    types = "".join(f"    {kind} {ends};\n" for kind, ends in _TYPES.items())
    return {"mime.types": f"types {{\n{types}}}\n"} | {
        f"{kind}_params": "".join(f"{kind}_param {key} {of};\n" for key, of in _PARAMETERS.items())
        for kind in ("fastcgi", "uwsgi")
    }


_ROOTS = "etc|var|srv|run|home|opt|dev/shm|usr/share|usr/local"
_PATH = re.compile(rf"""(?<=[\s"'=:])/(?=(?:{_ROOTS})/)""")
_OF_URIS = re.compile(r"\s*(?:location|rewrite|proxy_set_header)\b")


def lay_out(name: str, at: Path, *, moved: bool = True) -> Path:
    """Write a site's files below a directory that is not there yet; its main file.

    Moved, the paths in them lead into that directory, and it is as complete as on its host: an
    include that has no match there is a comment. Else it is a checkout with the host's paths.
    """
    main = at / read_site(name).main
    shutil.copytree(HERE / name, at, symlinks=True, ignore=shutil.ignore_patterns("site.toml"))
    if name == "tenants":
        _add_tenants(main.parent / "conf.d")
    for path in _own_files(at) if moved else ():
        lines = path.read_text().splitlines(keepends=True)
        empty = {line for line in lines for glob in included(line) if not any(at.glob(glob))}
        path.write_text(
            "".join(_moved(line, at) if line not in empty else f"#{line}" for line in lines)
        )
    for own, text in _packaged().items():
        (main.parent / own).write_text(text)
    return main


def included(text: str) -> list[str]:
    """The patterns that a configuration includes, below the root of its host."""
    return re.findall(r"(?m)^\s*include /(\S*\*\S*);", text)


def is_complete(name: str) -> bool:
    """Whether every pattern that a site includes has a match in its checkout."""
    patterns = {glob for path in _own_files(HERE / name) for glob in included(path.read_text())}
    made = {"etc/nginx/conf.d/*.conf"} if name == "tenants" else set()
    return all(any((HERE / name).glob(glob)) for glob in patterns - made)


def _moved(line: str, at: Path) -> str:
    return line if _OF_URIS.match(line) else _PATH.sub(f"{at}/", line)


def _own_files(at: Path) -> Iterator[Path]:
    return (path for path in at.rglob("*") if path.is_file() and not path.is_symlink())


def _add_tenants(conf_d: Path) -> None:
    """Add the servers of two hundred customers, as a control panel writes them."""
    conf_d.mkdir()
    for number in range(200):
        host, place = f"customer{number:03}.example.com", f"/srv/customers/{number:03}/public"
        (conf_d / f"{host}.conf").write_text(
            f"server {{\n    listen 80;\n    server_name {host} www.{host};\n    root {place};\n"
            f"    access_log /var/log/nginx/{host}.log main;\n"
            "    location / { try_files $uri $uri/ /index.php?$args; }\n"
            "    location ~ \\.php$ {\n"
            "        try_files $uri =404;\n        include fastcgi_params;\n"
            "        fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;\n"
            f"        fastcgi_pass unix:/run/php/customer{number:03}.sock;\n    }}\n}}\n"
        )


def furnish(name: str, at: Path) -> None:
    """Make what nginx needs to run a laid-out site: directories, served files, certificates.

    Users are those of this machine, and modules those that were fetched for the tests.
    """
    site = read_site(name)
    modules = {Path(one).name: one for one in stream_modules()}
    for path in list(_own_files(at)):
        text = re.sub(r"(?m)^user \S+;", "user www-data;", path.read_text())
        text = re.sub(
            r"load_module modules/(\S+);",
            lambda of: f"load_module {modules.get(of[1], of[0])};",
            text,
        )
        path.write_text(text)
        for line in (line for line in text.splitlines() if not _OF_URIS.match(line)):
            for found in re.findall(rf"{re.escape(str(at))}/[^\s;\"']+", line):
                if "$" not in found and "*" not in found:
                    _make_place(line.split()[0], Path(found))
    for entry in site.data:
        _make_files(at, *entry.rsplit(maxsplit=1))


_DIRECTORIES = {"root", "alias", "proxy_cache_path", "fastcgi_cache_path", "lua_package_path"}


def _make_place(directive: str, path: Path) -> None:
    if directive.startswith("ssl_certificate") and not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_certificate())
    made = path if directive.rstrip(";") in _DIRECTORIES and "." not in path.name else path.parent
    made.mkdir(parents=True, exist_ok=True)


@cache
def _certificate() -> bytes:
    """A key and a certificate of nobody, in one file."""
    command = [
        "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650",
        "-subj", "/CN=example.com", "-keyout", "-", "-out", "-",
    ]  # fmt: skip
    return subprocess.run(command, check=True, capture_output=True).stdout


def _make_files(at: Path, pattern: str, size: str) -> None:
    """Write files of a size in KiB; their bytes are of their names."""
    found = re.search(r"\{(\d+)\.\.(\d+)\}", pattern)
    numbers = range(int(found[1]), int(found[2]) + 1) if found else [0]
    for number in numbers:
        inner = f"{number:0{len(found[1])}}" if found else ""
        path = at / re.sub(r"\{.*\}", inner, pattern)
        path.parent.mkdir(parents=True, exist_ok=True)
        length = int(size.removesuffix("k")) * 1024
        is_text = path.suffix in {".html", ".css", ".js", ".svg", ".php", ".m3u8", ""}
        line = f"/* {path.name} of an ordinary site */\n".encode()
        path.write_bytes(
            (line * (length // len(line) + 1))[:length]
            if is_text
            else Random(pattern + inner).randbytes(length)
        )


_FORKS = {
    "openresty": ("1.27.1.2", "1.27.1", "/usr/local/openresty/nginx", "logs/access.log"),
    "Angie": ("1.10.2", "1.27.5", "/etc/angie", "/var/log/angie/access.log"),
}
"""Version, the nginx that it is made from, prefix and log of a fork."""


def write_facts(site: Site, at: Path) -> Path:
    """Write the host's facts: nginx as systemd starts it, with every module of the sites."""
    facts: dict[str, Any] = json.loads(HOST.read_bytes())
    facts["limits"] |= {"nofile_of": "nginx", "nofile_soft": 1024, "nofile_hard": 524288}
    nginx = facts["nginx"]
    nginx["version"] = nginx["nginx_version"] = site.version
    if site.product != "nginx":
        version, nginx["nginx_version"], prefix, log = _FORKS[site.product]
        nginx |= {"product": site.product, "version": version, "prefix": prefix,
                  "conf_path": f"/{site.main}"}  # fmt: skip
        paths = {"--prefix": prefix, "--http-log-path": log, "--conf-path": f"/{site.main}"}
        nginx["flags"] = [
            f"{flag}={paths[flag]}" if (flag := one.partition("=")[0]) in paths else one
            for one in nginx["flags"]
        ]
    nginx["flags"] += [f"--with-http_{one}_module" for one in ("auth_request", "gunzip", "sub")]
    nginx["flags"] += ["--with-stream_ssl_preread_module", "--with-pcre-jit"]
    at.write_text(json.dumps(facts))
    return at


def program_of(site: Site) -> str | None:
    """The nginx of this machine that a site is for; none of the forks."""
    if site.product != "nginx":
        return None
    series = site.version.rpartition(".")[0]
    return present().get(series, SYSTEM if series == "1.22" else None)


Row = tuple[str, ...]


def differences(
    site: Site, printed: dict[str, Any], at: Path, *, is_complete: bool = True
) -> list[str]:
    """How printed findings differ from the table of a site; of a part some may be missing."""
    found = {
        (one["rule"], f"{one['file'].removeprefix(f'{at}/')}:{one['line']}")
        for one in printed["findings"]
    }
    rows = {(one.rule, one.at) for one in site.findings if one.kind != "missing"}
    cured = {(one.rule, one.at) for one in site.findings if one.kind == "missing"} & found
    return _apart(found - cured, rows if is_complete else rows & found) + [
        f"no longer missing: {' '.join(one)}" for one in cured
    ]


def plan_differences(site: Site, printed: dict[str, Any], at: Path) -> list[str]:
    """How a printed plan differs from the table of a site."""
    found = {
        (f"{file['path'].removeprefix(f'{at}/')}:{one['line']}", one["decision"],
         " ".join(one["after"].replace(str(at), "").split()))
        for file in printed["files"] for one in file["hunks"]
    }  # fmt: skip
    return _apart(found, {(one.at, one.by, one.line) for one in site.plan})


def _apart(found: AbstractSet[Row], rows: AbstractSet[Row]) -> list[str]:
    return [f"no longer printed: {' '.join(one)}" for one in sorted(rows - found)] + [
        f"not in the table: {' '.join(one)}" for one in sorted(found - rows)
    ]
