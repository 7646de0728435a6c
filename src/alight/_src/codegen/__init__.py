"""From fusion groups to code, a folder for each language and what they share in `common`: change
here how a group is computed; what its ops mean stands in `ir`."""
