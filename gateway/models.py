"""Downstream MCP servers, as the operator defined them, and their tools, as a person accepted them."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, cast

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models.functions import Lower, Now

from approvals.models import Effect, EffectClass
from core.errors import JsonObject
from core.ids import METHOD_RUN, new_id

from .launch import DEFAULT_TIMEOUT_MS, DIRECT_NAME_CHARS, NAME_PATTERN, Launch, Transport


def new_run_id() -> str:
    return new_id(METHOD_RUN)


@lru_cache(maxsize=2_000)
def parsed(definition: str) -> Any:
    """A definition's value, parsed once for each text. It is shared: nobody changes it in place."""
    return json.loads(definition)


class Exposure(models.TextChoices):
    """How agents reach a server's tools."""

    DIRECT = "direct", "direct: listed to agents one by one"
    LAZY = "lazy", "lazy: found and called through the three mcp_ tools"
    OFF = "off", "off"


class PinScope(models.TextChoices):
    ALL = "all", "the whole definition"
    CONTRACT = "contract", "names, schemas without prose, annotations"


class ServerState(models.TextChoices):
    CONFIGURED = "configured", "configured"
    IDLE = "idle", "idle"
    CONNECTING = "connecting", "connecting"
    ACTIVE = "active", "active"
    FAILED = "failed", "failed"
    CLOSED = "closed", "closed"


class PinState(models.TextChoices):
    ACCEPTED = "accepted", "accepted"
    QUARANTINED = "quarantined", "quarantined"
    GONE = "gone", "gone"


class GatewaySettings(models.Model):
    """Defaults of the gateway: one row."""

    start_timeout_s = models.PositiveIntegerField("time to start", default=60, help_text="Seconds, for each server.")
    starts_at_once = models.PositiveSmallIntegerField(default=4, help_text="Servers that an import starts at a time.")
    allow_method_writes = models.BooleanField(
        "Methods may write",
        default=False,
        help_text="Run Methods whose effects are write or mixed. Each of their steps still passes policy.",
    )

    class Meta:
        verbose_name = verbose_name_plural = "gateway settings"
        constraints = [models.CheckConstraint(condition=models.Q(pk=1), name="gateway_settings_single")]

    def __str__(self) -> str:
        return "Gateway settings"

    @classmethod
    def load(cls) -> GatewaySettings:
        """The row, or the defaults where nobody has saved any."""
        return cls._default_manager.filter(pk=1).first() or cls(pk=1)


def _override(name: str) -> Any:
    return models.CharField(
        name, max_length=32, choices=Effect.choices, null=True, blank=True, help_text="Empty: the general default."
    )


