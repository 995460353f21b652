"""How the CPUs are run: by which frequency governor, and which the scheduler leaves alone."""

from __future__ import annotations

import re

from nginx_tune.host.door import Host, Missing, attempt
from nginx_tune.host.parse_values import parse_id_list

POLICIES = "/sys/devices/system/cpu/cpufreq"
MOST_POLICIES = 1024
"""That are looked at; many drivers have one a CPU."""


def read_governors(host: Host) -> list[str] | Missing:
    """The governors in use, each once, sorted.

    Source: Documentation/admin-guide/pm/cpufreq.rst.
    """
    policies = _policies(host)
    if isinstance(policies, Missing):
        return policies
    found = set()
    for policy in policies:
        text = attempt(host.read_text, f"{POLICIES}/{policy}/scaling_governor")
        if isinstance(text, str) and re.fullmatch(r"[\w-]{1,32}", text.strip()):
            found.add(text.strip())
    return sorted(found) or Missing("no policy tells its governor")


def read_frequency_driver(host: Host) -> str | Missing:
    """The driver that sets frequencies: a host has one."""
    policies = _policies(host)
    if isinstance(policies, Missing):
        return policies
    text = attempt(host.read_text, f"{POLICIES}/{policies[0]}/scaling_driver")
    return text if isinstance(text, Missing) else text.strip() or Missing("it has no name")


def read_isolated(host: Host, allowed: frozenset[int] | Missing) -> int | Missing:
    """How many of the allowed CPUs the scheduler moves nothing between.

    Source: Documentation/admin-guide/kernel-parameters.txt, isolcpus=domain; isolated
            partitions of cpuset stand there too.
    """
    text = attempt(host.read_text, "/sys/devices/system/cpu/isolated")
    if isinstance(text, Missing):
        return text
    isolated = parse_id_list(text)
    if isinstance(isolated, Missing):
        return isolated
    return len(isolated) if isinstance(allowed, Missing) else len(isolated & allowed)


def _policies(host: Host) -> list[str] | Missing:
    names = attempt(host.list_dir, POLICIES)
    if isinstance(names, Missing):
        return Missing(f"no frequency is set here ({names.reason})")
    found = [name for name in names if re.fullmatch(r"policy\d{1,6}", name)]
    return found[:MOST_POLICIES] or Missing("no frequency is set here")
