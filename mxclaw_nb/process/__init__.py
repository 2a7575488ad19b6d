"""The process room."""
