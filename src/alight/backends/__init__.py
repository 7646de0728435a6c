"""One file per kind of device that can be driven."""
