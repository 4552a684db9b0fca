"""Who runs here, who may do what, and what was done: processes, rules, approvals, calls, tokens, the halt."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models.functions import Now

from core.ids import APPROVAL, CALL, PROCESS, TOKEN, new_id
from core.text import visible


def new_call_id() -> str:
    return new_id(CALL)


def new_process_id() -> str:
    return new_id(PROCESS)


def new_approval_id() -> str:
    return new_id(APPROVAL)


def new_token_id() -> str:
    return new_id(TOKEN)


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


class Effect(models.TextChoices):
    ALLOW = "allow", "allow"
    REQUIRE_APPROVAL = "require_approval", "require approval"
    DENY = "deny", "deny"


class EffectClass(models.TextChoices):
    """What a tool does to the world, by the operator's marking."""

    READ = "read", "read"
    WRITE = "write", "write"
    DESTRUCTIVE = "destructive", "destructive"


class Rule(models.Model):
    """One rule of the policy. Strictness wins over order; order only chooses whose reason and clocks apply."""

    name = models.CharField(max_length=100, unique=True, help_text="How verdicts and the chain name it.")
    order = models.PositiveIntegerField(default=100)
    enabled = models.BooleanField(default=True)
    server = models.CharField(max_length=128, default="*", help_text="Glob: * crosses '.' and not '/'.")
    tool = models.CharField(max_length=128, default="*", help_text="Glob over the tool's own name.")
    except_tools = models.JSONField(
        "except", default=list, blank=True, help_text="Globs of tools it does not speak of."
    )
    principal = models.CharField(max_length=255, default="*", help_text="Glob, such as agent:claude or token:*.")
    conditions = models.JSONField(
        default=list, blank=True, help_text="All must hold: objects with path, op and value, such as amount gt 100."
    )
    effect = models.CharField(max_length=32, choices=Effect.choices)
    reason = models.CharField(max_length=500, blank=True, help_text="What the agent and the approver read.")
    owner = models.CharField(max_length=200, blank=True, help_text="Who answers for this rule.")
    ttl_s = models.PositiveIntegerField(
        "time to live", null=True, blank=True, help_text="Seconds to decide a request. Empty: the general setting."
    )
    approvals = models.PositiveSmallIntegerField(
        default=1, validators=[MinValueValidator(1), MaxValueValidator(10)], help_text="How many persons must approve."
    )
    group = models.CharField(
        max_length=150, blank=True, help_text="The group that they come from. Empty: any approver."
    )
    verification = models.JSONField(
        null=True, blank=True, help_text="Read after write: tool, arguments (paths of the write's), expect."
    )

    class Meta:
        ordering = ["order", "name"]
        constraints = [
            models.CheckConstraint(condition=models.Q(effect__in=Effect.values), name="approvals_rule_effect")
        ]

    def __str__(self) -> str:
        return self.name


class ApprovalSettings(models.Model):
    """Defaults of the policy and its clocks: one row."""

    read_default = models.CharField(max_length=32, choices=Effect.choices, default=Effect.ALLOW)
    write_default = models.CharField(max_length=32, choices=Effect.choices, default=Effect.REQUIRE_APPROVAL)
    destructive_default = models.CharField(max_length=32, choices=Effect.choices, default=Effect.REQUIRE_APPROVAL)
    ttl_s = models.PositiveIntegerField("time to decide", default=24 * 3600, help_text="Seconds.")
    execute_within_s = models.PositiveIntegerField(
        "time to execute", default=3600, help_text="Seconds from the approval within which the call may start."
    )
    duplicate_window_s = models.PositiveIntegerField(
        "duplicate window", default=600, help_text="Seconds for which an identical held call gets the stored answer."
    )
    max_open_holds = models.PositiveIntegerField(default=20, help_text="Open requests of one principal.")
    result_days = models.PositiveIntegerField(default=30, help_text="How long arguments and results are kept.")

    class Meta:
        verbose_name = verbose_name_plural = "approval settings"
        constraints = [models.CheckConstraint(condition=models.Q(pk=1), name="approvals_settings_single")]

    def __str__(self) -> str:
        return "Approval settings"


class CallState(models.TextChoices):
    HELD = "held", "held"
    SENDING = "sending", "sending"
    DONE = "done", "done"
    FAILED = "failed", "failed"
    UNKNOWN = "unknown", "unknown"
    CANCELLED = "cancelled", "cancelled"


