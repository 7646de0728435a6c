"""What is computed: ops, bodies, graphs and groups, rewriting. No device, no clock, no file."""
