"""Runs attacks in the arena and tells what they changed.

    unshare … -- python sandbox_run.py PACKAGE REQUEST

PACKAGE is a copy of the package that every user may read, REQUEST is JSON; see ``Request``. The
answer is JSON on standard output.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sandbox_requests
import sandbox_streams
from sandbox_arena import BASE, FAR, PORT, VARIABLE, Arena, describe
from sandbox_cases import Case, place_lines, place_urls, read_cases
from sandbox_requests import LISTEN
from unprivileged import AS_NOBODY, interpreter

HERE = Path(__file__).parent
SECONDS = 100


class Product:
    """The package as a user runs it."""

    def __init__(self, package: Path, user: str) -> None:
        self.package = package
        self.owner: dict[str, Any] = AS_NOBODY if user == "nobody" else {}
        self.home = BASE / f"home-{user}"
        self.home.mkdir(exist_ok=True)
        if user == "nobody":
            os.chown(self.home, AS_NOBODY["user"], AS_NOBODY["group"])

    def run(self, *argv: str | Path) -> subprocess.CompletedProcess[str]:
        """Run the interpreter on it. Errors: TimeoutExpired."""
        return subprocess.run(
            [interpreter() or sys.executable, *argv],
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.home),
                 "PYTHONPATH": str(self.package), "TMPDIR": str(self.home),
                 "XDG_CACHE_HOME": f"{self.home}/cache", VARIABLE: "x"},
            capture_output=True, text=True, check=False, timeout=SECONDS, cwd="/", **self.owner,
        )  # fmt: skip

    def test(self, conf: Path, nginx: str) -> subprocess.CompletedProcess[str]:
        """``audit --test``: its answer holds what nginx said."""
        words = ["--test", "--facts", "none", "--nginx", nginx, "-f", "json"]
        words += ["--map", "/=/", "--accept-missing", "*"]  # what it includes is meant, and empty
        return self.run("-m", "nginx_tune", "audit", conf, *words)

    def serve(self, conf: Path, nginx: str, urls: list[str]) -> subprocess.CompletedProcess[str]:
        """As ``validate`` starts it, each URL asked for once."""
        return self.run(HERE_FOR_ALL / "sandbox_serve.py", conf, nginx, *urls)


HERE_FOR_ALL = BASE / "programs"


def for_all(nginx: str) -> str:
    """A version of the matrix where every user may look, with its launcher told so."""
    unpacked = Path(nginx).parent
    if not (unpacked / "usr").is_dir():
        return nginx
    copy = BASE / "version"
    if not copy.exists():
        shutil.copytree(unpacked, copy, symlinks=True)
        copy.chmod(0o755)
        launcher = copy / Path(nginx).name
        launcher.write_text(launcher.read_text().replace(str(unpacked), str(copy)))
    return str(copy / Path(nginx).name)


def attack_by_module(arena: Arena, request: dict[str, Any]) -> dict[str, Any]:
    """Load a module that attacks; what it tells, what changed."""
    user, nginx, how = request["user"], request["nginx"], request["how"]
    module = BASE / "module" / "attack.so"
    module.parent.mkdir(exist_ok=True)
    header = arena.header(
        user, module, exhausts=request.get("exhausts", False), at_request=how == "request"
    )
    (module.parent / "victims.h").write_text(header)
    command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", f"-I{module.parent}",
               HERE / "attack.c", "-o", module, "-lrt"]  # fmt: skip
    subprocess.run(command, check=True)
    conf = BASE / "conf" / "attack.conf"
    conf.parent.mkdir(exist_ok=True)
    # Its tree is in sight, so it is among what is attacked.
    includes = "".join(f"include {place.directory}/*.none;\n" for place in arena.places)
    roots = "".join(
        f"location /{place.name}/ {{ alias {place.directory}/; }}\n" for place in arena.places
    )
    of_root = "user root;\n" if request.get("worker") == "root" else ""
    if request.get("sockets"):
        roots += f"location /sockets/ {{ proxy_pass http://unix:{BASE}/none; }}\n"
    conf.write_text(
        f"load_module {module};\n{of_root}{includes}events {{}}\n"
        f"http {{ server {{ listen 127.0.0.1:{LISTEN};\n"
        f"location = /memory {{ return 200 x; }}\n{roots} }} }}\n"
    )
    product = Product(Path(request["package"]), user)
    before, processes = arena.snapshot(), _processes()
    started = time.monotonic()
    wanted = () if how == "test" else (["wait:/memory"],)
    run = (product.serve if wanted else product.test)(conf, nginx, *wanted)
    status, said = run.returncode, run.stdout + run.stderr
    seconds = time.monotonic() - started
    time.sleep(0.2)
    told = re.search(r"user (\d+) attacks:((?: \w+\.\d+)+)", said)
    results = dict(word.split(".") for word in told[2].split()) if told else {}
    return {
        "results": {name: int(number) for name, number in results.items()},
        "changes": [one for one in arena.changes(before) if not _is_own(one)],
        "left": sorted(_left(processes)),
        "attacker": int(told[1]) if told else -1,
        "status": status,
        "said": said[-3000:] if not told else "",
        "seconds": round(seconds, 1),
    }


def _processes() -> set[int]:
    """All of the arena that run; those that only nobody waits for do not."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if path.read_text().rpartition(")")[2].split()[0] != "Z":
                found.add(int(path.parent.name))
    return found


