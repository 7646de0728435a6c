"""Settings, each with its source, and the policy made of them."""
