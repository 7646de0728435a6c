"""Settings, each with its source, and the policy made of them: change here which there are, what
values they take and where they are read from."""
