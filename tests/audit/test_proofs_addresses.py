"""Which server an address leads to: localhost as two servers, ip_hash behind one proxy."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from nginx_versions import Nginx, every_version
from origin import run_origin
from proving import fires
from rows import each_row
from scratch_nginx import Server, write_conf
from test_proofs_mistakes import CONF, ask

pytestmark = pytest.mark.needs("nginx", "root")

Serve = Callable[[str], Server]

BELIEVED = "proxy_set_header X-Forwarded-Proto $http_x_forwarded_proto;"
OWN_ADDRESSES = "set_real_ip_from 127.0.0.1; real_ip_header X-Forwarded-For;"
PEERS = 4


@every_version
@each_row("lines", ["", OWN_ADDRESSES])
def test_up_ip_hash_one_proxy_sends_all_to_one(serve: Serve, nginx: Nginx, lines: str) -> None:
    with ExitStack() as stack:
        origins = [stack.enter_context(run_origin()) for _ in range(PEERS)]
        servers = " ".join(f"server 127.0.0.1:{origin.port};" for origin in origins)
        server = serve(
            CONF % (f"upstream u {{ ip_hash; {servers} }}",
                    f"{lines} location / {{ proxy_pass http://u; {BELIEVED} }}")
        )  # fmt: skip
        for client in range(40):
            assert ask(server, "/", f"X-Forwarded-For: 10.{client}.7.1")[0] == 200
    used = sum(bool(origin.requests) for origin in origins)
    assert used == (PEERS if lines else 1)
    assert fires("up-ip-hash-one-proxy", server.conf) is not bool(lines)


ASK = """
import sys, time, urllib.request
for _ in range(100):
    try:
        urllib.request.urlopen("http://127.0.0.1:8080/").read()
    except OSError:
        time.sleep(0.05)
    else:
        break
for _ in range(6):
    urllib.request.urlopen("http://127.0.0.1:8080/").read()
"""
INSIDE = """
# getaddrinfo leaves out the family that no interface has (AI_ADDRCONFIG).
mount --bind "$1/hosts" /etc/hosts && ip link set lo up || exit 77
ip addr add fd00:7::1/128 dev lo && ip addr add 10.77.0.1/32 dev lo || exit 77
"$2" -p "$1" -c "$1/nginx.conf" & nginx=$!
"$3" -c "$4"; said=$?
kill "$nginx"; wait "$nginx"; exit "$said"
"""


@every_version
@pytest.mark.needs("ip")
@each_row("name", ["localhost", "127.0.0.1"])
def test_up_localhost_two_addresses_asks_both(tmp_path: Path, nginx: Nginx, name: str) -> None:
    conf = write_conf(
        tmp_path,
        CONF.replace("127.0.0.1:PORT", "127.0.0.1:8080")
        % ("", (f"location / {{ proxy_pass http://{name}:8081; }} }} "
           "server { listen 127.0.0.1:8081; return 200 a;")),
    )  # fmt: skip
    (tmp_path / "hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
    unshare = shutil.which("unshare")
    assert unshare is not None
    command = [unshare, "-n", "-m", "--propagation", "private", "sh", "-c", INSIDE, "sh", tmp_path,
               nginx.program, sys.executable, ASK]  # fmt: skip
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == 0, run.stderr
    log = (tmp_path / "error.log").read_text()
    assert ("http://[::1]:8081" in log) is (name == "localhost")
    assert fires("up-localhost-two-addresses", conf) is (name == "localhost")
