"""Our own settings (settings.json): limits, timeouts and defaults, each with its unit in its name."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Mode = Literal["plan", "ask", "accept-edits", "allow-all"]
MODES: tuple[Mode, ...] = ("plan", "ask", "accept-edits", "allow-all")


class Settings(BaseModel):
    """Everything that ``%mxclaw set NAME VALUE`` can change. Times are in seconds."""

    model_config = ConfigDict(frozen=True, extra="ignore", validate_default=True)

    default_mode: Mode = Field(default="ask", description="permission mode of a new session")
    max_iterations: int = Field(default=8, ge=1, le=1000, description="rounds of one turn at most")
    connect_timeout_s: float = Field(default=10, gt=0, le=600, description="time to connect to the provider")
    first_byte_timeout_s: float = Field(default=120, gt=0, le=3600, description="time until the provider's first byte")
    idle_timeout_s: float = Field(
        default=120, gt=0, le=3600, description="silence of the provider (comments count as life)"
    )
    token_timeout_s: float = Field(
        default=600, gt=0, le=7200, description="time without a token, whatever the comments"
    )
    approval_timeout_s: float = Field(default=3600, gt=0, le=3600, description="how long an approval waits")
    command_timeout_s: int = Field(default=120, ge=1, le=3600, description="default timeout of run_command")
    command_environment: tuple[str, ...] = Field(default=(), description="names added to the environment of commands")
    deny: tuple[str, ...] = Field(default=(), description="denied in every mode: `tool` or `tool(pattern)`")
    context_window_messages: int = Field(
        default=600, ge=20, le=100_000, description="messages of a session that a turn loads"
    )
