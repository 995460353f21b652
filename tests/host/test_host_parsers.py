"""Parsers: each with what a kernel prints and with what it never should."""

from collections.abc import Callable
from typing import Any

import pytest
from rows import each_row

from nginx_tune.documents.described_host import parse_speed
from nginx_tune.errors import UsageError
from nginx_tune.host import parse_nginx, parse_proc, parse_storage
from nginx_tune.host.door import Missing

MEMINFO = "MemTotal:       24684084 kB\nMemFree:          1000 kB\nHugePages_Total:       3\n"


@each_row(
    ("parse", "text", "expected"),
    [
        (parse_proc.parse_integer, "256\n", 256),
        (parse_proc.parse_integer, "-1\n", -1),
        (parse_proc.parse_id_list, "0-3,8,10-11\n", {0, 1, 2, 3, 8, 10, 11}),
        (parse_proc.parse_id_list, "\n", set()),
        (parse_proc.parse_choice, "none [mq-deadline] kyber bfq\n", "mq-deadline"),
        (parse_proc.parse_choice, "none\n", "none"),
        (parse_proc.parse_release, "6.12.48+deb13-amd64", (6, 12)),
        (parse_proc.parse_release, "unknown", (0, 0)),
        (
            parse_proc.parse_meminfo,
            MEMINFO,
            {"MemTotal": 24684084 << 10, "MemFree": 1000 << 10, "HugePages_Total": 3},
        ),
        (parse_proc.parse_memory_limit, "max\n", None),
        (parse_proc.parse_memory_limit, "9223372036854771712\n", None),
        (parse_proc.parse_memory_limit, "9223372036854710272\n", None),
        (parse_proc.parse_memory_limit, "-1\n", None),
        (parse_proc.parse_memory_limit, "201326592\n", 201326592),
        (parse_proc.parse_cpu_max, "150000 100000\n", 1.5),
        (parse_proc.parse_cpu_max, "max 100000\n", None),
        (
            parse_proc.parse_cmdline,
            b"nginx: master process nginx\0",
            ["nginx: master process nginx"],
        ),
        (parse_proc.parse_cmdline, b"nginx\0-c\0/a b\0", ["nginx", "-c", "/a b"]),
        (parse_proc.parse_cmdline, b"", []),
        (parse_proc.parse_parent_pid, "7 (a) b) S 12 7 7 0", 12),
        (parse_speed, "10G", 10**10),
        (parse_speed, "2.5Gbit/s", 2_500_000_000),
        (parse_speed, "100 Mbit/s", 10**8),
        (parse_speed, "1000000", 10**6),
    ],
)
def test_good_input(parse: Callable[[Any], Any], text: Any, expected: Any) -> None:
    assert parse(text) == expected


@each_row(
    ("parse", "text"),
    [
        (parse_proc.parse_integer, ""),
        (parse_proc.parse_integer, "1_000"),
        (parse_proc.parse_integer, "9" * 5000),
        (parse_proc.parse_id_list, "0-3;8"),
        (parse_proc.parse_id_list, "0-99999999999999"),
        (parse_proc.parse_choice, "none mq-deadline"),
        (parse_proc.parse_memory_limit, "lots"),
        (parse_proc.parse_cpu_max, "100000"),
        (parse_proc.parse_cpu_max, "100000 0"),
        (parse_proc.parse_parent_pid, "7 (nginx"),
        (parse_proc.parse_open_files, "Max open files            many"),
        (parse_proc.parse_open_files, ""),
        (parse_nginx.parse_build, "ls: invalid option -- 'V'"),
    ],
)
def test_bad_input_is_missing_with_a_reason(parse: Callable[[str], Any], text: str) -> None:
    found = parse(text)
    assert isinstance(found, Missing)
    assert found.reason


@each_row("text", ["", "fast", "-1G", "0", "10X", "1e9"])
def test_a_speed_that_is_none_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        parse_speed(text)


def test_available_memory_of_an_old_kernel() -> None:
    assert parse_proc.available_memory_bytes({"MemFree": 10, "Buffers": 1, "Cached": 5}) == 16
    assert isinstance(parse_proc.available_memory_bytes({}), Missing)


def test_a_hybrid_host_has_a_version_per_controller() -> None:
    memberships = parse_proc.parse_membership(
        "4:memory:/box\n1:name=systemd:/init\n0::/unified\ngarbage\n7:pids\n"
    )
    memory = parse_proc.membership_for(memberships, "memory")
    assert memory == (1, {"memory"}, "/box")
    cpu = parse_proc.membership_for(memberships, "cpu")
    assert not isinstance(cpu, Missing)
    assert (cpu.version, cpu.path) == (2, "/unified")
    assert isinstance(parse_proc.membership_for([], "cpu"), Missing)


def test_what_no_file_data_can_displace() -> None:
    v1 = {"total_rss": 100, "total_shmem": 5, "total_cache": 1000}
    v2 = {"anon": 100, "shmem": 5, "kernel": 30, "slab_reclaimable": 20, "file": 1000}
    assert parse_proc.unreclaimable_bytes(v1, 1) == 105
    assert parse_proc.unreclaimable_bytes(v2, 2) == 115
    assert isinstance(parse_proc.unreclaimable_bytes(v2, 1), Missing)


