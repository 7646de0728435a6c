"""The command: change here its subcommands, their options and what they print; what they do is done
below."""
