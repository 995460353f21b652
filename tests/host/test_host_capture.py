"""Recording and replaying this machine; taking secrets out."""

import os
from typing import Any

import pytest
from rows import each_row

from nginx_tune.documents.base import encode
from nginx_tune.documents.inspection import Answer, Capture, Request
from nginx_tune.host.door import MOST_BYTES, HostReadError
from nginx_tune.host.live import LiveHost
from nginx_tune.host.recording import RecordedHost, RecordingHost, redact
from nginx_tune.observe.inspect.inspection import record_host, replay


def test_every_kind_of_answer_is_replayed(tmp_path: Any) -> None:
    (tmp_path / "text").write_text("some text\n")
    (tmp_path / "bytes").write_bytes(b"\x00\xff\xfe")
    (tmp_path / "link").symlink_to("text")
    questions = [
        lambda host: host.read_text(f"{tmp_path}/text"),
        lambda host: host.read_bytes(f"{tmp_path}/bytes"),
        lambda host: host.list_dir(str(tmp_path)),
        lambda host: host.read_link(f"{tmp_path}/link"),
        lambda host: host.real_path(f"{tmp_path}/link"),
        lambda host: host.device_of(str(tmp_path)),
        lambda host: host.filesystem_magic(str(tmp_path)),
        lambda host: host.run(["sh", "-c", "echo out; echo err >&2; exit 3"]),
        lambda host: host.find_program("sh"),
        lambda host: host.processes("no-such-process"),
        lambda host: host.links(),
        lambda host: host.scan_dataset(str(tmp_path), budget_seconds=5),
    ]
    recording = RecordingHost(LiveHost())
    live = [ask(recording) for ask in questions]
    replayed = RecordedHost(recording.answers)
    assert [ask(replayed) for ask in questions] == live


def test_an_error_is_recorded_with_its_reason() -> None:
    recording = RecordingHost(LiveHost())
    with pytest.raises(HostReadError, match="No such file"):
        recording.read_text("/no/such/file")
    with pytest.raises(HostReadError, match="No such file"):
        RecordedHost(recording.answers).read_text("/no/such/file")


def test_what_was_not_recorded_cannot_be_read() -> None:
    with pytest.raises(HostReadError, match="not in the capture"):
        RecordedHost({}).read_text("/proc/meminfo")


def test_a_replay_gives_the_facts_of_the_run(tmp_path: Any) -> None:
    (tmp_path / "a").write_bytes(b"x" * 5000)
    request = Request(paths=["/"], datasets=[str(tmp_path)])
    capture = record_host(LiveHost(), request)
    assert capture.answers["read /proc/meminfo"].value
    assert encode(replay(capture)) == encode(replay(capture))
    assert replay(capture).datasets[0].files == 1


def test_a_tree_whose_name_is_no_utf8(tmp_path: Any) -> None:
    tree = tmp_path / os.fsdecode(b"caf\xe9")
    tree.mkdir()
    (tree / os.fsdecode(b"\xff")).write_bytes(b"x")
    capture = record_host(LiveHost(), Request(datasets=[str(tree)]))
    (dataset,) = replay(capture).datasets
    assert dataset.files == 1
    assert dataset.path.endswith("/caf\\xe9")
    assert encode(capture)


