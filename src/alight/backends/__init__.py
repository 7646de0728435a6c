"""One file or folder for each kind of device that can be driven, and who finds them."""
