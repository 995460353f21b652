#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: nginx-tune authors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: audit
short_description: Audit the nginx configuration of a host
description:
  - Says what is wrong with a configuration on its host, with evidence and the fix.
  - Only reads, unless O(test=true), which runs C(nginx -t) inside namespaces of its own.
author:
  - nginx-tune authors (@nginx-tune)
version_added: 0.1.0
extends_documentation_fragment:
  - nginx_tune.nginx.common
options:
  conf:
    description: Main configuration file; without it, that of the running or else the installed nginx.
    type: path
  prefix:
    description: Prefix path, as C(-p) of nginx.
    type: path
  facts:
    description: V(live) for the facts of this host, V(none) for the text alone, or a facts file.
    type: str
  overlay:
    description: Audit the tree with other files in the place of some, path to replacement.
    type: dict
    default: {}
  map:
    description:
      - Where files are that the configuration names by absolute paths, prefix to directory.
      - For a tree that lies elsewhere than on its host, such as a checkout; nothing else of the managed host is read for them.
    type: dict
    default: {}
  accept_missing:
    description: Patterns of includes that need not be there; any other that is missing fails the task.
    type: list
    elements: str
    default: []
  select:
    description: Only these rules; ids, groups or patterns.
    type: list
    elements: str
    default: []
  ignore:
    description: Without these rules.
    type: list
    elements: str
    default: []
  profile:
    description: How findings are judged.
    type: str
    choices: [default, strict, cis]
  fail_on:
    description: Fail the task when a finding is at least this bad.
    type: str
    choices: [error, warning, advice, info, never]
    default: error
  require_facts:
    description: Fail when a rule could not judge for lack of facts.
    type: bool
    default: false
  test:
    description: Also run C(nginx -t), inside namespaces of its own; needs root.
    type: bool
    default: false
attributes:
  check_mode:
    description: Changes nothing in any mode.
    support: full
  diff_mode:
    description: There is nothing to show.
    support: none
notes:
  - Needs C(nginx-tune) on the managed host; see the role C(nginx_tune.nginx.install).
"""

EXAMPLES = r"""
- name: Audit the running configuration with the facts of its host
  nginx_tune.nginx.audit:
    facts: live

- name: Would the tree be sound with this file in it
  nginx_tune.nginx.audit:
    conf: /etc/nginx/nginx.conf
    overlay:
      /etc/nginx/conf.d/site.conf: /tmp/site.conf
    test: true

- name: Audit a checkout on the controller, whose absolute includes are read from it alone
  nginx_tune.nginx.audit:
    conf: "{{ playbook_dir }}/etc/nginx/nginx.conf"
    map:
      /etc/nginx: "{{ playbook_dir }}/etc/nginx"
    accept_missing: ["/etc/nginx/modules-enabled/*.conf"]
    facts: none
  delegate_to: localhost
"""

RETURN = r"""
findings:
  description: The findings, as in the findings document.
  returned: always
  type: list
  elements: dict
counts:
  description: How many findings of each severity.
  returned: always
  type: dict
  sample: {"error": 0, "warning": 1, "advice": 2, "info": 0}
document:
  description: The whole findings document.
  returned: always
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.nginx_tune.nginx.plugins.module_utils.tool import (
    COMMON,
    FINE,
    FOUND,
    UNDECIDED,
    UNPARSED,
    options,
    read_json,
    run_tool,
)

SEVERITIES = ["error", "warning", "advice", "info"]


def main():
    module = AnsibleModule(
        argument_spec=dict(
            COMMON,
            conf=dict(type="path"),
            prefix=dict(type="path"),
            facts=dict(type="str"),
            overlay=dict(type="dict", default={}),
            map=dict(type="dict", default={}),
            accept_missing=dict(type="list", elements="str", default=[]),
            select=dict(type="list", elements="str", default=[]),
            ignore=dict(type="list", elements="str", default=[]),
            profile=dict(type="str", choices=["default", "strict", "cis"]),
            fail_on=dict(type="str", choices=SEVERITIES + ["never"], default="error"),
            require_facts=dict(type="bool", default=False),
            test=dict(type="bool", default=False),
        ),
        supports_check_mode=True,
    )
    params = module.params
    arguments = ["audit", "-f", "json"]
    arguments += ["-c", params["conf"]] if params["conf"] else []
    arguments += ["-p", params["prefix"]] if params["prefix"] else []
    for path, new in sorted(params["overlay"].items()):
        arguments += ["--overlay", "%s=%s" % (path, new)]
    for prefix, directory in sorted(params["map"].items()):
        arguments += ["--map", "%s=%s" % (prefix, directory)]
    named = ["facts", "accept_missing", "select", "ignore", "profile", "fail_on", "require_facts"]
    arguments += options(params, named + ["test"])
    status, output, errors = run_tool(module, arguments, (FINE, FOUND, UNPARSED, UNDECIDED))
    if not output.strip():  # nothing could be audited at all
        module.fail_json(msg=errors.strip(), rc=status)
    document = read_json(module, output)
    found = document.get("findings", [])
    counts = dict((one, sum(f["severity"] == one for f in found)) for one in SEVERITIES)
    result = dict(changed=False, findings=found, counts=counts, document=document)
    if status == FINE:
        module.exit_json(**result)
    module.fail_json(msg=why(document, found, errors), rc=status, **result)


def why(document, found, errors):
    """The reason in a line."""
    tested = document.get("nginx_test")
    if tested and not tested["accepted"]:
        return "nginx -t rejects it: %s" % "; ".join(tested["messages"])
    for one in document.get("files_unparsed", []):
        return "%s cannot be parsed: %s" % (one["file"], one["reason"])
    unread = [one for one in document.get("files_missing", []) if not one.get("accepted")]
    for one in unread:
        likely = "".join(", likely --map %s" % pair for pair in document.get("likely_maps", []))
        return "%s:%s: %s, %d not read in all%s" % (
            one["file"], one["line"], one["reason"], len(unread), likely
        )  # fmt: skip
    for severity in SEVERITIES:
        for one in found:
            if one["severity"] == severity:
                return "%s:%s: %s [%s], %d findings in all" % (
                    one["file"], one["line"], one["message"], one["rule"], len(found)
                )  # fmt: skip
    return errors.strip() or "a rule could not judge for lack of facts"


if __name__ == "__main__":
    main()