class VerificationState(models.TextChoices):
    NONE = "none", "none"
    VERIFIED = "verified", "verified"
    FAILED = "verification_failed", "verification failed"
    UNVERIFIED = "unverified", "unverified"


class Call(models.Model):
    """The execution of one governed call. Its state changes only by conditional UPDATE, together with its entry."""

    OPEN: ClassVar[frozenset[str]] = frozenset({CallState.HELD, CallState.SENDING})
    ENDED: ClassVar[frozenset[str]] = frozenset({CallState.DONE, CallState.FAILED, CallState.UNKNOWN})

    public_id = models.CharField(max_length=32, unique=True, default=new_call_id, editable=False)
    state = models.CharField(max_length=16, choices=CallState.choices)
    principal = models.CharField(max_length=255)
    server = models.CharField(max_length=128)
    tool = models.CharField(max_length=128)
    effect_class = models.CharField(max_length=16, choices=EffectClass.choices)
    door = models.CharField(max_length=16, help_text="Where the call came in: mcp, admin, command.")
    run = models.CharField(max_length=255, blank=True)
    step = models.CharField(max_length=255, blank=True)
    step_key = models.CharField(max_length=64, blank=True, help_text="Sent downstream as the idempotency key.")
    needs_approval = models.BooleanField(default=False)

    pin = models.CharField(max_length=64, blank=True, help_text="The pinned definition that was decided on.")
    arguments = models.TextField(blank=True, help_text="Canonical JSON: what was decided on is what is sent.")
    arguments_digest = models.CharField(max_length=64, blank=True, help_text="Of server, tool and arguments.")
    arguments_salt = models.CharField(max_length=32, help_text="Opens the digest of the arguments in the chain.")
    verdict = models.JSONField(default=dict)

    owner = models.CharField(max_length=32, blank=True, help_text="The process that accepted it.")
    lease_owner = models.CharField(max_length=32, blank=True, help_text="The process that executes it.")
    lease_until = models.DateTimeField(null=True, blank=True, help_text="May run out before sending, never after.")

    result = models.TextField(blank=True, help_text="JSON of a write's result, up to 1 MiB.")
    result_bytes = models.PositiveBigIntegerField(null=True, blank=True)
    result_digest = models.CharField(max_length=64, blank=True)
    error = models.JSONField(null=True, blank=True)
    verification = models.CharField(max_length=32, choices=VerificationState.choices, default=VerificationState.NONE)
    verification_details = models.JSONField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now())
    sending_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    purged_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        permissions = [("resolve_call", "Can say whether an unknown call happened")]
        constraints = [
            models.CheckConstraint(condition=models.Q(state__in=CallState.values), name="approvals_call_state"),
            models.UniqueConstraint(
                fields=["principal", "run", "step"],
                condition=~models.Q(step="") & ~models.Q(state=CallState.CANCELLED),
                name="approvals_call_step",
            ),
            models.UniqueConstraint(
                fields=["principal", "server", "tool", "arguments_digest"],
                condition=models.Q(needs_approval=True, step="", state__in=[CallState.HELD, CallState.SENDING])
                & ~models.Q(effect_class=EffectClass.READ),
                name="approvals_call_open_duplicate",
            ),
        ]
        indexes = [
            models.Index(fields=["state", "lease_owner"], name="approvals_call_state_lease"),
            models.Index(fields=["principal", "arguments_digest"], name="approvals_call_same"),
        ]

    def __str__(self) -> str:
        return visible(f"{self.public_id} {self.server}/{self.tool}")


class ApprovalState(models.TextChoices):
    PENDING = "pending", "pending"
    APPROVED = "approved", "approved"
    REJECTED = "rejected", "rejected"
    EXPIRED = "expired", "expired"
    VOID = "void", "void"


class Approval(models.Model):
    """A request that waits for a person. Bound by a digest to exactly what will be sent."""

    public_id = models.CharField(max_length=32, unique=True, default=new_approval_id, editable=False)
    state = models.CharField(max_length=16, choices=ApprovalState.choices, default=ApprovalState.PENDING)
    call = models.OneToOneField(Call, on_delete=models.PROTECT, related_name="approval")
    principal = models.CharField(max_length=255, help_text="Who asks.")
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text="The person behind the principal, who can not decide it.",
    )
    digest = models.CharField(max_length=64, help_text="Of server, pin, canonical arguments and principal.")
    rule = models.CharField(max_length=100)
    reason = models.CharField(max_length=500, blank=True)
    demands = models.JSONField(default=list, help_text="Each a count of persons and the group they come from.")
    note_required = models.BooleanField(default=False)
    requested_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField()
    decided_at = models.DateTimeField(null=True, blank=True)
    execute_by = models.DateTimeField(null=True, blank=True)
    outcome_note = models.CharField(max_length=2000, blank=True, help_text="Why it was rejected, expired or void.")

    class Meta:
        ordering = ["-id"]
        permissions = [
            ("decide_approval", "Can approve and reject held calls"),
            ("halt", "Can halt and resume all calls"),
        ]
        constraints = [
            models.CheckConstraint(condition=models.Q(state__in=ApprovalState.values), name="approvals_approval_state")
        ]
        indexes = [models.Index(fields=["state", "expires_at"], name="approvals_approval_sweep")]

    def __str__(self) -> str:
        return self.public_id


