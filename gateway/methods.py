"""What people do with Methods: import, review. And which of them agents are offered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from django.db import IntegrityError, transaction
from django.utils import timezone

from approvals.models import EffectClass
from approvals.processes import ring_after_commit
from audit.services import NewEntry, record_many, user_principal
from core.errors import JsonObject, MeahError
from core.text import one_line

from .manifest import Manifest, digest_of, order_of, read, stored
from .models import Exposure, GatewaySettings, Method, MethodVersion, PinState, Server, Tool
from .search import Document, Index

REVIEW: Final = "gateway.review_method"

NEW: Final = "new"
SAME: Final = "same"
TAKEN: Final = "changed"


@dataclass(frozen=True)
class MethodPreview:
    """What importing a manifest would do. `status`: new, same (it is there already), changed (which is refused)."""

    manifest: Manifest
    text: str
    status: str
    warnings: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.manifest.metadata.name} {self.manifest.metadata.version}"


def preview(data: bytes | str) -> MethodPreview:
    """Raises MeahError E_CONFIG for whatever is wrong with the manifest itself."""
    manifest, text = read(data)
    known = MethodVersion.objects.filter(
        method__name=manifest.metadata.name, order=order_of(manifest.metadata.version)
    ).first()
    status = NEW if known is None else SAME if known.digest == digest_of(text) else TAKEN
    warnings, problems = _tool_remarks(manifest)
    if status == TAKEN:
        problems.insert(0, "this version is there already, and another manifest: a change needs a higher version")
    return MethodPreview(manifest, text, status, warnings, problems)


def _tool_remarks(manifest: Manifest) -> tuple[list[str], list[str]]:
    """What the steps' tools, as they are known now, make of it: warnings, and what can never run."""
    warnings, problems = [], []
    for step in manifest.spec.steps:
        tool = Tool.objects.select_related("server").filter(server__name=step.server, name=step.tool).first()
        where = f"steps.{step.id}: {step.server}/{step.tool}"
        if tool is None:
            known = Server.objects.filter(name=step.server).exists()
            warnings.append(f"{where} is not known here" + ("" if known else ": there is no such server"))
            continue
        if tool.server.exposure == Exposure.OFF or tool.pin_state != PinState.ACCEPTED:
            state = "off" if tool.server.exposure == Exposure.OFF else tool.pin_state
            warnings.append(f"{where} can not be called now: it is {state}")
        if not manifest.writes and tool.effect_class != EffectClass.READ:
            problems.append(f"{where} is a {tool.effect_class} tool, and the Method says effects: read")
    return warnings, problems


def add(shown: MethodPreview, *, principal: str) -> MethodVersion:
    """The version's row; of one that is there already, that row. Raises MeahError E_CONFIG where it has problems."""
    if shown.problems:
        raise MeahError("E_CONFIG", f"{shown.name} is refused: {'; '.join(shown.problems)}.", reason="manifest")
    meta = shown.manifest.metadata
    try:
        with transaction.atomic():
            method, _ = Method.objects.get_or_create(name=meta.name)
            version, made = MethodVersion.objects.get_or_create(
                method=method,
                order=order_of(meta.version),
                defaults={
                    "version": meta.version,
                    "description": meta.description,
                    "effects": shown.manifest.spec.effects,
                    "manifest": shown.text,
                    "digest": digest_of(shown.text),
                    "created_by": principal,
                },
            )
            if made:
                ring_after_commit()
                record_many([_entry("method.added", version, principal)])
    except IntegrityError:
        version, made = MethodVersion.objects.get(method__name=meta.name, order=order_of(meta.version)), False
    if not made and version.digest != digest_of(shown.text):
        raise MeahError("E_CONFIG", f"{shown.name} was added with another manifest meanwhile.", hint="Look again.")
    return version


def review(version: MethodVersion, *, user: Any, digest: str) -> MethodVersion:
    """A person has read it: `digest` is that of the manifest that they were shown.

    Raises MeahError: E_PERMISSION, E_INVALID_REQUEST where it is another one.
    """
    _may_review(user)
    if version.digest != digest:
        raise MeahError("E_INVALID_REQUEST", f"{version} is not what you were shown.", hint="Look at it again.")
    return _reviewed(version, user_principal(user), is_reviewed=True)


def withdraw(version: MethodVersion, *, user: Any) -> MethodVersion:
    """Take the review back: agents are not offered it any more. Raises MeahError E_PERMISSION."""
    _may_review(user)
    return _reviewed(version, user_principal(user), is_reviewed=False)


def _may_review(user: Any) -> None:
    if not user.is_active or not user.has_perm(REVIEW):
        raise MeahError("E_PERMISSION", f"{user.get_username()} lacks the permission {REVIEW}.")


def _reviewed(version: MethodVersion, principal: str, *, is_reviewed: bool) -> MethodVersion:
    was = MethodVersion.objects.filter(pk=version.pk, digest=version.digest)
    was = was.filter(reviewed_by="") if is_reviewed else was.exclude(reviewed_by="")
    values: dict[str, Any] = {
        "reviewed_by": principal if is_reviewed else "",
        "reviewed_at": timezone.now() if is_reviewed else None,
    }
    with transaction.atomic():
        if was.update(**values):
            ring_after_commit()
            kind = "method.reviewed" if is_reviewed else "method.withdrawn"
            record_many([_entry(kind, version, principal)])
    version.refresh_from_db()
    return version


def _entry(kind: str, version: MethodVersion, principal: str) -> NewEntry:
    data: JsonObject = {"version": version.version, "digest": version.digest, "effects": version.effects}
    return NewEntry(kind, principal, version.method.name, data)


# -- what agents are offered ------------------------------------------------------------------------------------------


def writes_allowed(process_allows: bool) -> bool:
    return process_allows or GatewaySettings.load().allow_method_writes


def offered(query: str = "") -> list[MethodVersion]:
    """The highest reviewed version of each Method; those that fit a query, the best first."""
    highest: dict[int, MethodVersion] = {}
    for version in MethodVersion.objects.exclude(reviewed_by="").select_related("method").order_by("order"):
        highest[version.method_id] = version
    found = sorted(highest.values(), key=lambda version: version.method.name)
    return _fitting(found, query) if query else found


def _fitting(versions: list[MethodVersion], query: str) -> list[MethodVersion]:
    index = Index(Document(at, one.method.name, one.description) for at, one in enumerate(versions))
    return [versions[hit.key] for hit in index.search(query)]


def runnable(name: str, version: str) -> MethodVersion:
    """The reviewed version that is meant; the highest where none is named. Raises MeahError E_NOT_FOUND."""
    reviewed = MethodVersion.objects.exclude(reviewed_by="").select_related("method").filter(method__name=name)
    if version:
        reviewed = reviewed.filter(order=order_of(version))
    if (found := reviewed.order_by("-order").first()) is None:
        meant = f"{one_line(name, 100)} {one_line(version, 40)}".strip()
        raise MeahError(
            "E_NOT_FOUND",
            f"There is no reviewed Method {meant!r}.",
            hint="mcp_discover with kind method lists them; a new version has to be reviewed by a person first.",
        )
    return found


def as_discovered(version: MethodVersion) -> JsonObject:
    spec = stored(version.manifest).spec
    found: JsonObject = {
        "method": version.method.name,
        "version": version.version,
        "description": version.description,
        "effects": version.effects,
        "steps": len(spec.steps),
        "inputSchema": spec.input_schema,
    }
    return found if spec.output_schema is None else found | {"outputSchema": spec.output_schema}
