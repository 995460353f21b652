"""What is said to do next can be done: the command exists and takes those words."""

import shlex
from importlib import import_module

import click
import pytest
from rows import each_row
from test_following import CASES
from test_observed import observed, running
from test_sources import disk_with

from nginx_tune.cli.main import COMMANDS
from nginx_tune.decide.answer import FACTS_COMMAND, LEARN_COMMAND, OBSERVE_COMMAND
from nginx_tune.decide.cache_fetches import ASK_COMMAND
from nginx_tune.decide.engine import decide
from nginx_tune.decide.upstreams import WATCH_COMMAND
from nginx_tune.documents.workload import Workload

SYSTEM = {
    "curl": "curl",
    "sysctl": "procps",
    "nstat": "iproute2",
    "systemctl": "systemd",
    "blockdev": "util-linux",
}
"""Programs of the operating system that advice may name, and the packages they come in."""


def all_commands() -> set[str]:
    """Every command that the situations of the other tests lead to."""
    said = {FACTS_COMMAND, LEARN_COMMAND, OBSERVE_COMMAND, ASK_COMMAND, WATCH_COMMAND}
    for facts, workload, given in CASES.values():
        said |= {d.next_command for d in decide(facts, workload, site=given).decisions}
    facts, workload, given = CASES["cold"]
    seen = observed(pool_overflow=3, block_io_delay_seconds=20, listen_overflows=2)
    for there in (running(), disk_with(131_072)):
        found = decide(there, workload, site=given, observation=seen).decisions
        said |= {d.next_command for d in found}
    said |= {d.next_command for d in decide(facts, Workload(), site=given).decisions}
    return said - {""}


@pytest.mark.long
@each_row("said", lambda: sorted(all_commands()))
def test_the_next_command_exists_and_takes_its_words(said: str) -> None:
    program, *words = shlex.split(said, comments=True)
    if program != "nginx-tune":
        assert program in SYSTEM
        return
    name, *arguments = words
    assert name in COMMANDS, said
    command = import_module(f"nginx_tune.cli.{name}").command
    assert isinstance(command, click.Command)
    parser = command.make_parser(click.Context(command))
    parser.parse_args(arguments)
