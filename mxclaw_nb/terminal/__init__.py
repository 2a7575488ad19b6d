"""The terminal room."""
