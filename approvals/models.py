"""Who runs here, and what was called: processes and calls. Policy and approvals join them in this app."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models.functions import Now

from core.ids import CALL, PROCESS, new_id
from core.text import visible


def new_call_id() -> str:
    return new_id(CALL)


def new_process_id() -> str:
    return new_id(PROCESS)


class Process(models.Model):
    """A MEAH process that runs an engine. Its public id owns the rows that it accepted."""

    class Kind(models.TextChoices):
        CONSOLE = "console", "console"
        RUNMCP = "runmcp", "MCP server"

    public_id = models.CharField(max_length=32, unique=True, default=new_process_id, editable=False)
    kind = models.CharField(max_length=16, choices=Kind.choices)
    host = models.CharField(max_length=255)
    pid = models.PositiveIntegerField()
    principal = models.CharField(max_length=255, blank=True, help_text="Whom the process speaks for, once it is known.")
    version = models.CharField(max_length=32)
    key_variables = models.JSONField(
        default=list, help_text="Names of key variables that are set in this process, never their values."
    )
    started_at = models.DateTimeField(db_default=Now())
    heartbeat_at = models.DateTimeField(db_default=Now(), help_text="Kept current on PostgreSQL only.")

    class Meta:
        verbose_name_plural = "processes"
        ordering = ["-started_at"]

    def __str__(self) -> str:
        return f"{self.kind} {self.pid} on {self.host}"


class CallState(models.TextChoices):
    HELD = "held", "held"
    SENDING = "sending", "sending"
    DONE = "done", "done"
    FAILED = "failed", "failed"
    UNKNOWN = "unknown", "unknown"
    CANCELLED = "cancelled", "cancelled"


class EffectClass(models.TextChoices):
    """What a tool does to the world, by the operator's marking."""

    READ = "read", "read"
    WRITE = "write", "write"
    DESTRUCTIVE = "destructive", "destructive"


class Call(models.Model):
    """The execution of one governed call. Its state changes only by conditional UPDATE, together with its entry."""

    OPEN: ClassVar[frozenset[str]] = frozenset({CallState.HELD, CallState.SENDING})

    public_id = models.CharField(max_length=32, unique=True, default=new_call_id, editable=False)
    state = models.CharField(max_length=16, choices=CallState.choices)
    principal = models.CharField(max_length=255)
    server = models.CharField(max_length=128)
    tool = models.CharField(max_length=128)
    effect_class = models.CharField(max_length=16, choices=EffectClass.choices)
    door = models.CharField(max_length=16, help_text="Where the call came in: mcp, admin, command.")
    run = models.CharField(max_length=255, blank=True)
    step = models.CharField(max_length=255, blank=True)
    arguments_salt = models.CharField(max_length=32, help_text="Opens the digest of the arguments in the chain.")
    owner = models.CharField(max_length=32, blank=True, help_text="The process that executes it.")
    error = models.JSONField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(condition=models.Q(state__in=CallState.values), name="approvals_call_state"),
        ]
        indexes = [models.Index(fields=["state", "owner"], name="approvals_call_state_owner")]

    def __str__(self) -> str:
        return visible(f"{self.public_id} {self.server}/{self.tool}")
