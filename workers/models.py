"""External agents: where they are (providers), how roles reach them (routes), what they did (workers)."""

from __future__ import annotations

from decimal import Decimal
from typing import ClassVar

from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models.functions import Now

from core.ids import WORKER, new_id
from workers.roles import ROLES
from workers.routing import (
    MAX_OUTPUT_TOKENS_RANGE,
    PROVIDER_NAME_PATTERN,
    TEMPERATURE_RANGE,
    VARIABLE_NAME_PATTERN,
    Limits,
    TerminalConfig,
)

_LIMITS = Limits()
_TERMINAL = TerminalConfig()


def new_worker_id() -> str:
    return new_id(WORKER)


def _between(bounds: tuple[float, float]) -> list[MinValueValidator | MaxValueValidator]:
    return [MinValueValidator(bounds[0]), MaxValueValidator(bounds[1])]


class Provider(models.Model):
    """An OpenAI-compatible endpoint. Only the name of its key's variable is kept, never the key."""

    name = models.CharField(
        max_length=32,
        unique=True,
        validators=[
            RegexValidator(PROVIDER_NAME_PATTERN, "Lower-case letters, digits, - and _, starting with a letter.")
        ],
        help_text="How roles and calls name it, such as glm.",
    )
    base_url = models.CharField(
        "base URL",
        max_length=500,
        blank=True,
        help_text="Usually ends in /v1; MEAH appends /chat/completions. Example: https://api.z.ai/api/paas/v4",
    )
    api_key_env = models.CharField(
        "key variable",
        max_length=128,
        blank=True,
        validators=[RegexValidator(VARIABLE_NAME_PATTERN, "The NAME of an environment variable, such as MY_API_KEY.")],
        help_text="Name of the environment variable that holds the key. Empty: no key is sent.",
    )
    model = models.CharField(
        "default model",
        max_length=200,
        blank=True,
        help_text="Used when neither the call nor the role names one.",
    )
    description = models.CharField(max_length=500, blank=True, help_text="Shown to the orchestrator when it chooses.")
    private = models.BooleanField(
        null=True,
        blank=True,
        help_text="Whether the address is on this machine or network. Unknown: yes for localhost and loopback.",
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class ProviderModel(models.Model):
    """One model of a provider: listed by the operator, priced, or learned about from its answers."""

    provider = models.ForeignKey(Provider, on_delete=models.CASCADE, related_name="provider_models")
    name = models.CharField(max_length=200)
    listed = models.BooleanField(
        default=True, help_text="Once a provider lists models, calls that name any other are refused."
    )
    input_price = models.DecimalField(
        "input price", max_digits=12, decimal_places=6, null=True, blank=True, help_text="Per million tokens."
    )
    output_price = models.DecimalField(
        "output price",
        max_digits=12,
        decimal_places=6,
        null=True,
        blank=True,
        help_text="Per million tokens.",
    )
    currency = models.CharField(max_length=8, default="USD")
    adaptations = models.JSONField(
        default=list,
        blank=True,
        editable=False,
        help_text="What the client learned to send differently to this model, each with the answer that taught it.",
    )
    learned_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering = ["provider", "name"]
        constraints = [
            models.UniqueConstraint(fields=["provider", "name"], name="workers_providermodel_name"),
            models.CheckConstraint(
                condition=models.Q(input_price__gte=Decimal(0)) | models.Q(input_price__isnull=True),
                name="workers_providermodel_input_price",
            ),
            models.CheckConstraint(
                condition=models.Q(output_price__gte=Decimal(0)) | models.Q(output_price__isnull=True),
                name="workers_providermodel_output_price",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.provider}: {self.name}"


class RoleRoute(models.Model):
    """Where a role's tasks go when the call does not say."""

    role = models.CharField(max_length=32, unique=True, choices=[(name, name) for name in ROLES])
    provider = models.CharField(
        max_length=32,
        blank=True,
        help_text="A provider's name. Empty: the only one there is, or the call must say.",
    )
    model = models.CharField(max_length=200, blank=True, help_text="Empty: the provider's default model.")
    max_output_tokens = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=_between(MAX_OUTPUT_TOKENS_RANGE),
        help_text="Empty: the general limit.",
    )
    temperature = models.FloatField(
        null=True,
        blank=True,
        validators=_between(TEMPERATURE_RANGE),
        help_text="Empty: the provider's own default.",
    )
    system_prompt = models.TextField(
        blank=True,
        help_text="Takes the place of the role's prompt. The safety boundary and the sections of the answer "
        "are added in every case.",
    )

    class Meta:
        ordering = ["role"]

    def __str__(self) -> str:
        return self.role


class OnClientExit(models.TextChoices):
    CANCEL = "cancel", "cancel its workers"
    FINISH = "finish", "let its workers finish"


class WorkerSettings(models.Model):
    """The limits: one row."""

    max_concurrent = models.PositiveIntegerField(
        default=_LIMITS.max_concurrent, help_text="Workers running at once in each process."
    )
    timeout_ms = models.PositiveIntegerField(
        default=_LIMITS.timeout_ms, help_text="Time budget of a worker in milliseconds, retries included."
    )
    max_output_tokens = models.PositiveIntegerField(default=_LIMITS.max_output_tokens)
    max_context_chars = models.PositiveIntegerField(
        default=_LIMITS.max_context_chars,
        help_text="Task and context together; items over it are cut, then dropped.",
    )
    max_result_chars = models.PositiveIntegerField(
        default=_LIMITS.max_result_chars, help_text="How much of an answer is stored."
    )
    max_retries = models.PositiveIntegerField(default=_LIMITS.max_retries)
    retry_base_ms = models.PositiveIntegerField(default=_LIMITS.retry_base_ms)
    retain_transcripts = models.BooleanField(
        default=_LIMITS.retain_transcripts, help_text="Keep the messages as sent and the raw answer."
    )
    cleanup_workspace_on_finish = models.BooleanField(default=_LIMITS.cleanup_workspace_on_finish)
    on_client_exit = models.CharField(max_length=16, choices=OnClientExit.choices, default=_LIMITS.on_client_exit)
    workspace_root = models.CharField(
        max_length=500, default=_LIMITS.workspace_root, help_text="Relative to MEAH_HOME, or absolute."
    )
    retention_days = models.PositiveIntegerField(
        default=_LIMITS.retention_days, help_text="How long texts of finished workers are kept."
    )
    terminal_enabled = models.BooleanField(default=_TERMINAL.enabled)
    terminal_allowlist = models.JSONField(
        default=list,
        blank=True,
        help_text="Absolute paths, or objects with path and args (one pattern an argument).",
    )
    terminal_timeout_ms = models.PositiveIntegerField(default=_TERMINAL.timeout_ms)
    terminal_max_output_bytes = models.PositiveIntegerField(default=_TERMINAL.max_output_bytes)
    terminal_max_commands_per_worker = models.PositiveIntegerField(default=_TERMINAL.max_commands_per_worker)

    class Meta:
        verbose_name = "limits"
        verbose_name_plural = "limits"
        constraints = [models.CheckConstraint(condition=models.Q(pk=1), name="workers_workersettings_single")]

    def __str__(self) -> str:
        return "Limits"


class WorkerState(models.TextChoices):
    QUEUED = "queued", "queued"
    RUNNING = "running", "running"
    SUCCEEDED = "succeeded", "succeeded"
    FAILED = "failed", "failed"
    CANCELLED = "cancelled", "cancelled"
    TIMED_OUT = "timed_out", "timed out"


class PermissionProfile(models.TextChoices):
    NONE = "none", "none"
    READ_ONLY = "read-only", "read-only"
    WORKSPACE_WRITE = "workspace-write", "workspace-write"
    WORKSPACE_EXEC = "workspace-exec", "workspace-exec"


class WorkerQuerySet(models.QuerySet["Worker"]):
    def active(self) -> WorkerQuerySet:
        return self.filter(state__in=Worker.ACTIVE)

    def finished(self) -> WorkerQuerySet:
        return self.exclude(state__in=Worker.ACTIVE)

    def queued_for(self, owner: str) -> WorkerQuerySet:
        return self.filter(owner=owner, state=WorkerState.QUEUED).order_by("id")


class Worker(models.Model):
    """One bounded task at one external model. Its state changes only by conditional UPDATE, with its entry."""

    ACTIVE: ClassVar[frozenset[str]] = frozenset({WorkerState.QUEUED, WorkerState.RUNNING})

    public_id = models.CharField(max_length=32, unique=True, default=new_worker_id, editable=False)
    state = models.CharField(max_length=16, choices=WorkerState.choices, default=WorkerState.QUEUED)
    call = models.ForeignKey("approvals.Call", on_delete=models.PROTECT, related_name="workers")
    principal = models.CharField(max_length=255)
    owner = models.CharField(max_length=32, help_text="The process that accepted it and runs it.")
    rerun_of = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, blank=True, related_name="reruns")

    label = models.CharField(max_length=200, blank=True)
    role = models.CharField(max_length=32)
    provider = models.CharField(max_length=32)
    model = models.CharField(max_length=200)
    permission_profile = models.CharField(max_length=32, choices=PermissionProfile.choices)
    timeout_ms = models.PositiveIntegerField()
    max_output_tokens = models.PositiveIntegerField()
    temperature = models.FloatField(null=True, blank=True)

    task = models.TextField(blank=True)
    context = models.JSONField(default=list, help_text="Items as name and content.")
    constraints = models.JSONField(default=list)
    expected_output = models.TextField(blank=True)
    commands = models.JSONField(default=list, help_text="Argument lists, run before the provider is asked.")
    command_results = models.JSONField(default=list, help_text="How each went.")
    context_truncated = models.BooleanField(default=False)
    dropped_context = models.JSONField(default=list)
    redactions = models.PositiveIntegerField(default=0, help_text="Key-shaped texts replaced before sending.")
    workspace = models.CharField(max_length=500, blank=True, help_text="Its directory, while it exists.")

    created_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    cancel_requested_at = models.DateTimeField(null=True, blank=True)
    cancel_reason = models.CharField(max_length=500, blank=True)
    purged_at = models.DateTimeField(null=True, blank=True)

    partial = models.TextField(blank=True, help_text="What a running worker has answered so far.")
    result = models.TextField(blank=True)
    result_truncated = models.BooleanField(default=False)
    error = models.JSONField(null=True, blank=True)
    finish_reason = models.CharField(max_length=64, blank=True)
    resolved_model = models.CharField(max_length=200, blank=True, help_text="The model that answered, by its own word.")
    notes = models.JSONField(default=list, help_text="What the client noticed or adapted on the way.")
    attempts = models.PositiveIntegerField(default=0)
    waited_ms = models.PositiveIntegerField(default=0, help_text="Time slept between attempts.")
    input_tokens = models.PositiveBigIntegerField(null=True, blank=True)
    output_tokens = models.PositiveBigIntegerField(null=True, blank=True)
    reasoning_tokens = models.PositiveBigIntegerField(null=True, blank=True)
    cost = models.DecimalField(max_digits=18, decimal_places=8, null=True, blank=True)
    currency = models.CharField(max_length=8, blank=True)
    transcript = models.JSONField(
        null=True,
        blank=True,
        help_text="Messages as sent and the raw answer, only where transcripts are retained.",
    )

    objects = WorkerQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(condition=models.Q(state__in=WorkerState.values), name="workers_worker_state"),
        ]
        indexes = [
            models.Index(fields=["owner", "state", "id"], name="workers_worker_queue"),
            models.Index(fields=["state", "-id"], name="workers_worker_state_list"),
            models.Index(fields=["finished_at"], name="workers_worker_finished"),
        ]

    def __str__(self) -> str:
        return self.public_id

    @property
    def is_active(self) -> bool:
        return self.state in self.ACTIVE

    @property
    def duration_ms(self) -> int | None:
        """From start to end in milliseconds; None while it has not ended or never started."""
        if self.started_at is None or self.finished_at is None:
            return None
        return round((self.finished_at - self.started_at).total_seconds() * 1000)
