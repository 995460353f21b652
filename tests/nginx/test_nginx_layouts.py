"""nginx as others build it: below a prefix of its own, as OpenResty has it, as Angie has it.

The programs are real builds (tools/nginx-layouts), each put where it was built to be.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from needs import lacks
from twins import twin

ROOT = Path(__file__).resolve().parent.parent.parent
PLACE = """
set -e
parent=$1 prefix=$2 program=$3 conf=$4; shift 4
mount -t tmpfs -o mode=755 tmpfs /mnt
for place in "$parent" /var/log /var/cache; do
    upper=$(mktemp -d -p /mnt) work=$(mktemp -d -p /mnt)
    chmod 755 "$upper"
    mount -t overlay -o "lowerdir=$place,upperdir=$upper,workdir=$work" overlay "$place"
done
umask 022
mkdir -p "$prefix/sbin" "$prefix/conf" "$prefix/html" "$prefix/logs" /var/log/angie /var/cache/angie
cp "$program" "$prefix/sbin/nginx"
cp "$conf" "$prefix/conf/nginx.conf"
cp "$conf" "$prefix/angie.conf"
echo page > "$prefix/html/index.html"
exec "$@"
"""
CONF = """events { } http { server { listen 18086; location / { root html; }
    location = /memory { return 200 x; } location /up { proxy_pass http://up.internal; } } }
"""

pytestmark = pytest.mark.needs("root", "layouts", "probe")


def layouts() -> list[tuple[str, str, str]]:
    """Name, program and prefix of each that is here."""
    command = [ROOT / "tools" / "nginx-layouts", "--list"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return [(line.split("\t")[0], *line.split("\t")[1:3]) for line in said.splitlines()]  # type: ignore[misc]


@pytest.mark.parametrize("layout", ["plain", "openresty", "angie"])
def test_it_is_tested_and_validated_where_it_was_built_to_be(layout: str, tmp_path: Path) -> None:
    found = {name: (program, prefix) for name, program, prefix in layouts()}
    if layout not in found:
        lacks("layouts", f"no {layout} here (tools/nginx-layouts builds it)")
    program, prefix = found[layout]
    (tmp_path / "nginx.conf").write_text(CONF)
    binary = f"{prefix}/sbin/nginx"
    conf = f"{prefix}/angie.conf" if layout == "angie" else f"{prefix}/conf/nginx.conf"

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        """A command where the program is in its place."""
        place = [f"/{prefix.split('/')[1]}", prefix, program, str(tmp_path / "nginx.conf")]
        return subprocess.run(
            ["unshare", "-m", "sh", "-c", PLACE, "sh", *place, sys.executable, "-m", "nginx_tune",
             *words, "--nginx", binary, "-f", "json"],
            capture_output=True, text=True, check=False, timeout=170, cwd="/",
        )  # fmt: skip

    tested = run("audit", conf, "--test", "--facts", "none")
    answer = json.loads(tested.stdout)["nginx_test"]
    assert answer["accepted"], answer["messages"]
    compared = run(
        "-q", "validate", conf, "--against", twin(conf), "--pairs", "1", "--duration", "700ms",
        "--warmup", "100ms", "--accept-inconclusive",
    )  # fmt: skip
    assert compared.returncode in {0, 4}, compared.stderr
    environment = json.loads(compared.stdout)["environment"]
    assert environment["nginx_binary"] == binary
    covered = environment["differences"][0]
    assert ("/var/log/angie" if layout == "angie" else f"{prefix}/logs") in covered
    assert not Path(prefix, "sbin", "nginx").exists(), "the host is as it was"
