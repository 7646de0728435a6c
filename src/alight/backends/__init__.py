"""One file or folder for each kind of device that can be driven, and who finds them: a new kind has
the methods of `backends.base` and needs no change elsewhere."""
