"""Installation of changes on the operator's own nginx, and their rollback to the last byte."""
