"""Thousands of damaged configurations, judged by us and by an unprivileged ``nginx -t``.

    PYTHONPATH=tests python tests/audit/differential.py --count 10000 --seed 1 [--series 1.30]

Without a series the installed nginx is asked, with one that of ``tools/nginx-matrix``. Needs root
and nginx. nginx runs inside namespaces of its own, as nobody, with nothing to write to but memory.
Prints a tally; exit status 1 when we called something wrong that nginx accepts, or when an audit
failed or took longer than its limit. A test runs a few of them.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from functools import cache, partial
from pathlib import Path

from nginx_versions import find_nginx

from nginx_tune.audit.engine import audit
from nginx_tune.audit.registry import ALL
from nginx_tune.audit.rule import linux
from nginx_tune.audit.suppression import NOTICES
from nginx_tune.conf.known_directives import rows_of
from nginx_tune.conf.tree import read_tree
from nginx_tune.documents.base import encode
from nginx_tune.documents.facts import Facts
from nginx_tune.host.live import LiveHost

NGINX = "/usr/sbin/nginx"
NOBODY = "65534"
LIMIT_SECONDS = 5.0
CONF = Path(__file__).resolve().parent.parent / "conf"
VALUES = [
    "on", "off", "0", "1", "16", "-1", "64k", "1m", "5s", "1d", "auto", "default", "none", "all",
    "/srv", "html", "$uri", "$x", "http://127.0.0.1", "127.0.0.1:8080", "threads", "threads=a",
    "8080 reuseport", "80 default_server", "zone=a:1m", "shared:a:1m", "'a b'", '"c"', "a;", "",
    "*.example.org", "~^/x(.*)$", "=404", "200", "main", "GET", "epoll", "{}", "a b c", "\\", "é",
]  # fmt: skip
REFUSES = {rule.id for rule in (*ALL, *NOTICES) if "does not start" in rule.why}
"""Rules that say of a configuration that nginx will not take it."""


def seeds() -> list[str]:
    """Right configurations to begin with."""
    texts = [path.read_text(errors="surrogateescape") for path in sorted(CONF.glob("valid/*.conf"))]
    texts += [rule.good.conf for rule in ALL] + [rule.bad.conf for rule in ALL]
    return [text for text in texts if "load_module" not in text and "CERT" not in text]


def names_of(program: str) -> list[str]:
    """The directives that an nginx has of its own."""
    unpacked = Path(program).parent / "usr/sbin/nginx"
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "usr/sbin/nginx")
        place.parent.mkdir(parents=True)
        place.symlink_to(unpacked if unpacked.exists() else program)
        tool = CONF.parent.parent / "tools/read-directives"
        table = subprocess.run(
            [sys.executable, tool, f"1.0={folder}"], capture_output=True, text=True, check=True
        ).stdout
    return sorted({row.split("\t")[0] for row in table.splitlines() if not row.startswith("#")})


def damaged(dice: random.Random, text: str, names: list[str]) -> str:
    """A configuration with one to four things changed."""
    for _ in range(dice.choice((1, 1, 1, 1, 2, 3))):
        lines = text.split("\n")
        at = dice.randrange(len(lines))
        match dice.randrange(9):
            case 0:
                lines.insert(at, dice.choice(lines))
            case 1:
                del lines[at]
            case 2:
                other = dice.randrange(len(lines))
                lines[at], lines[other] = lines[other], lines[at]
            case 3 | 4:
                directive, contexts = _directive(dice, names)
                opens = [n for n, line in enumerate(lines, 1) if _opens(line) in contexts]
                lines.insert(dice.choice(opens) if opens and dice.random() < 0.9 else at, directive)
            case 5:
                words = lines[at].split(" ")
                words[dice.randrange(len(words))] = dice.choice(VALUES)
                lines[at] = " ".join(words)
            case 6:
                words = lines[at].split(" ")
                words.insert(dice.randrange(len(words) + 1), dice.choice(VALUES))
                lines[at] = " ".join(words)
            case 7:
                cut = dice.randrange(len(text) + 1)
                text = text[:cut] + dice.choice("{};\"'\\#$ \n\t\r\0\xff\u00a0") + text[cut:]
                continue
            case _:
                cut = dice.randrange(len(text) + 1)
                text = text[:cut] + text[cut + dice.randrange(1, 4) :]
                continue
        text = "\n".join(lines)
    return text


def _directive(dice: random.Random, names: list[str]) -> tuple[str, frozenset[str]]:
    """A directive of nginx with arguments that may be right, and where it may stand."""
    name = dice.choice(names)
    row = dice.choice(rows_of(name))
    count = dice.choice([n for n in range(4) if row.takes(n)] or [1])
    if dice.random() < 0.1:
        count = dice.randrange(4)
    values = ["on", "off"] if row.arguments == "flag" else VALUES
    words = [name, *(dice.choice(values) for _ in range(count))]
    return " ".join(words) + (" { }" if row.is_block else ";"), row.contexts


def _opens(line: str) -> str:
    """The context that begins at the end of a line, roughly."""
    return line.split(maxsplit=1)[0] if line.rstrip().endswith("{") and line.strip() != "{" else ""


class Nginx:
    """``nginx -t`` over and over, inside one sandbox."""

    def __init__(self, directory: Path, program: str, version: tuple[int, ...]) -> None:
        log = "-e /dev/null " if version >= (1, 19, 5) else ""
        if not program.startswith("/usr/"):  # nobody may not look into root's cache
            shutil.copytree(Path(program).parent, directory / "nginx", symlinks=True)
            launcher = directory / "nginx/nginx"
            text = launcher.read_text().replace(str(Path(program).parent), str(directory / "nginx"))
            launcher.write_text(text)
            program = str(launcher)
        script = (
            "ip link set lo up 2>/dev/null; "
            "echo 0 > /proc/sys/net/ipv4/ip_unprivileged_port_start; "
            "echo 1 > /proc/sys/net/ipv4/ip_nonlocal_bind; "
            "for d in /var/log/nginx /var/lib/nginx /run; do "
            "mount -t tmpfs -o mode=0777 tmpfs $d; done; "
            f"cd {directory}; while read name; do "
            f"timeout 20 setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups "
            f'{program} -t {log}-c "{directory}/$name" >out 2>&1; echo $?; done'
        )
        self._directory = directory
        self._process = subprocess.Popen(
            ["unshare", "-m", "-n", "-p", "--fork", "--kill-child", "sh", "-c", script],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def judge(self, name: str) -> tuple[bool, str]:
        """Whether it is accepted, and nginx's words."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(name + "\n")
        self._process.stdin.flush()
        status = self._process.stdout.readline().strip()
        return status == "0", (self._directory / "out").read_text(errors="replace")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)
        assert self._process.stdout is not None
        self._process.stdout.close()


