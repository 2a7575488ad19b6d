"""Finding files and text: glob patterns, .gitignore, the walk, and the matcher for where ripgrep is missing.

Standard library only, and no import of the other rooms: the matcher runs in a child that must start quickly.
"""
