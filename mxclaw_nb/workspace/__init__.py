"""What lies inside the workspace, what is protected there, and opening it so that nothing can be swapped in."""

from .names import plain_name, quoted, shown
from .protected import is_protected
from .workspace import Place, Workspace

__all__ = ["Place", "Workspace", "is_protected", "plain_name", "quoted", "shown"]
