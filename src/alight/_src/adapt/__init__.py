"""What is decided while programs run: floors, contests of two ways, devices that open late."""
