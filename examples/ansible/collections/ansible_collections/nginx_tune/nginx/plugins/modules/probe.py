#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: nginx-tune authors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: probe
short_description: Measure a server under load from the managed host
description:
  - One load measurement, with latency from the intended start of each request.
  - Loads nothing but servers that nginx-tune itself started, unless O(allow_live) or O(allow_target) say otherwise.
author:
  - nginx-tune authors (@nginx-tune)
version_added: 0.1.0
extends_documentation_fragment:
  - nginx_tune.nginx.common
options:
  url:
    description: What is asked for.
    type: str
  plan:
    description:
      - A load plan with several request classes, as the loadplan document has it.
      - With C(stripe) and C(start_at_unix_seconds) several hosts share one load; see C(nginx-tune merge).
    type: dict
  connections:
    description: Closed loop, so many requests in flight; for O(url).
    type: int
  rate:
    description: Open loop, so many requests a second; for O(url).
    type: float
  duration:
    description: Measured time, such as V(10s); for O(url).
    type: str
  warmup:
    description: Time before it; for O(url).
    type: str
  seed:
    description: Of the arrivals; for O(url).
    type: int
  allow_target:
    description: Load these other hosts too.
    type: list
    elements: str
    default: []
  allow_live:
    description: Load a server of this host that nginx-tune did not start.
    type: bool
    default: false
attributes:
  check_mode:
    description: Sends nothing and returns skipped.
    support: partial
    details: A measurement is load, so check mode leaves it out.
  diff_mode:
    description: There is nothing to show.
    support: none
notes:
  - Needs C(nginx-tune) with its load probe on the managed host.
"""

EXAMPLES = r"""
- name: Measure this host's own server at 200 requests a second
  nginx_tune.nginx.probe:
    url: http://127.0.0.1/
    rate: 200
    allow_live: true
"""

RETURN = r"""
measurement:
  description: The measurement document.
  returned: when measured
  type: dict
"""

import json

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.nginx_tune.nginx.plugins.module_utils.tool import (
    COMMON,
    find_tool,
    options,
    read_json,
)


def main():
    module = AnsibleModule(
        argument_spec=dict(
            COMMON,
            url=dict(type="str"),
            plan=dict(type="dict"),
            connections=dict(type="int"),
            rate=dict(type="float"),
            duration=dict(type="str"),
            warmup=dict(type="str"),
            seed=dict(type="int"),
            allow_target=dict(type="list", elements="str", default=[]),
            allow_live=dict(type="bool", default=False),
        ),
        required_one_of=[("url", "plan")],
        mutually_exclusive=[
            ("url", "plan"), ("connections", "rate"),
            *(("plan", name) for name in ("connections", "rate", "duration", "warmup", "seed")),
        ],
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=False, skipped=True, msg="a measurement is load")
    params = module.params
    names = ["connections", "rate", "duration", "warmup", "seed", "allow_target", "allow_live"]
    command = [find_tool(module), "-q", "probe", params["url"] or "-", "-f", "json"]
    plan = None
    if params["plan"] is not None:
        plan = json.dumps(dict({"schema": "nginx-tune/loadplan/1"}, **params["plan"]))
    status, output, errors = module.run_command(command + options(params, names), data=plan)
    if not output.strip():
        module.fail_json(msg=errors.strip() or "exit code %d" % status, rc=status)
    measurement = read_json(module, output)
    result = dict(changed=False, measurement=measurement)
    if status:
        module.fail_json(msg=errors.strip() or "exit code %d" % status, rc=status, **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
