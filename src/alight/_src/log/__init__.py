"""Decisions and outcomes as they happen."""
