"""``nginx -t`` in the sandbox: what it is given before it asks."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

TRY = """
import json, sys
from pathlib import Path
import msgspec
from nginx_tune.conf.tree import read_tree
from nginx_tune.host.live import LiveHost
from nginx_tune.nginx.lab.enclosure import Enclosure
from nginx_tune.nginx.lab.enclosure import raise_loopback
from nginx_tune.experiment import trial
from nginx_tune.experiment.operations import TrialRequest
from nginx_tune.experiment.view import plan_view
from nginx_tune.nginx.subject import ConfigurationFiles
from nginx_tune.nginx.binary import read_nginx

conf, state = sys.argv[1:]
host = LiveHost()
nginx, _ = read_nginx(host, binary="/usr/sbin/nginx")
tree = read_tree(conf, ConfigurationFiles(host), prefix=nginx.prefix)
view = plan_view([tree], nginx.flags, None, directory="/")
enclosure = Enclosure()
raise_loopback()
enclosure.begin(Path(state))
enclosure.look(view)
runs = []
run = trial._run
def counted(*arguments):
    runs.append(run(*arguments))
    return runs[-1]
trial._run = counted
argv = ["/usr/sbin/nginx", "-t", "-c", conf]
request = TrialRequest(argv=argv, files={}, view=view, join_files=[])
found = msgspec.to_builtins(trial.try_inside(request, Path(state), enclosure))
print(json.dumps({**found, "runs": [" ".join(one.messages) for one in runs]}))
"""
CONF = """
pid {0}/pids/nginx.pid;
error_log {0}/logs/error.log;
events {{}}
http {{
    client_body_temp_path {0}/temp/body;
    proxy_cache_path {0}/temp/cache keys_zone=small:1m;
    access_log {0}/logs/access.log;
    server {{
        listen 127.0.0.1:18096;
        access_log {0}/logs/site/deep/access.log;
        access_log {0}/pages/access.log;
        root {0}/pages;
    }}
}}
"""


def attempt(place: Path, text: str) -> dict[str, object]:
    (place / "state").mkdir()
    (place / "conf").mkdir()
    conf = place / "conf" / "nginx.conf"
    conf.write_text(text)
    sandbox = ["unshare", "--mount", "--net", "--ipc", "--pid", "--fork", "--mount-proc"]
    inner = [sys.executable, "-c", textwrap.dedent(TRY), conf, place / "state"]
    said = subprocess.run(
        [*sandbox, *inner], capture_output=True, text=True, check=False, timeout=60
    )
    assert said.returncode == 0, said.stderr
    found: dict[str, object] = json.loads(said.stdout)
    return found


@pytest.mark.needs("root", "nginx")
def test_what_nginx_writes_to_is_there_before_it_asks(tmp_path: Path) -> None:
    for name in ("pids", "logs/site/deep", "temp", "pages"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "logs" / "error.log").write_text("whole")
    found = attempt(tmp_path, CONF.format(tmp_path))
    assert found["status"] == 0, found["messages"]
    runs = found["runs"]
    assert isinstance(runs, list)
    # Beside what it serves it has to ask: to read it, then to write there.
    assert [f"{tmp_path}/pages/access.log" in said for said in runs] == [True, False], runs
    assert (tmp_path / "logs" / "error.log").read_text() == "whole"
    assert not (tmp_path / "pages" / "access.log").exists()


@pytest.mark.needs("root", "nginx")
def test_a_log_directory_that_is_not_there_is_not_made_up(tmp_path: Path) -> None:
    for name in ("pids", "logs", "temp", "pages"):
        (tmp_path / name).mkdir()
    found = attempt(tmp_path, CONF.format(tmp_path))
    assert found["status"] == 1
    assert "logs/site/deep/access.log" in str(found["messages"])
