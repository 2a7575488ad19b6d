"""The storage room."""
