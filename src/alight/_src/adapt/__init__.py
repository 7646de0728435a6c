"""What is decided while programs run, and learned from them: floors, contests of several ways and
their budget, measuring anew, devices that open late. What given facts alone decide is in `plan`."""
