#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: nginx-tune authors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: keep
short_description: Keep documents of a host on the controller
description:
  - Writes each document as C(NAME.json) into a directory of the controller, in one step each, in the order that is given.
  - Runs in Ansible's own process, so that a thousand hosts start no thousand programs on the controller.
author:
  - nginx-tune authors (@nginx-tune)
version_added: 0.1.0
options:
  directory:
    description: Where they go; made with mode 0700 if it is not there.
    type: path
    required: true
  documents:
    description: Name to document; one that is null is left out. Files have mode 0600, since plans hold whole configurations.
    type: dict
    required: true
attributes:
  check_mode:
    description: Writes nothing and says what would change.
    support: full
  diff_mode:
    description: Documents may hold secrets, so that none is shown.
    support: none
"""

EXAMPLES = r"""
- name: Keep the facts of this host
  nginx_tune.nginx.keep:
    directory: "{{ playbook_dir }}/fleet/2026-11-30/{{ inventory_hostname }}"
    documents:
      facts: "{{ ansible_facts.nginx_tune }}"
"""

RETURN = r"""
paths:
  description: The files of the documents, on the controller.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule


def main():
    module = AnsibleModule(
        argument_spec=dict(
            directory=dict(type="path", required=True),
            documents=dict(type="dict", required=True),
        ),
        supports_check_mode=True,
    )
    module.fail_json(msg="the action plugin of this name does the work, on the controller")


if __name__ == "__main__":
    main()
