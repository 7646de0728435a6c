"""The log, the plans and the profiles, for people."""
