"""Every directive that takes a path, a socket or a host where a command could be made to reach it.

``cases.tsv`` says of each directive of the package's table which of ``FORMS`` real nginx
executables take (by their number), and where. It is found out by trying, not by hand:

    python tests/sandbox_parts/sandbox_cases.py NGINX…     # as root; then review the diff

A directive that comes into the table is missing there, and a test says so.
"""

from __future__ import annotations

import concurrent.futures
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
TABLE = ROOT / "nginx_tune" / "conf" / "directives.tsv"
CASES = Path(__file__).with_name("cases.tsv")

FORMS = (
    "{path}",
    "{path} combined",
    "{path} 1 2",
    "{path} keys_zone=zone{number}:64k",
    "{directory}/$host.log",
    "{directory}/d$uri",
    "on {path}",
    "$host {path}",
    "{path} $host",
    "file:{path}",
    "unix:{socket}",
    "http://unix:{socket}:/",
    "server unix:{socket}",
    "syslog:server=unix:{socket}",
    "{host}",
    "http://{host}/",
    "syslog:server={host}",
    "{address}",
    "{address} valid=1s",
    "$host {host}",
)
"""Arguments; a path may be there already or not, a host is one that something listens on."""

CONTEXTS = ("location", "server", "http", "upstream", "main", "events")
"""Where a directive is tried, the first that it may stand in."""

_FOREIGN = frozenset({"load_module", "include"})
"""What is tried by attacks of its own."""


_COVER = (
    'mount -t tmpfs none /run && mount -t tmpfs none /var/log && mkdir /var/log/nginx && exec "$@"'
)
"""Nothing of the host is written while cases are tried."""


class Case(NamedTuple):
    """A directive with arguments that nginx takes."""

    directive: str
    context: str
    form: str

    def line(self, **values: str) -> str:
        """As it stands in a configuration."""
        return f"{self.directive} {self.form.format(**values)};"


def table_rows() -> Iterator[tuple[str, str, str]]:
    """Name, contexts and arguments of each directive of http, of events and of the main file."""
    for line in TABLE.read_text().splitlines():
        if line.startswith("#"):
            continue
        name, _, contexts, arguments = line.split("\t")[:4]
        yield name, contexts, arguments


def known_names() -> set[str]:
    """Every name of the table."""
    return {name for name, _, _ in table_rows()}


def read_cases() -> tuple[list[Case], set[str]]:
    """The cases, and all names that were tried."""
    cases, tried = [], set()
    for line in CASES.read_text().splitlines():
        if line.startswith("#"):
            continue
        names, *taken = line.split("\t")
        tried.update(names.split())
        if taken:
            context, numbers = taken
            cases += [Case(names, context, FORMS[int(number)]) for number in numbers.split()]
    return cases, tried


def write_cases(cases: list[Case], tried: set[str]) -> None:
    """A line for each directive that takes a form; names alone of those that take none."""
    lines = [
        "# Made by tests/sandbox_parts/sandbox_cases.py; not edited by hand.",
        "# directive\tcontext\tplaces in FORMS, or directives that take none of them",
    ]
    for (name, context), own in groupby(cases, key=lambda case: case[:2]):
        lines.append(f"{name}\t{context}\t{' '.join(str(FORMS.index(one.form)) for one in own)}")
    none = sorted(tried - {case.directive for case in cases})
    lines += textwrap.wrap(" ".join(none), 100, break_on_hyphens=False)
    CASES.write_text("\n".join(lines) + "\n")


def candidates() -> Iterator[Case]:
    """What is tried."""
    for name, contexts, arguments in table_rows():
        context = next((one for one in CONTEXTS if one in contexts.split(",")), None)
        if context is None or name in _FOREIGN or arguments.endswith("{") or arguments == "flag":
            continue
        for form in FORMS:
            if _takes(arguments, len(form.split())):
                yield Case(name, context, form)


