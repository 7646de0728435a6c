"""From fusion groups to code: a folder for each language, and what they share in `common`."""
