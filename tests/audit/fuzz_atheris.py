"""Run in an environment with atheris (pip install atheris -e .): python tests/audit/fuzz_atheris.py

Bytes that atheris (coverage-guided, libFuzzer) makes of the rules' examples and the tests'
configurations, read and audited: whatever stands in them, no exception comes out, every byte
comes back and the findings can be written. Python 3.11 or older. The corpus is kept in the
directory that the first argument without a dash names, else in a temporary one; the options are
libFuzzer's: -max_total_time=120 -timeout=10 -rss_limit_mb=2048.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["nginx_tune.conf", "nginx_tune.audit"]):
    from nginx_tune.audit.engine import audit
    from nginx_tune.audit.registry import ALL
    from nginx_tune.audit.rule import linux
    from nginx_tune.audit.suppression import NOTICES
    from nginx_tune.conf.tree import parse_text

from nginx_tune.documents.base import decode, encode
from nginx_tune.documents.findings import Findings

CONF = Path(__file__).parent.parent / "conf"
RULES = (*ALL, *NOTICES)
HOSTS = (
    None,
    linux(version="1.18.0", datasets={"/srv/media": (256, 0.1)}, disks={"/d": ("sda", "hdd")}),
    linux(version="1.30.6", cpus=64, cache_gib=200),
)
WORDS = (
    "default", "include", "server", "location", "upstream", "map", "split_clients", "aio",
    "threads=", "$disk", "${", "_by_lua_block {", "# nginx-tune: ignore[", "until=2026-01-01",
    "keys_zone=", "max_size=", "listen [::]:443", "proxy_set_header", "99999999999999999999",
)  # fmt: skip


def try_one(data: bytes) -> None:
    """Audit a text, on a host that its first byte chooses."""
    text = data[1:].decode("utf-8", "surrogateescape")
    tree = parse_text(text)
    for file in tree.parsed:
        assert file.source.data == data[1:], "every byte comes back"
    found = audit(tree, HOSTS[data[0] % len(HOSTS) if data else 0], RULES, today="2026-11-20")
    assert decode(Findings, encode(found)) == found


def main(arguments: list[str]) -> None:
    """Fuzz until an option of libFuzzer says enough."""
    named = [one for one in arguments[1:] if not one.startswith("-")]
    directory = Path(named[0] if named else tempfile.mkdtemp(prefix="nginx-tune-fuzz-"))
    directory.mkdir(parents=True, exist_ok=True)
    seeds = [rule.bad.conf.encode() for rule in ALL]
    seeds += [path.read_bytes() for path in sorted(CONF.glob("*/*.conf"))]
    for number, seed in enumerate(seeds):
        for host in range(len(HOSTS)):
            (directory / f"seed-{number}-{host}").write_bytes(bytes([host]) + seed)
    words = directory.with_name(directory.name + ".words")
    words.write_text("".join(f'"{word}"\n' for word in WORDS))
    options = [one for one in arguments[1:] if one.startswith("-")]
    atheris.Setup([arguments[0], f"-dict={words}", *options, str(directory)], try_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