def _left(before: set[int]) -> set[int]:
    """Processes that stay; the keeper may still be clearing up."""
    deadline = time.monotonic() + 5.0
    while _processes() - before and time.monotonic() < deadline:
        time.sleep(0.1)
    return _processes() - before


def serve_requests(arena: Arena, request: dict[str, Any]) -> dict[str, Any]:
    """Serve what has nginx write, send and run code."""
    user, nginx = request["user"], request["nginx"]
    conf = _site()
    text, urls = sandbox_requests.configuration(
        arena.places,
        arena.sockets,
        victim=arena.victims[user].pid,
        root=user == "root",
        modules=request["modules"],
        directory=str(conf.parent),
        without=request.get("without", ()),
    )
    conf.write_text(text)
    return _served(arena, Product(Path(request["package"]), user), conf, nginx, urls)


def serve_streams(arena: Arena, request: dict[str, Any]) -> dict[str, Any]:
    """Serve streams and mail, which log, ask and pass on."""
    user, conf = request["user"], _site()
    copies = [BASE / "modules" / Path(module).name for module in request["modules"]]
    for module, copy in zip(request["modules"], copies, strict=True):
        copy.parent.mkdir(exist_ok=True)
        shutil.copyfile(module, copy)
    text, urls = sandbox_streams.configuration(
        arena.places, arena.sockets, modules=list(map(str, copies)), root=user == "root"
    )
    conf.write_text(text)
    return _served(arena, Product(Path(request["package"]), user), conf, request["nginx"], urls)


def try_directives(arena: Arena, request: dict[str, Any]) -> dict[str, Any]:
    """Every directive that takes a path, a socket or a host: tested, and served if it is asked."""
    user, nginx, turn = request["user"], request["nginx"], request["turn"]
    arena.without_devices = request.get("without_devices", False)
    conf = _site()
    lines = list(_lines(arena, turn))
    refused = _drop_refused(arena, conf, lines, nginx)
    product = Product(Path(request["package"]), user)
    before = arena.snapshot()
    refused_inside: list[str] = []
    for _ in range(_MOST_TESTS):
        told = _tested(product, conf, nginx)
        if told["accepted"] or not (found := _drop_one(lines, conf, "\n".join(told["messages"]))):
            break
        refused_inside.append(f"{found} {told['messages'][-2:]}")
        conf.write_text(place_lines(lines, port=LISTEN, own=_WAITS, files=str(conf.parent)))
        before[f"file {conf}"] = describe(conf)
    time.sleep(0.2)
    answer = {
        "cases": len(lines),
        "refused_before": refused,
        "refused_inside": refused_inside,
        "accepted": told["accepted"],
        "said": [] if told["accepted"] else _worst(told["messages"]),
        "changes": [one for one in arena.changes(before) if not _is_own(one)],
    }
    if request.get("serves"):
        if "contexts" in request:
            lines = [one for one in lines if one[0] in request["contexts"]]
        conf.write_text(place_lines(lines, port=LISTEN, own=_WAITS, files=str(conf.parent)))
        urls = place_urls(lines, port=LISTEN)
        answer["served"] = _served(arena, product, conf, nginx, urls)
    return answer


