#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: nginx-tune authors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: validate
short_description: Measure a candidate configuration against the one that is there
description:
  - Runs both configurations in turn on a scratch nginx, in namespaces of their own, under the same load.
  - The nginx that serves is not touched. The load does share the host's CPUs and disks with it.
author:
  - nginx-tune authors (@nginx-tune)
version_added: 0.1.0
extends_documentation_fragment:
  - nginx_tune.nginx.common
options:
  conf:
    description: The candidate's main configuration file.
    type: path
    required: true
  against:
    description: The baseline; without it, the configuration that the host's nginx has.
    type: path
  lab:
    description: Emulate a host of this class, or of this lab or facts file, with generated data.
    type: str
  require:
    description: Gates such as V(hot.p99 <= 50ms) or V(ratio(hot.mean\) <= 0.5).
    type: list
    elements: str
    default: []
  pairs:
    description: Pairs of runs.
    type: int
  duration:
    description: Measured time of a run, such as V(8s).
    type: str
  warmup:
    description: Warm-up of a block.
    type: str
  seed:
    description: Order of the blocks and of the requests.
    type: int
  accept_inconclusive:
    description: Do not fail when nothing can be told.
    type: bool
    default: false
  accept_lost:
    description:
      - The candidate may serve less than the baseline.
      - Without it the candidate is worse when an address, a server or a location is answered no longer.
    type: bool
    default: false
attributes:
  check_mode:
    description: Measures nothing and returns skipped.
    support: partial
    details: A measurement loads the host, so check mode leaves it out.
  diff_mode:
    description: There is nothing to show.
    support: none
notes:
  - Needs C(nginx-tune) with its load probe on the managed host, and root.
"""

EXAMPLES = r"""
- name: Is the candidate no worse, and fast enough
  nginx_tune.nginx.validate:
    conf: /etc/nginx/nginx.conf.candidate
    against: /etc/nginx/nginx.conf
    require: ["hot.p99 <= 50ms"]
"""

RETURN = r"""
outcome:
  description: One of V(better), V(worse), V(no_difference), V(inconclusive), V(invalid).
  returned: when measured
  type: str
verdict:
  description: The whole verdict document.
  returned: when measured
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.nginx_tune.nginx.plugins.module_utils.tool import (
    COMMON,
    FINE,
    FOUND,
    UNDECIDED,
    options,
    read_json,
    run_tool,
)


def main():
    module = AnsibleModule(
        argument_spec=dict(
            COMMON,
            conf=dict(type="path", required=True),
            against=dict(type="path"),
            lab=dict(type="str"),
            require=dict(type="list", elements="str", default=[]),
            pairs=dict(type="int"),
            duration=dict(type="str"),
            warmup=dict(type="str"),
            seed=dict(type="int"),
            accept_inconclusive=dict(type="bool", default=False),
            accept_lost=dict(type="bool", default=False),
        ),
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=False, skipped=True, msg="a measurement loads the host")
    names = ["against", "lab", "require", "pairs", "duration", "warmup", "seed",
             "accept_inconclusive", "accept_lost"]  # fmt: skip
    arguments = ["validate", "-c", module.params["conf"], "-f", "json"]
    status, output, errors = run_tool(
        module, arguments + options(module.params, names), (FINE, FOUND, UNDECIDED)
    )
    if not output.strip():
        module.fail_json(msg=errors.strip(), rc=status)
    verdict = read_json(module, output)
    result = dict(changed=False, outcome=verdict["outcome"], verdict=verdict)
    if status == FINE:
        module.exit_json(**result)
    failed = [
        "%s: %s" % (one["expression"], one.get("reason") or one.get("measured"))
        for one in verdict["gates"]
        if not one["passed"]
    ]
    said = "the candidate is %s" % verdict["outcome"].replace("_", " ")
    if verdict.get("lost"):
        said += ", no longer served: %s" % "; ".join(verdict["lost"])
    if failed:
        said = "gates failed: %s (%s)" % ("; ".join(failed), said)
    module.fail_json(msg=said, rc=status, **result)


if __name__ == "__main__":
    main()
