"""What is computed: ops, bodies, graphs and groups, rewriting; a new op is an entry in a table
here, and no device, clock or file is seen."""
