"""Decisions and outcomes as they happen, each with its line of the program: change here what is
kept; how it is shown is up to `explain`."""
