"""Decisions compared with an existing configuration, as changes to it; pure."""
