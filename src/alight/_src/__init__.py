"""The implementation, one folder for each station; nothing here is public."""
