"""What inspect says of access logs: which of them are files that a buffer is right for."""

import os
from pathlib import Path

import msgspec
from situations import host, nginx

from nginx_tune.host.live import LiveHost
from nginx_tune.observe.inspect.live_facts import with_access_logs


def test_links_to_streams_and_pipes_are_no_files(tmp_path: Path) -> None:
    (tmp_path / "file.log").touch()
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "image.log").symlink_to("/dev/stdout")
    (tmp_path / "link.log").symlink_to("file.log")
    names = ["file.log", "pipe.log", "image.log", "link.log", "none.log"]
    lines = "".join(f"access_log logs/{one};" for one in names)
    (tmp_path / "logs").symlink_to(".")
    conf = tmp_path / "nginx.conf"
    conf.write_text(f"events {{}} http {{ {lines} access_log logs/$host.log; access_log off; }}")
    program = nginx("1.26.3", [f"--prefix={tmp_path}", "--http-log-path=image.log"])
    program = msgspec.structs.replace(program, conf_path=str(conf), prefix=str(tmp_path))
    found = with_access_logs(host(nginx=program), LiveHost()).access_logs
    assert {Path(one.path).name: one.is_file for one in found if "logs" in one.path} == {
        "file.log": True,
        "pipe.log": False,
        "image.log": False,
        "link.log": True,
        "none.log": True,
    }
    assert found[0].is_file is False, "the build's own"
