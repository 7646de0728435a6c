"""The version of the documents that profiles are kept in: who only looks whether there is one needs
nothing else of them."""

SCHEMA = 7