class Server(models.Model):
    """A downstream server. It is defined here by the operator only, never by a call.

    The columns from `era` on are what processes found out and last reported.
    """

    name = models.CharField(
        max_length=128,
        unique=True,
        validators=[RegexValidator(NAME_PATTERN, "Letters, digits, . _ and -, starting with a letter or digit.")],
        help_text=f"How policy and agents name it. For direct exposure at most {DIRECT_NAME_CHARS} characters, no __.",
    )
    transport = models.CharField(
        max_length=8,
        choices=[
            ("stdio", "stdio: a command"),
            ("http", "Streamable HTTP"),
            ("sse", "HTTP with SSE, the older form: results up to 1 MiB"),
        ],
    )
    command = models.CharField(max_length=1000, blank=True)
    args = models.JSONField("arguments", default=list, blank=True, help_text="A list of texts.")
    env = models.JSONField(
        "environment", default=dict, blank=True, help_text="Variables by name. Secrets only as ${NAME}."
    )
    inherit_env = models.JSONField(
        "inherited variables", default=list, blank=True, help_text="Names passed on from MEAH's own environment."
    )
    url = models.CharField("URL", max_length=1000, blank=True)
    headers = models.JSONField(default=dict, blank=True, help_text="Headers by name. Secrets only as ${NAME}.")
    private = models.BooleanField(
        default=False, help_text="The URL is on this machine or in your own network, where https is not asked for."
    )
    exposure = models.CharField(max_length=8, choices=Exposure.choices, default=Exposure.OFF)
    # Null and an empty text are two things here.
    prefix = models.CharField(  # noqa: DJ001
        max_length=DIRECT_NAME_CHARS,
        null=True,
        blank=True,
        validators=[RegexValidator(r"^[A-Za-z0-9_.-]*\Z", "Letters, digits, . _ and -.")],
        help_text="Before the tools' names, with __ between. Unset: the server's name. Empty: the bare names.",
    )
    timeout_ms = models.PositiveIntegerField(
        "time-out",
        default=DEFAULT_TIMEOUT_MS,
        validators=[MinValueValidator(1), MaxValueValidator(600_000)],
        help_text="Milliseconds for one call.",
    )
    keep_alive = models.BooleanField(default=False, help_text="It is not ended after five minutes without a call.")
    concurrent = models.BooleanField(
        "takes calls at the same time",
        default=False,
        help_text="For a lazy command: without it, its calls run one after another.",
    )
    pin_scope = models.CharField(max_length=16, choices=PinScope.choices, default=PinScope.ALL)
    read_default = _override("default for reads")
    write_default = _override("default for writes")
    destructive_default = _override("default for destructive tools")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    era = models.CharField(max_length=16, blank=True, editable=False, help_text="The protocol era it last spoke.")
    state = models.CharField(max_length=16, choices=ServerState.choices, default=ServerState.CONFIGURED, editable=False)
    last_error = models.TextField(blank=True, editable=False)
    stderr_tail = models.TextField(blank=True, editable=False)
    listed_at = models.DateTimeField(null=True, editable=False)
    reported_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(Lower("name"), name="gateway_server_name_ignoring_case"),
            models.CheckConstraint(condition=models.Q(exposure__in=Exposure.values), name="gateway_server_exposure"),
        ]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        from .catalog import collisions
        from .rules import server_problems

        problems = server_problems(self.launch(), exposure=self.exposure, prefix=self.prefix)
        if not problems and self.pk and self.exposure == Exposure.DIRECT:
            names = self.tools.filter(pin_state=PinState.ACCEPTED).values_list("name", flat=True)
            listed = [(self.listed_prefix + name, self.name) for name in names]
            problems = collisions(listed, apart_from=[self.name])
        if problems:
            raise ValidationError(problems)

    def launch(self) -> Launch:
        return Launch(
            server=self.name,
            transport=cast(Transport, self.transport),
            command=self.command,
            args=tuple(self.args),
            env=tuple(self.env.items()),
            inherit_env=tuple(self.inherit_env),
            url=self.url,
            headers=tuple(self.headers.items()),
            private=self.private,
            timeout_ms=self.timeout_ms,
            era=self.era,
            keep_after_timeout=self.exposure != Exposure.LAZY,
            keep_alive=self.keep_alive,
            concurrent=self.concurrent,
        )

    @property
    def listed_prefix(self) -> str:
        """What stands before a tool's own name in `tools/list`, with its separator."""
        prefix = self.name if self.prefix is None else self.prefix
        return f"{prefix}__" if prefix else ""


