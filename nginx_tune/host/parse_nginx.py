"""nginx's names, ``nginx -V`` of every known product, and process titles; pure."""

import posixpath
import re
from typing import NamedTuple

from nginx_tune.host.door import Missing

NAMES = ("nginx", "angie", "openresty", "freenginx", "tengine")
"""Names of programs, in the order of the search."""

COMMS = ("nginx", "angie", "openresty", "freenginx", "tengine")
"""Names of processes, as in ``/proc/PID/comm``."""


_VERSION = re.compile(
    r"^(?:\w+) version: ([\w-]+)/([0-9][\w.-]*)(?: \((nginx-plus-[\w.-]+)\))?", re.MULTILINE
)
_ARGUMENTS = re.compile(r"^configure arguments: ?(.*)$", re.MULTILINE)
_ARGUMENT = re.compile(r"(--[\w-]+)(?:=('[^']*'|\S*))?")
_COMPILER = {
    "--with-cc", "--with-cpp", "--with-cc-opt", "--with-ld-opt", "--with-cpu-opt",
    "--with-pcre-opt", "--with-openssl-opt", "--with-zlib-opt", "--with-libatomic", "--with-perl",
}  # fmt: skip
"""Arguments that affect how the binary is compiled, not its features."""

_TLS_LIBRARY = re.compile(r"^built with (\S.*?)(?: \(running with (.+?)\))?$", re.MULTILINE)

_FREENGINX_BASE = "1.25.4"
"""The last version that nginx and freenginx have in common."""


class VersionOutput(NamedTuple):
    """The contents of ``nginx -V``."""

    product: str
    version: str
    nginx_version: str | Missing
    flags: list[str]
    prefix: str
    conf_path: str
    error_log_path: str
    pid_path: str
    openssl_built: str | Missing = Missing("built without TLS")
    openssl: str | Missing = Missing("built without TLS")
    """The TLS library at run time, or at build time if no other library is named."""


def parse_build(text: str) -> VersionOutput | Missing:
    """The product, its version and its configure arguments.

    Shape:  flags in the order of the configure line, compiler options without their values.
    Errors: Missing for a text that nginx did not print.
    Source: src/core/nginx.c ngx_show_version_info() of nginx and its forks.
    """
    versions = _VERSION.findall(text)
    if not versions:
        return Missing("-V prints no nginx version")
    product, version, plus = versions[0]
    product = product.lower()
    arguments = _ARGUMENTS.search(text)
    given = _ARGUMENT.findall(arguments[1]) if arguments else []
    values = {name: value.strip("'") for name, value in given}
    prefix = values.get("--prefix") or "/usr/local/nginx"

    def path(argument: str, default: str) -> str:
        value = values.get(argument) or default
        return value if value == "stderr" else posixpath.join(prefix, value)

    return VersionOutput(
        product="nginx-plus" if plus else product,
        version=plus.removeprefix("nginx-plus-") if plus else version,
        nginx_version=_nginx_version(product, dict(v[:2] for v in reversed(versions))),
        flags=[
            name if name in _COMPILER or not value else f"{name}={value.strip(chr(39))}"
            for name, value in given
        ],
        prefix=prefix,
        conf_path=path("--conf-path", "conf/nginx.conf"),
        error_log_path=path("--error-log-path", "logs/error.log"),
        pid_path=path("--pid-path", "logs/nginx.pid"),
        **_tls_libraries(text),
    )


def _tls_libraries(text: str) -> dict[str, str]:
    """The TLS library at build and run time; src/core/nginx.c names both if they differ."""
    match = _TLS_LIBRARY.search(text)
    if match is None:
        return {}
    return {"openssl_built": match[1], "openssl": match[2] or match[1]}


def parse_libc(ldd: str) -> tuple[str, str] | Missing:
    """The C library and its version, from ``ldd --version``."""
    if match := re.search(r"^musl libc.*\nVersion ([0-9][\w.]*)", ldd, re.MULTILINE):
        return "musl", match[1]
    if match := re.match(r"ldd \(.+\) ([0-9]+\.[0-9]+)", ldd):
        return "glibc", match[1]
    return Missing("ldd --version names no known C library")


def libc_of(mapped: list[str]) -> str | Missing:
    """The C library among a process's mapped files."""
    for path in mapped:
        name = posixpath.basename(path)
        if re.match(r"(ld-musl-|libc\.musl-)", name):
            return "musl"
        if re.fullmatch(r"libc\.so\.6|libc-2\.[0-9]+\.so", name):
            return "glibc"
    return Missing("no known C library is mapped: a static binary?")


def _nginx_version(product: str, versions: dict[str, str]) -> str | Missing:
    if "nginx" in versions:
        return versions["nginx"]
    own = next(iter(versions.values()))
    if product == "openresty":
        return ".".join(own.split(".")[:3])
    if product == "freenginx":
        return min(own, _FREENGINX_BASE, key=_numbers)
    return Missing(f"{product} does not report its nginx version")


def _numbers(version: str) -> list[int]:
    return [int(number[:9]) for number in re.findall(r"[0-9]+", version)]


_PASSING = {"-t", "-T", "-v", "-V", "-s", "-h", "-?"}
"""Options with which nginx only reports or signals something and exits."""


class Title(NamedTuple):
    """The title of an nginx process."""

    role: str
    """``master``, ``worker``, ``leaving`` (a worker that shuts down), ``other`` (cache manager, …)
    or ``single`` (no title: ``master_process off``)."""
    arguments: list[str]
    """The command line in a master's title, split at blanks, without its quotes."""


def parse_title(arguments: list[str]) -> Title:
    """The role of an nginx process, from its command line.

    Source: src/os/unix/ngx_process_cycle.c, ngx_setproctitle.c; Angie adds the generation to
            a worker's title (ngx_setproctitle_gen).
    """
    first = arguments[0] if arguments else ""
    if match := re.match(r"[\w-]+: master process\s*(.*)", first, re.DOTALL):
        return Title("master", match[1].split())
    if re.fullmatch(r"[\w-]+: worker process(?: #\d+)?\s*", first):
        return Title("worker", [])
    if re.fullmatch(r"[\w-]+: worker process is shutting down(?: #\d+)?\s*", first):
        return Title("leaving", [])
    if re.match(r"[\w-]+: ", first) or not arguments or _PASSING & set(arguments):
        return Title("other", [])
    return Title("single", arguments)


def global_directives(arguments: list[str]) -> str:
    """The directives of ``-g``; they end at the next option, since the title has no quotes."""
    words: list[str] = []
    is_inside = False
    for word in arguments[1:]:
        if is_inside and word[:2] in ("-c", "-p", "-e", "-g") and words and words[-1][-1:] == ";":
            is_inside = False
        if is_inside:
            words.append(word)
        elif word.startswith("-g"):
            is_inside = True
            words += [word[2:]] if word[2:] else []
    return " ".join(words)


class StartOptions(NamedTuple):
    """The paths on nginx's command line."""

    conf_path: str | None
    prefix: str | None


def parse_start_options(arguments: list[str]) -> StartOptions:
    """The values of ``-c`` and ``-p`` on nginx's command line, attached or separate."""
    found: dict[str, str] = {}
    words = iter(arguments[1:])
    for word in words:
        option = word[:2]
        if option in {"-c", "-p", "-g", "-e", "-s"}:
            value = word[2:] or next(words, "")
            found.setdefault(option, value)
    return StartOptions(found.get("-c") or None, found.get("-p") or None)
