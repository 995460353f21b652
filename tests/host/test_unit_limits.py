"""The descriptor limits that nginx will start with, not those of whoever reads the facts."""

from typing import Literal

from machine import Machine
from msgspec.structs import replace
from rows import each_row

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import MissingFacts
from nginx_tune.audit.processes import KnownNumber, descriptor_limit
from nginx_tune.conf.tree import parse_text
from nginx_tune.documents.facts import Facts, Limits
from nginx_tune.host.kernel import BOOTED, of_nginx, read_limits

UNIT = "/usr/lib/systemd/system/nginx.service"
OWN = "/etc/systemd/system/nginx.service.d/a.conf"


def machine(files: dict[str, str], *, booted: bool = True) -> Machine:
    made = Machine()
    made.write("/proc/self/limits", "Max open files            20000                30000    files")
    made.directories.update([BOOTED] if booted else [])
    for path, text in files.items():
        made.write(path, text)
    return made


def limits_of(made: Machine) -> Limits:
    return of_nginx(made, read_limits(made)[0], is_running=False)


@each_row(
    ("files", "soft", "hard"),
    [
        ({UNIT: "[Service]\nType=forking\n"}, 1024, 524288),
        ({UNIT: "[Service]\nLimitNOFILE=4096\n"}, 4096, 4096),
        ({UNIT: "[Service]\nLimitNOFILE=2048:infinity\n"}, 2048, (1 << 63) - 1),
        ({UNIT: "[Service]\n# LimitNOFILE=5\n[Install]\nLimitNOFILE=6\n"}, 1024, 524288),
        ({UNIT: "[Service]\n", OWN: "[Service]\nLimitNOFILE = 8192\n"}, 8192, 8192),
        (
            {UNIT: "[Service]\nLimitNOFILE=7", "/etc/systemd/system/nginx.service": "[Service]"},
            1024,
            524288,
        ),
        (
            {UNIT: "[Service]", "/etc/systemd/system.conf": "[Manager]\nDefaultLimitNOFILE=3:9"},
            3,
            9,
        ),
        (
            {
                UNIT: "[Service]\nLimitNOFILE=7\n",
                OWN: "[Service]\nLimitNOFILE=\n",
                "/etc/systemd/system.conf.d/z.conf": "[Manager]\nDefaultLimitNOFILE=11:12",
            },
            11,
            12,
        ),
        (
            {
                UNIT: "[Service]\n",
                "/run/systemd/system/nginx.service.d/b.conf": "[Service]\nLimitNOFILE=2\n",
                "/etc/systemd/system/nginx.service.d/a.conf": "[Service]\nLimitNOFILE=1\n",
            },
            2,
            2,
        ),
        ({UNIT: "[Service]\nLimitNOFILE=many\n"}, 1024, 524288),
    ],
)
def test_the_unit_says_what_nginx_starts_with(files: dict[str, str], soft: int, hard: int) -> None:
    found = limits_of(machine(files))
    assert (found.nofile_soft, found.nofile_hard, found.nofile_of) == (soft, hard, "unit")


@each_row("booted", [True, False])
def test_without_a_unit_the_limits_are_the_readers(booted: bool) -> None:
    files = {} if booted else {UNIT: "[Service]\n"}
    found = limits_of(machine(files, booted=booted))
    assert (found.nofile_soft, found.nofile_of) == (20000, "reader")


@each_row("whose", ["reader", "unit", "nginx", None])
def test_the_readers_own_limit_answers_nothing(
    whose: Literal["nginx", "unit", "reader"] | None,
) -> None:
    limits = Limits(nofile_soft=20000, nofile_hard=30000)
    facts = replace(Facts(), limits=replace(limits, nofile_of=whose))
    context = Context(parse_text("events { }", file="/n.conf"), facts)
    found = descriptor_limit(context)
    assert isinstance(found, MissingFacts if whose == "reader" else KnownNumber)
