"""Methods in the admin: written, drawn, reviewed by who may, run with a form that the schema makes, traced."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest
from django.test import Client

from gateway import methods
from gateway.admin.schema_form import InputForm
from gateway.admin.step_drawing import draw
from gateway.manifest import read
from gateway.models import GatewaySettings, Method, MethodRun, MethodVersion
from tests.approvals.requests import person
from tests.gateway.methods import manifest, step
from tests.rows import SHOWN_SPOOF, SPOOF, page, staff_client

pytestmark = pytest.mark.django_db
LIST = "/admin/gateway/method/"
RUNS = "/admin/gateway/methodrun/"
SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "What to say."},
        "count": {"type": "integer", "default": 3},
        "mode": {"enum": ["fast", "slow", 5]},
        "sure": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["text"],
    "additionalProperties": False,
}


def added(**more: Any) -> MethodVersion:
    value = manifest(step("a"), step("b", args={"text": "${steps.a.content.0.text}"}), inputSchema=SCHEMA, **more)
    return methods.add(methods.preview(json.dumps(value)), principal="system")


def text_of(client: Client, url: str) -> str:
    return page(client, url)


def digest_in(shown: str) -> str:
    return re.search(r'name="digest" value="([0-9a-f]{64})"', shown)[1]  # type: ignore[index]


def test_a_method_is_written_checked_and_saved_as_a_version() -> None:
    client = staff_client("gateway.add_methodversion", "gateway.view_method")
    sketch = text_of(client, f"{LIST}add/")
    assert "metamcp.io/v1alpha1" in sketch
    bad = client.post(f"{LIST}add/", {"manifest": '{"kind": "Method"}', "check": "yes"}).content.decode()
    assert "apiVersion: is required" in bad
    text = json.dumps(manifest(step("a"), step("b", dependsOn=["a"])))
    checked = client.post(f"{LIST}add/", {"manifest": text, "check": "yes"}).content.decode()
    assert "raw/echo is not known here" in checked and "<svg" in checked and not Method.objects.exists()
    saved = client.post(f"{LIST}add/", {"manifest": text, "save": "yes"})
    version = MethodVersion.objects.get()
    assert saved.status_code == 302 and version.reviewed_by == "" and version.created_by.startswith("user:")
    changed = json.dumps(manifest(step("a")))
    refused = client.post(f"{LIST}add/", {"manifest": changed, "save": "yes"}).content.decode()
    assert "needs a higher version" in refused and MethodVersion.objects.count() == 1


def test_only_a_reviewer_reviews_and_only_what_was_shown() -> None:
    version = added()
    _, reviewer = person("rita", methods.REVIEW)
    shown = text_of(reviewer, f"{LIST}{version.method_id}/change/")
    assert "not reviewed" in shown and 'id="run-form"' not in shown
    url = f"{LIST}version/{version.pk}/review/"
    _, other = person("otto", "gateway.view_method")
    assert other.post(url, {"digest": version.digest}).status_code == 403
    reviewer.post(url, {"digest": "0" * 64})
    assert methods.offered() == []
    reviewer.post(url, {"digest": digest_in(shown)})
    assert methods.offered() == [version] and MethodVersion.objects.get().reviewed_by == "user:rita"
    reviewer.post(url, {"withdraw": "yes"})
    assert methods.offered() == []


def test_the_form_made_from_the_schema_starts_a_run() -> None:
    version = added()
    _, client = person("rita", methods.REVIEW, "gateway.add_methodrun")
    client.post(f"{LIST}version/{version.pk}/review/", {"digest": version.digest})
    shown = text_of(client, f"{LIST}{version.method_id}/change/")
    assert "What to say." in shown and 'value="3"' in shown
    url = f"{LIST}version/{version.pk}/run/"
    assert "This field is required" in client.post(url, {}).content.decode() and not MethodRun.objects.exists()
    # In the order of the canonical manifest, what is required first.
    given = {"input-f0": "hi", "input-f1": "4", "input-f2": "5", "input-f3": "true", "input-f4": '["x"]'}
    begun = client.post(url, given)
    run = MethodRun.objects.get()
    assert begun.headers["Location"] == f"{RUNS}{run.pk}/change/"
    assert json.loads(run.input) == {"text": "hi", "count": 4, "mode": 5, "sure": True, "tags": ["x"]}
    assert (run.principal, run.owner, run.state, run.door) == ("user:rita", "", "running", "admin")
    assert "No step has begun yet" in text_of(client, f"{RUNS}{run.pk}/change/")
    assert run.public_id in text_of(client, RUNS) and run.public_id in text_of(
        client, f"{LIST}{version.method_id}/change/"
    )


def test_a_method_that_writes_needs_the_setting() -> None:
    version = added(effects="write")
    _, client = person("rita", methods.REVIEW, "gateway.add_methodrun")
    client.post(f"{LIST}version/{version.pk}/review/", {"digest": version.digest})
    url = f"{LIST}version/{version.pk}/run/"
    assert "may not write here" in client.post(url, {"input-f0": "x"}).content.decode()
    GatewaySettings.objects.create(pk=1, allow_method_writes=True)
    assert client.post(url, {"input-f0": "x"}).status_code == 302 and MethodRun.objects.count() == 1


def test_who_may_not_run_sees_no_form() -> None:
    version = added()
    _, client = person("rita", methods.REVIEW)
    client.post(f"{LIST}version/{version.pk}/review/", {"digest": version.digest})
    assert 'id="run-form"' not in text_of(client, f"{LIST}{version.method_id}/change/")
    assert client.post(f"{LIST}version/{version.pk}/run/", {"input-f0": "x"}).status_code == 403


def test_a_strangers_text_does_nothing_to_the_page() -> None:
    value = manifest(step("a", args={"text": f"<script>{SPOOF}"}))
    value["metadata"]["description"] = f"<script>{SPOOF}"
    methods.add(methods.preview(json.dumps(value)), principal="system")
    shown = text_of(staff_client("gateway.view_method"), f"{LIST}{Method.objects.get().pk}/change/")
    assert SHOWN_SPOOF in shown and SPOOF not in shown and "<script>" + SHOWN_SPOOF not in shown


def test_a_property_may_be_called_anything() -> None:
    schema = {"type": "object", "properties": {"input": {"type": "string"}, "f0": {"type": "number"}, "a b": {}}}
    form = InputForm(schema, {"input-f0": "x", "input-f1": "1.5", "input-f2": '{"k": null}'})
    assert form.is_valid() and form.value() == {"input": "x", "f0": 1.5, "a b": {"k": None}}
    open_form = InputForm({"type": "object"}, {"input-input": '{"any": 1}'})
    assert open_form.is_valid() and open_form.value() == {"any": 1}


def test_the_drawing_has_every_step_once_and_an_arrow_for_every_need() -> None:
    steps = step("a"), step("b"), step("c", dependsOn=["a", "b"])
    found, _ = read(json.dumps(manifest(*steps, parallel=True)))
    drawing = draw(found.spec)
    assert [box.step for box in drawing.boxes] == ["a", "b", "c"] and len(drawing.arrows) == 2
    assert drawing.boxes[0].x == drawing.boxes[1].x < drawing.boxes[2].x
    in_order = draw(read(json.dumps(copy.deepcopy(manifest(*steps))))[0].spec)
    assert in_order.boxes[0].x < in_order.boxes[1].x < in_order.boxes[2].x
