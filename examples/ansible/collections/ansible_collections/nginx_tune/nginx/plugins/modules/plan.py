#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: nginx-tune authors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: plan
short_description: What to change in the nginx configuration of a host
description:
  - Makes the plan of C(nginx-tune plan), file by file with the reason of each line, and changes nothing.
  - M(nginx_tune.nginx.apply) carries RV(document) out, on the same host and as long as its files stay as they are.
author:
  - nginx-tune authors (@nginx-tune)
version_added: 0.1.0
extends_documentation_fragment:
  - nginx_tune.nginx.common
options:
  conf:
    description: Main configuration file.
    type: path
    default: /etc/nginx/nginx.conf
  prefix:
    description: Prefix path, as C(-p) of nginx.
    type: path
  facts:
    description: Facts to decide from, such as C(ansible_facts.nginx_tune); without them the host is inspected now.
    type: dict
  workload:
    description: What is served and asked for, as in the workload document.
    type: dict
  site:
    description: What only the operator knows, as in the site document.
    type: dict
  kind:
    description: What nginx serves.
    type: str
    choices: [static, media, cache, proxy]
  only:
    description: These decisions alone.
    type: list
    elements: str
    default: []
  without:
    description: Not these decisions.
    type: list
    elements: str
    default: []
  annotate:
    description: Write the reason behind each added line, as a comment.
    type: bool
    default: false
  test:
    description: Also run C(nginx -t) on the changed files, inside namespaces of its own; needs root.
    type: bool
    default: false
attributes:
  check_mode:
    description: Changes nothing in any mode.
    support: full
  diff_mode:
    description: Nothing is changed, so there is nothing to show; RV(diff_text) has the diff of the plan.
    support: none
seealso:
  - module: nginx_tune.nginx.apply
notes:
  - Needs C(nginx-tune) on the managed host; see the role C(nginx_tune.nginx.install).
  - RV(document) holds whole files, and perhaps secrets. Under C(no_log) it is registered and not shown.
"""

EXAMPLES = r"""
- name: Plan the places of workers and connections alone
  nginx_tune.nginx.plan:
    only: [workers, connections]
    test: true
  register: planned
  no_log: true

- name: Show what would change
  ansible.builtin.debug:
    msg: "{{ planned.diff_text }}"
"""

RETURN = r"""
pending:
  description: Whether the plan changes anything.
  returned: always
  type: bool
diff_text:
  description: The unified diff of the tree.
  returned: always
  type: str
review:
  description: The plan for people, as Markdown.
  returned: always
  type: str
document:
  description: The whole plan document.
  returned: always
  type: dict
"""

import json
import os
import shutil
import tempfile

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.nginx_tune.nginx.plugins.module_utils.tool import (
    COMMON,
    FINE,
    UNPARSED,
    options,
    read_json,
    read_text,
    run_tool,
)


def main():
    module = AnsibleModule(
        argument_spec=dict(
            COMMON,
            conf=dict(type="path", default="/etc/nginx/nginx.conf"),
            prefix=dict(type="path"),
            facts=dict(type="dict"),
            workload=dict(type="dict"),
            site=dict(type="dict"),
            kind=dict(type="str", choices=["static", "media", "cache", "proxy"]),
            only=dict(type="list", elements="str", default=[]),
            without=dict(type="list", elements="str", default=[]),
            annotate=dict(type="bool", default=False),
            test=dict(type="bool", default=False),
        ),
        supports_check_mode=True,
    )
    folder = tempfile.mkdtemp(dir=module.tmpdir)
    try:
        plan(module, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def plan(module, folder):
    """Make the plan in the folder and hand it back."""
    params = module.params
    written = dict((one, os.path.join(folder, "plan." + one)) for one in ("json", "diff", "md"))
    arguments = ["plan", "-c", params["conf"]]
    arguments += ["-p", params["prefix"]] if params["prefix"] else []
    for name, path in sorted(written.items()):
        arguments += ["-f", "%s=%s" % (name, path)]
    for name in ("facts", "workload", "site"):
        if params[name] is not None:
            path = os.path.join(folder, name + ".json")
            document = dict({"schema": "nginx-tune/%s/1" % name}, **params[name])
            with open(path, "w") as file:
                json.dump(document, file)
            arguments += ["--" + name, path]
    arguments += options(params, ["kind", "only", "annotate", "test"])
    for one in params["without"]:
        arguments += ["--except", one]
    status, output, errors = run_tool(module, arguments, (FINE, UNPARSED))
    if not os.path.exists(written["json"]):
        module.fail_json(msg=errors.strip() or output.strip(), rc=status)
    document = read_json(module, read_text(written["json"]))
    result = dict(
        changed=False,
        pending=bool(document.get("files")),
        diff_text=read_text(written["diff"]),
        review=read_text(written["md"]),
        document=document,
    )
    if status == FINE:
        module.exit_json(**result)
    messages = (document.get("nginx_test") or {}).get("messages") or [errors.strip()]
    module.fail_json(msg="nginx -t rejects the plan: %s" % "; ".join(messages), rc=status, **result)


if __name__ == "__main__":
    main()