def _takes(arguments: str, count: int) -> bool:
    words = arguments.split(",")
    return bool({str(count), "any", "1+"} & set(words)) or ("2+" in words and count > 1)


def place_lines(lines: list[tuple[str, str]], *, port: int, own: str = "", files: str = "/") -> str:
    """A configuration with each line in the place that its context says.

    ``place_urls`` tells how each is reached.
    """
    at = _by_context(lines)
    locations = [f"location /c{number}/ {{ {line} }}" for number, line in enumerate(at["location"])]
    servers = [
        f"server {{ listen 127.0.0.1:{port + 1 + number}; {line}\n}}"
        for number, line in enumerate(at["server"])
    ]
    locations += [
        f"location /g{number}/ {{ proxy_pass http://group{number}; }}"
        for number in range(len(at["upstream"]))
    ]
    groups = [
        f"upstream group{number} {{ server 127.0.0.1:9; {line}\n}}"
        for number, line in enumerate(at["upstream"])
    ]
    newline = "\n"
    return f"""{newline.join(at["main"])}
events {{
{newline.join(at["events"])}
}}
http {{
{own}
{newline.join(at["http"])}
{newline.join(groups)}
{newline.join(servers)}
server {{ listen 127.0.0.1:{port};
location = /memory {{ return 200 x; }}
location /files/ {{ root {files}; }}
{newline.join(locations)}
}} }}
"""


def place_urls(lines: list[tuple[str, str]], *, port: int) -> list[str]:
    """What is asked of that configuration: each location, server and upstream, and the first."""
    at = _by_context(lines)
    return [
        "/memory",
        *(f"/c{number}/x" for number in range(len(at["location"]))),
        *(f"{port + 1 + number}/x" for number in range(len(at["server"]))),
        *(f"/g{number}/x" for number in range(len(at["upstream"]))),
    ]


def _by_context(lines: list[tuple[str, str]]) -> dict[str, list[str]]:
    at: dict[str, list[str]] = {context: [] for context in CONTEXTS}
    for context, line in lines:
        at[context].append(line)
    return at


def _taken(nginx: str, cases: list[Case], scratch: Path) -> list[Case]:
    """Those of one directive's that ``nginx -t`` takes."""
    found = []
    for case in cases:
        said = _test(nginx, case, scratch)
        if said is None:
            found.append(case)
        elif "unknown directive" in said:
            break
    return found


def _test(nginx: str, case: Case, scratch: Path) -> str | None:
    """What ``nginx -t`` has against it; None for nothing. Run where it can do no harm."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        directory = Path(folder)
        values = {
            "path": f"{folder}/path", "directory": folder, "socket": f"{folder}/socket",
            "host": "127.0.0.1:4747", "address": "127.0.0.1", "number": "0",
        }  # fmt: skip
        conf = directory / "nginx.conf"
        conf.write_text(place_lines([(case.context, case.line(**values))], port=18_000))
        run = subprocess.run(
            ["unshare", "-n", "-m", "sh", "-c", _COVER, "sh", nginx, "-t", "-c", conf,
             "-p", folder],
            capture_output=True, text=True, check=False, timeout=20, cwd="/",
        )  # fmt: skip
        return run.stderr if run.returncode else None


def _main(binaries: list[str]) -> None:
    scratch = Path(tempfile.mkdtemp(prefix="sandbox-cases-"))
    tried = list(candidates())
    grouped = [list(cases) for _, cases in groupby(tried, key=lambda case: case.directive)]
    taken: set[Case] = set()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for nginx in binaries:
            for found in pool.map(partial(_taken, nginx, scratch=scratch), grouped):
                taken.update(found)
    shutil.rmtree(scratch)
    kept = (case for case in dict.fromkeys(tried) if case in taken)
    write_cases(sorted(kept, key=lambda case: case.directive), known_names())
    sys.stdout.write(f"{len(tried)} tried, {len(taken)} taken\n")


if __name__ == "__main__":
    _main(sys.argv[1:])