class Decision(models.Model):
    """One person's word on a request: one vote each."""

    class Vote(models.TextChoices):
        APPROVE = "approve", "approve"
        REJECT = "reject", "reject"

    approval = models.ForeignKey(Approval, on_delete=models.PROTECT, related_name="decisions")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    vote = models.CharField(max_length=16, choices=Vote.choices)
    note = models.CharField(max_length=2000, blank=True)
    door = models.CharField(max_length=16)
    decided_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["approval", "user"], name="approvals_decision_one_vote")]

    def __str__(self) -> str:
        return f"{self.user} {self.vote} {self.approval}"


class Token(models.Model):
    """A bearer token of a user, for an agent, an approver or a script. Only its digest is kept."""

    class Scope(models.TextChoices):
        AGENT = "agent", "agent"
        APPROVE = "approve", "approve"
        READ = "read", "read"
        OPERATE = "operate", "operate"

    public_id = models.CharField(max_length=32, unique=True, default=new_token_id, editable=False)
    name = models.CharField(max_length=100, unique=True, help_text="The principal is token:<name>.")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="meah_tokens")
    digest = models.CharField(max_length=64, unique=True, editable=False)
    hint = models.CharField(max_length=16, editable=False, help_text="Its first characters, to recognise it by.")
    scopes = models.JSONField(default=list)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Halt(models.Model):
    """The one switch: while it is engaged nothing new goes through."""

    engaged = models.BooleanField(default=False)
    reason = models.CharField(max_length=500, blank=True)
    changed_by = models.CharField(max_length=255, blank=True)
    changed_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(pk=1), name="approvals_halt_single")]

    def __str__(self) -> str:
        return "halted" if self.engaged else "running"


class Webhook(models.Model):
    """An operator's URL that is told of requests and decisions. Links lead to the page; they never decide."""

    class Format(models.TextChoices):
        MEAH = "meah", "MEAH (signed JSON)"
        SLACK = "slack", "Slack incoming webhook"
        TEAMS = "teams", "Microsoft Teams incoming webhook"

    name = models.CharField(max_length=100, unique=True)
    url = models.CharField("URL", max_length=1000)
    url_env = models.CharField(
        "URL variable",
        max_length=128,
        blank=True,
        help_text="Environment variable that holds the URL, for URLs that are secrets themselves; wins over URL.",
    )
    secret_env = models.CharField(
        "secret variable", max_length=128, blank=True, help_text="Environment variable with the key of the signature."
    )
    format = models.CharField(max_length=16, choices=Format.choices, default=Format.MEAH)
    private = models.BooleanField(default=False, help_text="The address may be on this machine or network.")
    enabled = models.BooleanField(default=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Delivery(models.Model):
    """One message to one webhook: the outbox, written with the change it tells of."""

    class State(models.TextChoices):
        WAITING = "waiting", "waiting"
        SENT = "sent", "sent"
        GIVEN_UP = "given_up", "given up"

    webhook = models.ForeignKey(Webhook, on_delete=models.CASCADE, related_name="deliveries")
    approval = models.ForeignKey(Approval, on_delete=models.CASCADE, related_name="deliveries")
    event = models.CharField(max_length=64)
    body = models.JSONField()
    state = models.CharField(max_length=16, choices=State.choices, default=State.WAITING)
    tries = models.PositiveSmallIntegerField(default=0)
    next_try_at = models.DateTimeField(db_default=Now())
    last_error = models.CharField(max_length=500, blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name_plural = "deliveries"
        ordering = ["-id"]
        indexes = [models.Index(fields=["state", "next_try_at"], name="approvals_delivery_due")]

    def __str__(self) -> str:
        return f"{self.event} to {self.webhook}"