SECRETS: list[tuple[str, Any, Any]] = [
    (
        "read /proc/7/cmdline",
        "nginx: master process nginx -c /etc/n.conf -p /srv -g env KEY=s3cret; daemon off;\0",
        "nginx: master process nginx -c /etc/n.conf -p /srv -g redacted\0",
    ),
    (
        "read /proc/7/cmdline",
        "nginx\0-g\0env KEY=s3cret;\0-c\0/etc/n.conf\0",
        "nginx\0-g\0redacted\0-c\0/etc/n.conf\0",
    ),
    ("read /proc/7/cmdline", "nginx: worker process\0", "nginx: worker process\0"),
    (
        "read /etc/systemd/system/nginx.service.d/a.conf",
        "[Service]\nEnvironment=TOKEN=hunter2\nLimitNOFILE=1:2\nExecStart=x -k y\n",
        "[Service]\nLimitNOFILE=1:2\n",
    ),
    ("read /sys/block/vda/serial", "S3Z8NB0K\n", "redacted\n"),
    ("read /sys/devices/x/block/dm-0/dm/uuid", "LVM-wGt0Q8cV0G\n", "LVM-redacted\n"),
    (
        "read /proc/self/mountinfo",
        "42 28 0:51 / /m rw - nfs4 10.20.0.7:/export rw,addr=10.20.0.7,clientaddr=10.20.0.9\n",
        "42 28 0:51 / /m rw - nfs4 address-1:/export rw,addr=address-1,clientaddr=address-2\n",
    ),
    (
        "read /proc/self/mountinfo",
        "42 28 0:51 / /m rw - cifs //192.168.1.5/share rw,addr=fe80::1\n",
        "42 28 0:51 / /m rw - cifs //address-1/share rw,addr=address-2\n",
    ),
    (
        "read /proc/self/mountinfo",
        "43 28 8:1 / /d rw - ext4 /dev/disk/by-id/ata-WDC_WD40EFRX_WD-WCC7K0 rw\n",
        "43 28 8:1 / /d rw - ext4 /dev/disk/by-id/disk-1 rw\n",
    ),
    (
        "read /proc/self/mountinfo",
        "43 28 253:0 / /d rw - xfs /dev/mapper/3600508b400105e210000900000490000 rw\n",
        "43 28 253:0 / /d rw - xfs /dev/mapper/wwn-1 rw\n",
    ),
    ("links", [{"name": "enx001122aabbcc"}], [{"name": "enxmac-1"}]),
    (
        "read /proc/self/cgroup",
        "0::/kubepods/pod6f1c2b7a-93d4-4f0e-8c11-2a9b7c5d3e10/x\n",
        "0::/kubepods/poduuid-1/x\n",
    ),
    (
        "read /proc/self/cgroup",
        "0::/kubepods-pod6f1c2b7a_93d4_4f0e_8c11_2a9b7c5d3e10.slice\n",
        "0::/kubepods-poduuid-1.slice\n",
    ),
    ("read /x", "link/ether 00:11:22:aa:bb:cc\n", "link/ether mac-1\n"),
    # What only looks like a secret stays.
    ("read /proc/self/cgroup", "1:name=systemd:/a\n0::/\n", "1:name=systemd:/a\n0::/\n"),
    (
        "run nginx -V",
        {"stderr": "nginx version: openresty/1.21.4.1\n"},
        {"stderr": "nginx version: openresty/1.21.4.1\n"},
    ),
    (
        "real /sys/dev/block/254:0",
        "/sys/devices/pci0000:00/0000:00:02.0/virtio1/block/vda",
        "/sys/devices/pci0000:00/0000:00:02.0/virtio1/block/vda",
    ),
]  # fmt: skip


@each_row(("question", "value", "expected"), SECRETS)
def test_secrets_are_taken_out(question: str, value: Any, expected: Any) -> None:
    capture = Capture(answers={question: Answer(value=value)})
    redacted = redact(capture)
    (answer,) = redacted.answers.values()
    assert answer.value == expected
    assert redact(redacted) == redacted, "redacting twice changes nothing more"


def test_a_secret_is_the_same_word_everywhere() -> None:
    uuid = "6f1c2b7a-93d4-4f0e-8c11-2a9b7c5d3e10"
    redacted = redact(
        Capture(
            answers={
                "list /sys/fs/btrfs": Answer(value=["features", uuid]),
                f"list /sys/fs/btrfs/{uuid}/devices": Answer(value=["sda"]),
                f"real /sys/fs/btrfs/{uuid}/devices/sda": Answer(error=f"{uuid}: gone"),
            },
            request=Request(paths=[f"/mnt/{uuid}"]),
        )
    )
    assert redacted.answers["list /sys/fs/btrfs/uuid-1/devices"].value == ["sda"]
    assert redacted.answers["list /sys/fs/btrfs"].value == ["features", "uuid-1"]
    assert redacted.request.paths == ["/mnt/uuid-1"]
    assert uuid.encode() not in encode(redacted)


def test_a_command_line_that_is_no_utf8_keeps_no_secret() -> None:
    data = b"nginx: master process nginx -g env KEY=s3cret\xff;\0"
    recording = RecordingHost(_Says(data))
    recording.read_bytes("/proc/7/cmdline")
    redacted = redact(Capture(answers=recording.answers))
    assert RecordedHost(redacted.answers).read_bytes("/proc/7/cmdline") == (
        b"nginx: master process nginx -g redacted\0"
    )


class _Says(LiveHost):
    def __init__(self, data: bytes) -> None:
        self._data = data

    def read_bytes(self, path: str, *, limit_bytes: int = MOST_BYTES) -> bytes:
        return self._data
