"""What decisions ask of the host: files of their own, each with its way back."""

import configparser

import msgspec
import pytest
from made_decisions import decide
from rows import each_row
from situations import FLAGS, host, load, nginx, site

from nginx_tune.change.generate.plan_files import (
    SYSCTL_PATH,
    UDEV_PATH,
    UNIT_PATH,
    checked_host_parts,
    host_parts,
)
from nginx_tune.documents.decisions import Decision, HostSetting
from nginx_tune.documents.facts import Facts, Kernel, Nginx, Running
from nginx_tune.documents.plan import Plan
from nginx_tune.documents.site import SiteTls, Upstream
from nginx_tune.errors import UsageError
from nginx_tune.report.plan import render_host_part, render_plan_diff, render_plan_markdown


def asked(name: str, value: int, *, before: str = "128", decision: str = "backlog") -> HostSetting:
    kind = "unit" if name == "LimitNOFILE" else "sysctl"
    return HostSetting(
        kind=kind, name=name, value=str(value), before=before, reason="why", decision=decision
    )  # fmt: skip


def decision(*settings: HostSetting) -> Decision:
    return Decision(id="backlog", verdict="raise", summary="s", host_settings=list(settings))


def busy(somaxconn: int, *, nofile_hard: int = 1 << 20) -> Facts:
    facts = host(cpus=4)
    return msgspec.structs.replace(
        facts,
        network=msgspec.structs.replace(facts.network, somaxconn=somaxconn),
        limits=msgspec.structs.replace(
            facts.limits, nofile_soft=1024, nofile_hard=nofile_hard, can_raise=False
        ),
    )


def parts_of(facts: Facts) -> dict[str, dict[str, str]]:
    decisions = decide(facts, load(rate=5000.0), site=site())
    return {
        part.kind: {one.name: one.value for one in part.settings}
        for part in host_parts(decisions.decisions, facts)
    }


def test_a_queue_that_the_kernel_cuts_asks_for_somaxconn() -> None:
    assert int(parts_of(busy(128))["sysctl"]["net.core.somaxconn"]) > 511


def test_nothing_is_asked_where_the_host_has_it() -> None:
    first = parts_of(busy(128, nofile_hard=2048))
    assert first["unit"] == {"LimitNOFILE": "65536"}
    wanted = int(first["sysctl"]["net.core.somaxconn"])
    assert parts_of(busy(wanted, nofile_hard=65536)) == {}


def test_one_line_a_name_and_the_highest_serves_all() -> None:
    name = "net.core.somaxconn"
    [part] = host_parts([decision(asked(name, 4096)), decision(asked(name, 1024))], Facts())
    lines = [line for line in part.content.splitlines() if not line.startswith("#")]
    assert lines == [f"{name} = 4096"]
    assert part.commands == [f"sudo sysctl -p {SYSCTL_PATH}"]
    assert part.undo == [f"sudo rm {SYSCTL_PATH}", f"sudo sysctl -w {name}=128"]


def test_the_unit_has_a_drop_in_of_its_own() -> None:
    parts = host_parts([decision(asked("fs.nr_open", 65536), asked("LimitNOFILE", 65536))], Facts())
    assert [part.path for part in parts] == [SYSCTL_PATH, UNIT_PATH]
    read = configparser.ConfigParser()
    read.read_string(parts[1].content)
    assert dict(read["Service"]) == {"limitnofile": "65536"}
    assert "\nLimitNOFILE=65536\n" in parts[1].content


@each_row("before", ["", "128"])
def test_every_face_of_a_plan_shows_them_apart_from_the_change(before: str) -> None:
    parts = host_parts([decision(asked("net.core.somaxconn", 4096, before=before))], Facts())
    plan = Plan(conf_path="/etc/nginx/nginx.conf", host=parts)
    diff = render_plan_diff(plan, {}).decode()
    assert all(line.startswith("#") for line in diff.splitlines() if line), "patch passes over it"
    assert f"net.core.somaxconn {before or 'not known'} → 4096" in diff
    assert parts[0].content in render_plan_markdown(plan, {})
    assert render_host_part(plan, "sysctl").decode() == parts[0].content
    assert render_host_part(plan, "unit") == b""
    assert ("sysctl -w" in diff) == bool(before), "what is not known cannot be put back"
    assert ("restart the host" in diff) != bool(before)


@each_row(
    "facts",
    [
        Facts(nginx=Nginx(running=Running(pid=7, other_mount_namespace=True))),
        Facts(nginx=Nginx(running=Running(pid=7, other_network_namespace=True))),
        Facts(kernel=Kernel(system="FreeBSD")),
    ],
)
def test_files_of_the_host_say_nothing_about_a_container(facts: Facts) -> None:
    assert host_parts([decision(asked("net.core.somaxconn", 4096))], facts) == []


def windows(*names: str) -> list[HostSetting]:
    return [
        HostSetting(
            kind="udev", name=name, value="1024", before="128", reason="why", decision="read-ahead"
        )
        for name in names
    ]


def test_the_disks_read_on_after_a_boot_too_and_the_way_back_is_there() -> None:
    """Source: udev(7), sysfs-block: queue/read_ahead_kb."""
    (part,) = host_parts([decision(*windows("sda", "sdb"))], Facts())
    assert (part.kind, part.path) == ("udev", UDEV_PATH)
    lines = [line for line in part.content.splitlines() if not line.startswith("#")]
    assert lines == [
        f'ACTION=="add|change", SUBSYSTEM=="block", KERNEL=="{name}", '
        'ATTR{queue/read_ahead_kb}="1024"'
        for name in ("sda", "sdb")
    ]
    assert part.undo[-1] == "sudo blockdev --setra 256 /dev/sda /dev/sdb"
    assert part.undo[0] == f"sudo rm {UDEV_PATH}"
    assert all(line in part.content for line in (*part.commands, *part.undo))
    assert checked_host_parts([part]) == [part]


def test_what_decisions_ask_of_a_host_is_taken_from_their_plan() -> None:
    """Buffers of UDP, of which one is not known, and a range of ports beside numbers."""
    ports, buffers = "net.ipv4.ip_local_port_range", "net.core.rmem_default"
    facts = host(
        nginx=nginx("1.30.6", [*FLAGS, "--with-http_v3_module", "--with-http_v2_module"]),
        kernel=Kernel(system="Linux", release="6.1.0", sysctls={ports: "32768\t60999"}),
    )
    given = site(
        http3=True,
        tls=SiteTls(certificate="/c.pem", certificate_key="/k.pem"),
        upstreams=[Upstream(name="app", servers=["10.0.0.1:80"])],
    )
    parts = host_parts(decide(facts, load("proxy", peak=40_000), site=given).decisions, facts)
    assert {ports, buffers} <= {one.name for part in parts for one in part.settings}
    assert checked_host_parts(parts) == parts
    undo = [line for part in parts for line in part.undo]
    assert f"sudo sysctl -w '{ports}=32768 60999'" in undo


@each_row(
    "setting", [*windows("sda; reboot", "../sda", "sd\na", '"', ""), asked("kernel.sysrq", 1)]
)
def test_a_plan_of_a_stranger_names_no_other_device_or_setting(setting: HostSetting) -> None:
    (part,) = host_parts([decision(*windows("sda"))], Facts())
    hostile = msgspec.structs.replace(part, settings=[setting])
    with pytest.raises(UsageError, match="not one that nginx-tune makes"):
        checked_host_parts([hostile])