MOUNTS = r"""
1 1 0:2 / / rw - rootfs rootfs rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
28 27 8:1 / /srv rw - ext4 /dev/sda1 rw
29 28 8:2 / /srv/a\040b rw master:3 propagate_from:2 - xfs /dev/sdb1 rw
30 27 8:3 / /data/deep rw - ext4 /dev/sdc1 rw
31 27 8:4 / /data rw - ext4 /dev/sdd1 rw
32 27 8:5 / /twice rw - ext4 /dev/sde1 rw
33 32 8:6 / /twice rw - ext4 /dev/sdf1 rw
"""


@each_row(
    ("path", "source"),
    [
        ("/etc", "/dev/vda"),
        ("/srv/x", "/dev/sda1"),
        ("/srvx", "/dev/vda"),
        ("/srv/a b/c", "/dev/sdb1"),
        ("/data/deep/x", "/dev/sdd1"),  # hidden: /data was mounted over it
        ("/twice/x", "/dev/sdf1"),
    ],
)
def test_the_mount_of_a_path(path: str, source: str) -> None:
    mount = parse_storage.mount_of(parse_storage.parse_mountinfo(MOUNTS), path)
    assert mount is not None
    assert mount.source == source


def test_the_mount_of_a_path_without_a_root() -> None:
    mounts = parse_storage.parse_mountinfo(MOUNTS)[2:4]
    mount = parse_storage.mount_of(mounts, "/srv/a b/c")
    assert mount is not None
    assert mount.source == "/dev/sdb1"
    assert parse_storage.mount_of(mounts, "/etc") is None


def test_overlay_options_with_commas_and_blanks() -> None:
    line = r"9 1 0:9 / /m rw - overlay overlay rw,lowerdir=/a\040b:/c,upperdir=/d\134\054e,x"
    (mount,) = parse_storage.parse_mountinfo(line)
    assert mount.options["lowerdir"] == "/a b:/c"
    assert "x" in mount.options


BUILDS = {
    "nginx version: nginx/1.22.1\nconfigure arguments: --with-threads": (
        "nginx",
        "1.22.1",
        "1.22.1",
    ),
    "nginx version: nginx/1.18.0 (Ubuntu)\n": ("nginx", "1.18.0", "1.18.0"),
    "nginx version: nginx/1.25.3 (nginx-plus-r31-p1)\n": ("nginx-plus", "r31-p1", "1.25.3"),
    "nginx version: openresty/1.21.4.1\n": ("openresty", "1.21.4.1", "1.21.4"),
    "Angie version: Angie/1.7.0\nnginx version: nginx/1.27.1\n": ("angie", "1.7.0", "1.27.1"),
    "Tengine version: Tengine/3.1.0\nnginx version: nginx/1.24.0\n": ("tengine", "3.1.0", "1.24.0"),
    "nginx version: freenginx/1.29.7\n": ("freenginx", "1.29.7", "1.25.4"),
    "nginx version: freenginx/1.25.3\n": ("freenginx", "1.25.3", "1.25.3"),
}


@each_row(("text", "expected"), BUILDS.items())
def test_products_and_versions(text: str, expected: tuple[str, str, str]) -> None:
    build = parse_nginx.parse_build(text)
    assert not isinstance(build, Missing)
    assert (build.product, build.version, build.nginx_version) == expected


def test_angie_that_does_not_name_its_nginx() -> None:
    build = parse_nginx.parse_build("Angie version: Angie/1.0.0\n")
    assert not isinstance(build, Missing)
    assert isinstance(build.nginx_version, Missing)


def test_flags_and_paths_of_a_build() -> None:
    build = parse_nginx.parse_build(
        "nginx version: nginx/1.26.0\nconfigure arguments: --with-cc-opt='-O2 -g --fake' "
        "--prefix=/opt/nginx --error-log-path=stderr --pid-path='/run/n x.pid' --with-threads "
        "--add-module=/src/brotli\n"
    )
    assert not isinstance(build, Missing)
    assert build.flags == [
        "--with-cc-opt",
        "--prefix=/opt/nginx",
        "--error-log-path=stderr",
        "--pid-path=/run/n x.pid",
        "--with-threads",
        "--add-module=/src/brotli",
    ]
    assert build.conf_path == "/opt/nginx/conf/nginx.conf"
    assert build.error_log_path == "stderr"
    assert build.pid_path == "/run/n x.pid"


@each_row(
    ("arguments", "role"),
    [
        (["nginx: master process /usr/sbin/nginx -c /a"], "master"),
        (["angie: master process angie"], "master"),
        (["nginx: worker process"], "worker"),
        (["nginx: worker process is shutting down"], "leaving"),
        (["angie: worker process #12"], "worker"),
        (["angie: worker process is shutting down #11"], "leaving"),
        (["nginx: cache manager process"], "other"),
        (["nginx", "-g", "daemon off; master_process off;"], "single"),
        (["nginx", "-t"], "other"),
        (["/usr/sbin/nginx", "-s", "reload"], "other"),
        ([], "other"),
    ],
)
def test_process_titles(arguments: list[str], role: str) -> None:
    assert parse_nginx.parse_title(arguments).role == role


def test_start_options() -> None:
    title = parse_nginx.parse_title(["nginx: master process nginx -p/srv -g daemon off; -c a.conf"])
    assert parse_nginx.parse_start_options(title.arguments) == ("a.conf", "/srv")
