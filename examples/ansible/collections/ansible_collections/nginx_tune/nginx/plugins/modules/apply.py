#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: nginx-tune authors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: apply
short_description: Change the configuration of a running nginx, or put every byte back
description:
  - Runs C(nginx-tune apply). The files are exchanged, nginx reloads, a new generation of workers must be seen to
    answer and is watched; otherwise every byte is put back, nginx reloads again, and the task fails.
  - With O(confirm) the change is taken back by the host itself unless O(state=confirmed) comes in time, so that a
    host that cannot be reached any more heals itself.
author:
  - nginx-tune authors (@nginx-tune)
version_added: 0.1.0
extends_documentation_fragment:
  - nginx_tune.nginx.common
options:
  state:
    description:
      - V(applied) makes the change, V(confirmed) keeps one that waits, V(rolled_back) takes one back.
    type: str
    choices: [applied, confirmed, rolled_back]
    default: applied
  plan:
    description: The C(document) of M(nginx_tune.nginx.plan) for this host.
    type: dict
  files:
    description: Instead of a plan, the text of each file by its absolute path on the host.
    type: dict
  id:
    description: The change that is confirmed or rolled back; without it the last one.
    type: str
  conf:
    description: Main configuration file; without it that of the plan, else of the running nginx.
    type: path
  prefix:
    description: Prefix path, as C(-p) of nginx.
    type: path
  watch:
    description: How long error logs, workers and canaries are looked at before the change is kept.
    type: str
    default: 30s
  canary:
    description: URLs of this nginx that the host asks before and while it is watched.
    type: list
    elements: str
    default: []
  confirm:
    description: How long the change waits for O(state=confirmed), such as V(120s).
    type: str
  reload_command:
    description: Instead of a signal to the master, such as V(systemctl reload nginx).
    type: str
  reload_time:
    description: New workers must answer within this time after the reload.
    type: str
    default: 15s
  managed_anyway:
    description: Change files that say that something else writes them, Ansible's own mark included.
    type: bool
    default: false
  accept_lost:
    description: nginx may listen in fewer places afterwards than before.
    type: bool
    default: false
  trust:
    description: As root, take a configuration that others than root could write.
    type: bool
    default: false
  state_dir:
    description: Where journals and the replaced files are kept.
    type: path
    default: /var/lib/nginx-tune
attributes:
  check_mode:
    description:
      - Says which files would change and whether the plan is out of date; nginx is not asked.
    support: full
  diff_mode:
    description: Shows the lines that change; RV(diff_text) has them for a task of its own, where this one is under C(no_log).
    support: full
seealso:
  - module: nginx_tune.nginx.plan
notes:
  - Needs C(nginx-tune) on the managed host; see the role C(nginx_tune.nginx.install).
  - O(plan) and O(files) hold whole files, and perhaps secrets. No result and no log of the host has them. The controller's
    screen shows a task's arguments from C(-vvv) on; C(no_log) of the task keeps them from it.
  - A host whose files are the wanted ones already is left alone; RV(change) then tells of a change that still waits.
"""

EXAMPLES = r"""
- name: Apply what was planned
  nginx_tune.nginx.apply:
    plan: "{{ planned.document }}"
    confirm: 120s
  register: applied
  no_log: true

- name: Ask it from here
  ansible.builtin.uri:
    url: "http://{{ ansible_host }}/"
  delegate_to: localhost

- name: Keep it
  nginx_tune.nginx.apply:
    state: confirmed
    id: "{{ applied.id }}"
  when: applied.id != ""

- name: Change one file
  nginx_tune.nginx.apply:
    files:
      /etc/nginx/conf.d/site.conf: "{{ lookup('ansible.builtin.file', 'site.conf', rstrip=false) }}"
  no_log: true
"""

RETURN = r"""
id:
  description: The change; empty when there was none to make.
  returned: always
  type: str
change:
  description: The change as in the history document (state, files, reason, confirm_until and so on).
  returned: always
  type: dict