class Tool(models.Model):
    """One tool of a server: the definition that a person accepted, and what the server says now where that differs."""

    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="tools")
    name = models.CharField(max_length=256, help_text="The server's own name for it.")
    definition = models.TextField(blank=True, help_text="The pinned definition, canonical JSON. Agents see only this.")
    pin = models.CharField(max_length=64, blank=True, help_text="Digest of the definition and the server's identity.")
    pin_state = models.CharField(max_length=16, choices=PinState.choices)
    quarantine_reason = models.CharField(max_length=500, blank=True)
    effect_class = models.CharField(
        max_length=16, choices=EffectClass.choices, default=EffectClass.WRITE, help_text="The operator's marking."
    )
    proposed_class = models.CharField(
        max_length=16, choices=EffectClass.choices, default=EffectClass.WRITE, help_text="What the hints suggest."
    )
    idempotency_argument = models.CharField(
        max_length=128, blank=True, help_text="An argument of the tool that is to carry the idempotency key."
    )
    candidate = models.TextField(blank=True, help_text="What the server says now, where it is not what was accepted.")
    candidate_pin = models.CharField(max_length=64, blank=True)
    accepted_by = models.CharField(max_length=255, blank=True)
    accepted_at = models.DateTimeField(null=True, blank=True)
    seen_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["server__name", "name"]
        permissions = [("accept_pin", "Can accept new and changed tool definitions")]
        constraints = [
            models.UniqueConstraint(fields=["server", "name"], name="gateway_tool_name"),
            models.CheckConstraint(condition=models.Q(pin_state__in=PinState.values), name="gateway_tool_pin_state"),
            models.CheckConstraint(
                condition=~models.Q(pin_state=PinState.ACCEPTED) | ~models.Q(pin=""), name="gateway_tool_pinned"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.server}/{self.name}"

    @property
    def pinned(self) -> JsonObject:
        """The accepted definition; empty where none was ever accepted."""
        found: JsonObject = parsed(self.definition) if self.definition else {}
        return found

    @property
    def offered(self) -> bool:
        return self.pin_state == PinState.ACCEPTED and self.server.exposure != Exposure.OFF

    @property
    def listed_name(self) -> str:
        return self.server.listed_prefix + self.name


class Method(models.Model):
    """A ritual of several calls, with its versions."""

    name = models.CharField(max_length=128, unique=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class MethodVersion(models.Model):
    """One manifest, for good: a change is another version. Agents see and run it once a person has reviewed it."""

    method = models.ForeignKey(Method, on_delete=models.PROTECT, related_name="versions")
    version = models.CharField(max_length=32)
    order = models.CharField(max_length=32, help_text="Sorts as the numbers of the version do.")
    description = models.TextField()
    effects = models.CharField(max_length=8)
    manifest = models.TextField(help_text="Canonical JSON.")
    digest = models.CharField(max_length=64)
    created_by = models.CharField(max_length=255)
    created_at = models.DateTimeField(db_default=Now())
    reviewed_by = models.CharField(max_length=255, blank=True)
    reviewed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["method__name", "-order"]
        permissions = [("review_method", "Can mark versions of Methods as reviewed")]
        constraints = [models.UniqueConstraint(fields=["method", "order"], name="gateway_method_version")]

    def __str__(self) -> str:
        return f"{self.method} {self.version}"


class RunState(models.TextChoices):
    RUNNING = "running", "running"
    PENDING_APPROVAL = "pending_approval", "pending approval"
    COMPLETED = "completed", "completed"
    COMPLETED_WITH_GAPS = "completed_with_gaps", "completed with gaps"
    FAILED = "failed", "failed"


class MethodRun(models.Model):
    """One run of a version. Who drives it has claimed it by a conditional UPDATE; every write asks for the claim."""

    OPEN = frozenset({RunState.RUNNING, RunState.PENDING_APPROVAL})

    public_id = models.CharField(max_length=32, unique=True, default=new_run_id, editable=False)
    version = models.ForeignKey(MethodVersion, on_delete=models.PROTECT, related_name="runs")
    state = models.CharField(max_length=32, choices=RunState.choices, default=RunState.RUNNING)
    principal = models.CharField(max_length=255)
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    door = models.CharField(max_length=16)
    owner = models.CharField(max_length=32, blank=True, help_text="The process that drives it.")
    claims = models.PositiveIntegerField(default=0, help_text="How often it was claimed: each claim has its number.")
    input = models.TextField(help_text="JSON, with defaults filled in.")
    output = models.TextField(blank=True, help_text="JSON.")
    error = models.JSONField(null=True, blank=True)
    spent_ms = models.PositiveBigIntegerField(default=0, help_text="Of its time limit; parked time does not count.")
    created_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True, blank=True)
    purged_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [models.CheckConstraint(condition=models.Q(state__in=RunState.values), name="gateway_run_state")]
        indexes = [models.Index(fields=["state", "owner"], name="gateway_run_state_owner")]

    def __str__(self) -> str:
        return self.public_id


class StepState(models.TextChoices):
    RUNNING = "running", "running"
    WAITING = "pending_approval", "pending approval"
    DONE = "done", "done"
    GAP = "gap", "gap"
    FAILED = "failed", "failed"


class MethodStep(models.Model):
    """How far one step of a run has come; there is no row before it begins."""

    run = models.ForeignKey(MethodRun, on_delete=models.CASCADE, related_name="steps")
    step = models.CharField(max_length=64)
    position = models.PositiveSmallIntegerField()
    state = models.CharField(max_length=32, choices=StepState.choices)
    attempts = models.PositiveIntegerField(default=0, help_text="Calls so far; each has the step ID#N.")
    polls = models.PositiveIntegerField(default=0)
    failures = models.PositiveIntegerField(default=0)
    approval = models.CharField(max_length=32, blank=True, help_text="The request that it waits for.")
    gap = models.JSONField(null=True, blank=True, help_text="Code and message of what went wrong.")
    result = models.TextField(blank=True, help_text="JSON, for later steps.")
    duration_ms = models.PositiveBigIntegerField(default=0)

    class Meta:
        ordering = ["position"]
        constraints = [models.UniqueConstraint(fields=["run", "step"], name="gateway_step_of_run")]

    def __str__(self) -> str:
        return f"{self.run} {self.step}"


class ToolVector(models.Model):
    """The meaning of a text, as Voyage sees it: kept here, so that each text is sent once."""

    digest = models.CharField(max_length=64, unique=True, help_text="Of the model and the text.")
    vector = models.BinaryField(help_text="32-bit floats of a vector of length one.")

    def __str__(self) -> str:
        return self.digest
