"""What all kernel languages share: loop nests, keys, what can be generated, source as text; what
one language alone needs stays in its folder."""