def run(count: int, seed: int, program: str = NGINX) -> tuple[Counter[str], list[str]]:
    """The tally, and the variants on which we were wrong."""
    dice, texts, names = random.Random(seed), seeds(), names_of(program)
    facts = _facts(program)
    version = tuple(map(int, (facts.nginx.version or "0").split(".")))
    tally: Counter[str] = Counter()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="nginx-tune-") as folder:
        directory = Path(folder)
        directory.chmod(0o777)
        path = directory / "nginx.conf"
        nginx = Nginx(directory, program, version)
        try:
            is_right = cache(partial(_is_right, nginx, path))
            for number in range(count):
                text = dice.choice(texts)
                while dice.random() < 0.9 and not is_right(text):
                    text = dice.choice(texts)
                text = damaged(dice, text, names).replace("CACHE/", f"{directory}/")
                path.write_bytes(text.encode("utf-8", "surrogateescape"))
                accepted, words = nginx.judge("nginx.conf")
                faults = _judge(path, facts, accepted=accepted, words=words, tally=tally)
                wrong += [f"seed {seed}, number {number}: {fault}\n{text}" for fault in faults]
        finally:
            nginx.close()
    return tally, wrong


def _is_right(nginx: Nginx, path: Path, text: str) -> bool:
    path.write_text(text.replace("CACHE/", f"{path.parent}/"), errors="surrogateescape")
    return nginx.judge(path.name)[0]


def _facts(program: str) -> Facts:
    said = subprocess.run([program, "-V"], capture_output=True, text=True, check=True).stderr
    flags = tuple(word for word in said.split() if word.startswith("--"))
    return linux(version=said.split("nginx/", 1)[1].split()[0], flags=flags)


def _judge(
    path: Path, facts: Facts, *, accepted: bool, words: str, tally: Counter[str]
) -> list[str]:
    began = time.monotonic()
    try:
        tree = read_tree(str(path), LiveHost())
        found = audit(tree, facts, (*ALL, *NOTICES))
        encode(found)
        blind = audit(tree, None, (*ALL, *NOTICES))
        encode(blind)
    except Exception as error:  # noqa: BLE001  # any at all is a fault of ours
        return [f"{type(error).__name__}: {error}"]
    faults = []
    if time.monotonic() - began > LIMIT_SECONDS:
        faults.append("too slow")
    refused = sorted({one.rule for one in found.findings if one.rule in REFUSES})
    tally["accepted" if accepted else "refused"] += 1
    if accepted:
        faults += [
            f"{one.rule} says so without knowing the version"
            for one in blind.findings
            if one.rule in REFUSES and one.rule not in refused
        ]
        # A word with a zero byte is refused here, whatever nginx makes of it (``parse_block``).
        why = [one.reason for one in tree.unparsed if "a zero byte" not in one.reason]
        if not tree.complete:
            faults += [f"not parsed: {reason}" for reason in why]
        faults += [f"{rule} says that nginx does not start" for rule in refused]
    else:
        kind = _kind(words)
        tally[f"refused, {kind}"] += 1
        if tree.unparsed or refused:
            tally[f"refused, {kind}, and we say why"] += 1
    return faults


def _kind(words: str) -> str:
    for kind, signs in {
        "unreadable": ("unexpected", "too long parameter", "unterminated"),
        "unknown directive": ("unknown directive",),
        "misplaced": ("is not allowed here",),
        "arguments": ("invalid number of arguments", "has no opening", "is not terminated"),
    }.items():
        if any(sign in words for sign in signs):
            return kind
    return "otherwise"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--series", help="of tools/nginx-matrix, such as 1.30")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("needs root for the sandbox")
    program = NGINX if options.series is None else find_nginx(options.series).program
    tally, wrong = run(options.count, options.seed, program)
    for text in wrong[:20]:
        sys.stdout.write(text + "\n" + "-" * 40 + "\n")
    sys.stdout.write(
        json.dumps({**dict(sorted(tally.items())), "wrong": len(wrong)}, indent=2) + "\n"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
