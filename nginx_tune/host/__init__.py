"""Facts about the machine, read through one door: a Host, live or recorded."""