def _site() -> Path:
    """Where the configuration goes, with some files that it serves beside it."""
    (BASE / "conf" / "files").mkdir(parents=True, exist_ok=True)
    for name in ("body", "files/a.bin", "files/b.bin"):
        (BASE / "conf" / name).write_bytes(b"x" * 200_000)
    return BASE / "conf" / "nginx.conf"


_WAITS = "access_log off;\n" + "".join(
    f"{one}_connect_timeout 300ms; {one}_read_timeout 300ms; {one}_send_timeout 300ms;\n"
    for one in ("proxy", "fastcgi", "scgi", "uwsgi", "grpc", "memcached")
)


def _lines(arena: Arena, turn: int) -> Iterator[tuple[str, str]]:
    """Context and text of each case; which place it is about differs from turn to turn."""
    cases, _ = read_cases()
    once: dict[str, list[Case]] = {}
    for number, case in enumerate(cases):
        is_log = case.directive.endswith("_log")
        forms = _FILES + (("syslog:",) if is_log else ())
        if case.directive.endswith(_OF_FILES) and not case.form.startswith(forms):
            continue  # a file below nginx's prefix of an odd name, one for many directives
        if case.directive == "working_directory" and case.form != "{path}":
            continue
        if case.directive.endswith("_temp_path") and not case.form.startswith("{path}"):
            continue  # its names would be others' files
        if case.context in {"main", "events", "http"}:
            once.setdefault(case.directive, []).append(case)
        else:
            yield case.context, case.line(**_values(arena, number + turn, case))
    # These stand once: another form in each turn.
    for number, own in enumerate(once.values()):
        case = own[turn % len(own)]
        yield case.context, case.line(**_values(arena, number + turn, case))


def _worst(messages: list[str]) -> list[str]:
    return [line for line in messages if "[emerg]" in line] or messages[-3:]


_OF_FILES = ("_path", "_store", "_log", "root", "alias", "pid", "lock_file")
_FILES = ("{path}", "{directory}")
_MOST_TESTS = 12
_counter = itertools.count()


def _values(arena: Arena, number: int, case: Case) -> dict[str, str]:
    place = arena.places[number % len(arena.places)].directory
    count = next(_counter)
    is_log = "syslog" in case.form
    # A directory that nginx makes and hands to its workers is not there yet.
    is_old = count % 2 == 0 and not case.directive.endswith("_path")
    path = Path(place, f"old-{count}" if is_old else f"new-{count}")
    if case.directive == "working_directory":
        path = Path(place)  # workers end where it is none
    elif is_old and "{path}" in case.form:
        path.write_bytes(b"the operator's\n")
        path.chmod(0o666)
    allowed = str(BASE) if arena.without_devices else "/"
    sockets = [p for p in arena.sockets if p.endswith("-log") is is_log and p.startswith(allowed)]
    return {
        "path": str(path),
        "directory": place,
        # nginx can listen at no socket that is there: one beside it.
        "socket": sockets[count % len(sockets)] + ("-own" if case.directive == "listen" else ""),
        "host": f"{(FAR, '127.0.0.1')[count % 2]}:{PORT}",
        "address": (FAR, "127.0.0.1")[count % 2],
        "number": str(count),
    }


def _drop_refused(arena: Arena, conf: Path, lines: list[tuple[str, str]], nginx: str) -> list[str]:
    """Leave out what this nginx refuses, each by itself or beside the others."""
    refused = []
    covers = " && ".join(f"mount -t tmpfs none {place.directory}" for place in arena.places)
    command = f'mount -t tmpfs none /run && {covers} && exec "$@"'
    for _ in range(300):
        conf.write_text(place_lines(lines, port=LISTEN, own=_WAITS, files=str(conf.parent)))
        run = subprocess.run(
            ["unshare", "-n", "-m", "sh", "-c", command, "sh", nginx, "-t", "-c", conf],
            capture_output=True, text=True, check=False, timeout=SECONDS, cwd="/",
        )  # fmt: skip
        if run.returncode == 0 or not (found := _drop_one(lines, conf, run.stderr)):
            break
        refused.append(f"{found} {run.stderr.strip().splitlines()[-2:]}")
    return refused


