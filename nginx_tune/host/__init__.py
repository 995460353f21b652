"""Facts about the machine, all read through one interface: a Host, live or recorded."""
