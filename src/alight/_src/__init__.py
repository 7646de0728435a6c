"""The implementation, one folder for each station; nothing here is public, and all of it may
change."""