def _drop_one(lines: list[tuple[str, str]], conf: Path, said: str) -> str:
    """Leave out the line that a refusal is about; empty when it cannot be told."""
    worst = [line for line in said.splitlines() if "[emerg]" in line]
    hashed = re.search(
        r"could not build (\w+?)_(?:headers_|types_)?hash", worst[0] if worst else ""
    )
    if hashed:
        # Names as long as paths need larger buckets than some of these can be given.
        lines[:] = [
            one for one in lines if not re.match(r"\w+_(hide_header|pass_header|types) ", one[1])
        ]
        return "the names that are kept in hashes"
    at = re.search(rf" in {re.escape(str(conf))}:([0-9]+)", worst[0] if worst else "")
    if at:
        text = conf.read_text().splitlines()[int(at[1]) - 1]
        found = next((one for one in lines if one[1] in text), None)
    else:
        # It does not say where: a name in the message is all there is.
        words = re.findall(r'"(/[^" ]+)"', worst[0] if worst else "")
        found = next((one for one in lines if any(word in one[1] for word in words)), None)
    if found is None:
        return ""
    if worst and "unknown directive" in worst[0]:
        name = found[1].split()[0]
        lines[:] = [one for one in lines if one[1].split()[0] != name]
    else:
        lines.remove(found)
    return found[1]


def _tested(product: Product, conf: Path, nginx: str) -> dict[str, Any]:
    run = product.test(conf, nginx)
    try:
        told: dict[str, Any] = json.loads(run.stdout)["nginx_test"]
    except (ValueError, KeyError):
        return {"accepted": False, "messages": [run.stdout[-500:], run.stderr[-1500:]]}
    return told


def _served(
    arena: Arena, product: Product, conf: Path, nginx: str, urls: list[str]
) -> dict[str, Any]:
    before = arena.snapshot()
    started = time.monotonic()
    run = product.serve(conf, nginx, urls)
    seconds = round(time.monotonic() - started, 1)
    time.sleep(0.2)
    try:
        answers = json.loads(run.stdout)
    except ValueError:
        answers = {"error": (run.stdout + run.stderr)[-1500:]}
    found = answers.get("answers", [])
    return {
        "asked": len(urls),
        "answered": sum(isinstance(one, int) for one in found),
        "faults": sorted({str(one) for one in found if not isinstance(one, int)}),
        "statuses": dict(zip(urls, found, strict=True)) if len(found) == len(urls) else {},
        "error": answers.get("error", ""),
        "said": answers.get("said", "")[-3000:],
        "changes": [one for one in arena.changes(before) if not _is_own(one)],
        "seconds": seconds,
    }


def _is_own(change: str) -> bool:
    """What the product writes itself, outside of the sandbox."""
    return change.startswith((f"file {BASE}/home-",))


def main(package: str, request: str) -> int:
    wanted = json.loads(request)
    kinds = sandbox_requests.KINDS if any(one["kind"] == "requests" for one in wanted) else ()
    with Arena(kinds, owner=wanted[0]["user"]) as arena:
        HERE_FOR_ALL.mkdir()
        for name in ("sandbox_serve.py", "sandbox_inside.py"):
            (HERE_FOR_ALL / name).write_bytes((HERE / name).read_bytes())
        for one in wanted:
            one["nginx"] = for_all(one["nginx"])
        answers = [KINDS[one["kind"]](arena, {"package": package, **one}) for one in wanted]
    sys.stdout.write(json.dumps(answers))
    return 0


KINDS = {
    "module": attack_by_module,
    "requests": serve_requests,
    "streams": serve_streams,
    "directives": try_directives,
}

if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
