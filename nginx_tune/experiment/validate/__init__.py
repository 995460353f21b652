"""The validation of a configuration against another one."""
