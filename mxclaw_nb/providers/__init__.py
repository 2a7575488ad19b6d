"""The providers room."""
