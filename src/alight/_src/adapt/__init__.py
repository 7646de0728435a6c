"""What is decided while programs run, and learned from them: floors, contests of two ways,
measuring anew, devices that open late; what given facts alone decide belongs in `plan`."""
