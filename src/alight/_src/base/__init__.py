"""What every other part stands on; nothing of alight is imported here."""