diff_text:
  description: The unified diff of what changes; empty without diff mode.
  returned: always
  type: str
rolled_back:
  description: Whether the change was made and taken back.
  returned: always
  type: bool
"""

import base64
import difflib
import hashlib
import json
import os
import shutil
import tempfile

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.text.converters import to_bytes, to_text
from ansible_collections.nginx_tune.nginx.plugins.module_utils.tool import (
    COMMON,
    FINE,
    FOUND,
    options,
    read_json,
    run_tool,
)

STUCK = 5
WAITS = "awaiting"
DIED = "unfinished"


def main():
    module = AnsibleModule(
        argument_spec=dict(
            COMMON,
            state=dict(
                type="str", choices=["applied", "confirmed", "rolled_back"], default="applied"
            ),
            plan=dict(type="dict", no_log=True),
            files=dict(type="dict", no_log=True),
            id=dict(type="str"),
            conf=dict(type="path"),
            prefix=dict(type="path"),
            watch=dict(type="str", default="30s"),
            canary=dict(type="list", elements="str", default=[]),
            confirm=dict(type="str"),
            reload_command=dict(type="str"),
            reload_time=dict(type="str", default="15s"),
            managed_anyway=dict(type="bool", default=False),
            accept_lost=dict(type="bool", default=False),
            trust=dict(type="bool", default=False),
            state_dir=dict(type="path", default="/var/lib/nginx-tune"),
        ),
        mutually_exclusive=[("plan", "files")],
        required_if=[("state", "applied", ("plan", "files"), True)],
        supports_check_mode=True,
    )
    # Whole files, which no result and no log has. Their words ("http", "64") stay in messages.
    module.no_log_values.clear()
    given = dict((one, module.params.pop(one)) for one in ("plan", "files"))
    if module.params["state"] != "applied":
        end_change(module)
    folder = tempfile.mkdtemp(dir=module.tmpdir)
    try:
        apply_change(module, given, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def apply_change(module, given, folder):
    """Make the change unless every file is the wanted one."""
    pending, diff = look(module, given)
    last = last_change(module)
    if not pending and last.get("state") == DIED and not module.check_mode:
        # Its process has died: such a change is taken back first, as apply itself does.
        run_tool(module, ["rollback", "--recover"] + place(module))
        pending, diff = look(module, given)
        last = last_change(module)
    if not pending:
        if last.get("state") in (DIED, "stuck"):
            module.fail_json(
                msg="change %s is %s: %s" % (last["id"], last["state"], last.get("reason", "")),
                **told(last)
            )
        # One that waits may still be confirmed by who comes again.
        waits = last if last.get("state") == WAITS else {}
        module.exit_json(changed=False, **told(waits))
    if module.check_mode:
        module.exit_json(changed=True, **told({}, diff))
    status, output, errors = run_tool(
        module, command(module, given, folder, pending), (FINE, FOUND, STUCK)
    )
    if status == STUCK:
        module.fail_json(
            msg=errors.strip(), rc=status, changed=True, **told(last_change(module), diff)
        )
    change = read_json(module, output)["changes"][0]
    if status == FINE:
        module.exit_json(changed=True, **told(change, diff))
    module.fail_json(msg="rolled back: %s" % change["reason"], rc=status, **told(change))


def wanted(module, given):
    """Each file of the change: path, content, and what it must be now (none: any, or absent)."""
    if given["files"] is not None:
        found = []
        for path, text in sorted(given["files"].items()):
            if not os.path.isabs(path):
                module.fail_json(msg="files: %s is no absolute path" % path)
            if not isinstance(text, str):
                module.fail_json(msg="files: %s has no text" % path)
            found.append((path, to_bytes(text), None))
        return found
    return [
        (one["path"], base64.b64decode(one["content"]), one["sha256_before"])
        for one in given["plan"].get("files", [])
    ]


def look(module, given):
    """The files that are not the wanted ones yet, and their difference."""
    pending, diff = [], ""
    for path, content, expected in wanted(module, given):
        now = read(path)
        if now == content:
            continue
        if expected is not None and hashlib.sha256(now or b"").hexdigest() != expected:
            module.fail_json(msg="%s: changed since the plan was made: make it again" % path)
        pending.append((path, content))
        diff += difference(path, now or b"", content) if module._diff else ""
    if pending and given["plan"]:
        check_reads(module, given["plan"])
    return pending, diff


def difference(path, before, after):
    """The unified diff of a file."""
    lines = [to_text(one, errors="surrogate_or_replace").splitlines() for one in (before, after)]
    return "".join(line + "\n" for line in difflib.unified_diff(*lines, path, path, lineterm=""))


def check_reads(module, plan):
    """End the module when the plan is out of date or its reload is known to be refused."""
    for path, sha256 in sorted(plan.get("reads", {}).items()):
        if hashlib.sha256(read(path) or b"").hexdigest() != sha256:
            module.fail_json(msg="%s: changed since the plan was made: make it again" % path)
    # In words of our own: a plan's text is anybody's.
    if any(one.get("effect") == "refused" for one in plan.get("warnings", [])):
        module.fail_json(msg="nginx would refuse this plan at a reload: nginx-tune plan says why")


def command(module, given, folder, pending):
    """The command line of the change."""
    params = module.params
    arguments = ["apply", "-f", "json"] + place(module)
    if given["files"] is None:
        path = os.path.join(folder, "plan.json")
        with open(path, "w") as file:
            json.dump(given["plan"], file)
        arguments.append(path)
    for number, (path, content) in enumerate(pending if given["files"] is not None else []):
        new = os.path.join(folder, "new-%d" % number)
        with open(new, "wb") as file:
            file.write(content)
        arguments += ["--overlay", "%s=%s" % (path, new)]
    arguments += ["-c", params["conf"]] if params["conf"] else []
    arguments += ["-p", params["prefix"]] if params["prefix"] else []
    return arguments + options(
        params,
        ["watch", "canary", "confirm", "reload_command", "reload_time", "managed_anyway",
         "accept_lost", "trust"],
    )  # fmt: skip


def end_change(module):
    """Keep or take back a change; ends the module."""
    params = module.params
    asked = params["state"]
    change = last_change(module, params["id"])
    if not change:
        module.fail_json(msg="no such change: %s" % (params["id"] or "none was made"))
    goal = "kept" if asked == "confirmed" else "rolled_back"
    if change["state"] == goal:
        module.exit_json(changed=False, **told(change))
    if module.check_mode:
        module.exit_json(changed=True, **told(change))
    verb = "confirm" if asked == "confirmed" else "rollback"
    status, output, errors = run_tool(
        module, [verb, change["id"], "-f", "json"] + place(module), (FINE, FOUND)
    )
    change = read_json(module, output)["changes"][0]
    if status == FINE:
        module.exit_json(changed=True, **told(change))
    module.fail_json(
        msg="rolled back: %s" % change["reason"], rc=status, changed=True, **told(change)
    )


def place(module):
    """Where the journals are."""
    return ["--state-dir", module.params["state_dir"]]


def last_change(module, name=None):
    """The change of that name, or the last one; empty where there is none."""
    if not os.path.isdir(module.params["state_dir"]):
        return {}
    output = run_tool(module, ["history", "-f", "json"] + place(module))[1]
    changes = read_json(module, output).get("changes", [])
    found = [one for one in changes if name is None or one["id"] == name]
    return found[-1] if found else {}


def told(change, diff=""):
    """What every result has; whole files are in none."""
    result = dict(
        id=change.get("id", ""),
        change=change,
        diff_text=diff,
        rolled_back=change.get("state") == "rolled_back",
    )
    return dict(result, diff=dict(prepared=diff)) if diff else result


def read(path):
    """The bytes of a file; none when there is no file."""
    if not os.path.exists(path):
        return None
    with open(path, "rb") as file:
        return file.read()


if __name__ == "__main__":
    main()
