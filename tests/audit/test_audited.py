"""What is changed in the admin stands in the chain, before and after; what can not be recorded is not changed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.contrib.contenttypes.models import ContentType
from django.test import Client

from audit import services
from audit.models import Entry
from tests.audit.histories import break_chain

pytestmark = pytest.mark.django_db

DECIDE = "auth.view_user"


def entries(kind: str) -> list[dict[str, Any]]:
    """Data of all entries of a kind, their states decoded; principal and subject with them."""
    out = []
    for entry in Entry.objects.filter(kind=kind):
        data = json.loads(entry.payload)["data"]
        states = {name: data[name] and json.loads(data[name]) for name in ("before", "after")}
        out.append(data | states | {"principal": entry.principal, "subject": entry.subject})
    return out


def permission(name: str) -> Permission:
    app, codename = name.split(".")
    return Permission.objects.get(content_type__app_label=app, codename=codename)


def user_form(user: User, **changed: Any) -> dict[str, Any]:
    form = {"username": user.username, "is_active": "on", "date_joined_0": "2026-11-30", "date_joined_1": "12:00:00"}
    return form | changed


@pytest.fixture
def bob(db: None) -> User:
    return User.objects.create_user("bob", password="first-pass-phrase")


def test_a_new_user_is_recorded_without_the_password(admin_client: Client) -> None:
    password = "a-Long-phrase-9"
    form = {"username": "carol", "password1": password, "password2": password, "usable_password": "true"}
    assert admin_client.post("/admin/auth/user/add/", form).status_code == 302
    [added] = entries("user.added")
    assert (added["principal"], added["subject"], added["before"]) == ("user:admin", "carol", None)
    assert added["after"]["username"] == "carol"
    assert added["after"]["password"].startswith("[")
    chain = b"".join(bytes(entry.payload) for entry in Entry.objects.all())
    assert b"a-Long-phrase-9" not in chain
    assert b"md5$" not in chain


def test_a_change_of_groups_permissions_and_activity_is_recorded(admin_client: Client, bob: User) -> None:
    group = Group.objects.create(name="approvers")
    form = user_form(bob, groups=[group.pk], user_permissions=[permission(DECIDE).pk])
    del form["is_active"]
    assert admin_client.post(f"/admin/auth/user/{bob.pk}/change/", form).status_code == 302
    [changed] = entries("user.changed")
    assert set(changed["changed"]) >= {"groups", "is_active", "user_permissions"}
    assert "password" not in changed["changed"]
    assert (changed["before"]["groups"], changed["after"]["groups"]) == ([], ["approvers"])
    assert (changed["before"]["is_active"], changed["after"]["is_active"]) == (True, False)
    assert changed["after"]["user_permissions"] == [DECIDE]
    assert services.verify().whole


@pytest.mark.parametrize("usable", [True, False])
def test_a_changed_password_is_recorded_without_its_hash(admin_client: Client, bob: User, usable: bool) -> None:
    form = {"password1": "a-Long-phrase-9", "password2": "a-Long-phrase-9", "usable_password": "true"}
    if not usable:
        form = {"password1": "", "password2": "", "usable_password": "false", "unset-password": "1"}
    assert admin_client.post(f"/admin/auth/user/{bob.pk}/password/", form).status_code == 302
    [changed] = entries("user.changed")
    assert changed["changed"] == ["password"]
    assert changed["subject"] == "bob"
    assert b"md5$" not in b"".join(bytes(entry.payload) for entry in Entry.objects.all())


def test_a_save_that_changes_nothing_is_not_recorded(admin_client: Client) -> None:
    group = Group.objects.create(name="approvers")
    assert admin_client.post(f"/admin/auth/group/{group.pk}/change/", {"name": "approvers"}).status_code == 302
    assert entries("group.changed") == []


def test_permissions_of_a_group_are_recorded_by_name(admin_client: Client) -> None:
    group = Group.objects.create(name="approvers")
    form = {"name": "deciders", "permissions": [permission(DECIDE).pk]}
    admin_client.post(f"/admin/auth/group/{group.pk}/change/", form)
    [changed] = entries("group.changed")
    assert changed["changed"] == ["name", "permissions"]
    assert changed["before"] == {"id": group.pk, "name": "approvers", "permissions": []}
    assert changed["after"] == {"id": group.pk, "name": "deciders", "permissions": [DECIDE]}


def test_a_deletion_is_recorded_with_what_was_there(admin_client: Client) -> None:
    group = Group.objects.create(name="approvers")
    group.permissions.add(permission(DECIDE))
    admin_client.post(f"/admin/auth/group/{group.pk}/delete/", {"post": "yes"})
    [deleted] = entries("group.deleted")
    assert deleted["before"] == {"id": group.pk, "name": "approvers", "permissions": [DECIDE]}
    assert deleted["after"] is None
    assert not Group.objects.exists()


def test_deleting_the_selected_records_each(admin_client: Client) -> None:
    groups = [Group.objects.create(name=name) for name in ("a", "b", "c")]
    form = {"action": "delete_selected", "_selected_action": [groups[0].pk, groups[2].pk], "post": "yes"}
    admin_client.post("/admin/auth/group/", form)
    assert {entry["before"]["name"] for entry in entries("group.deleted")} == {"a", "c"}
    assert [group.name for group in Group.objects.all()] == ["b"]


@pytest.mark.urls("tests.audit.urls")
def test_rows_of_inlines_are_recorded_with_their_parent(admin_client: Client) -> None:
    shelf = ContentType.objects.create(app_label="x", model="books")
    form = {
        "app_label": "x",
        "model": "books",
        "permission_set-TOTAL_FORMS": "1",
        "permission_set-INITIAL_FORMS": "0",
        "permission_set-0-content_type": str(shelf.pk),
        "permission_set-0-name": "May read",
        "permission_set-0-codename": "read",
    }
    response = admin_client.post(f"/admin/contenttypes/contenttype/{shelf.pk}/change/", form)
    assert response.status_code == 302
    [changed] = entries("shelf.changed")
    assert changed["subject"] == "shelf books"
    assert changed["changed"] == ["permissions"]
    assert changed["before"]["permissions"] == []
    assert changed["after"]["permissions"][0]["codename"] == "read"


@pytest.mark.urls("tests.audit.urls")
def test_a_change_in_an_editable_list_is_recorded(admin_client: Client) -> None:
    ContentType.objects.filter(app_label="x").delete()
    shelves = list(ContentType.objects.order_by("-pk"))
    form: dict[str, Any] = {
        "form-TOTAL_FORMS": str(len(shelves)),
        "form-INITIAL_FORMS": str(len(shelves)),
        "_save": "Save",
    }
    for at, shelf in enumerate(shelves):
        form |= {f"form-{at}-id": str(shelf.pk), f"form-{at}-model": shelf.model}
    form["form-0-model"] = "renamed"
    response = admin_client.post("/admin/contenttypes/contenttype/", form)
    assert response.status_code == 302
    [changed] = entries("shelf.changed")
    assert "model" in changed["changed"]
    assert (changed["before"]["model"], changed["after"]["model"]) == (shelves[0].model, "renamed")


@pytest.mark.parametrize("action", ["add", "change", "delete", "delete_selected", "password"])
def test_what_can_not_be_recorded_does_not_happen(admin_client: Client, bob: User, action: str) -> None:
    group = Group.objects.create(name="approvers")
    posts: dict[str, tuple[str, dict[str, Any]]] = {
        "add": ("/admin/auth/group/add/", {"name": "new"}),
        "change": (f"/admin/auth/group/{group.pk}/change/", {"name": "new"}),
        "delete": (f"/admin/auth/group/{group.pk}/delete/", {"post": "yes"}),
        "delete_selected": (
            "/admin/auth/group/",
            {"action": "delete_selected", "_selected_action": [group.pk], "post": "yes"},
        ),
        "password": (
            f"/admin/auth/user/{bob.pk}/password/",
            {"password1": "a-Long-phrase-9", "password2": "a-Long-phrase-9", "usable_password": "true"},
        ),
    }
    break_chain()
    assert admin_client.post(*posts[action]).status_code == 503
    assert [found.name for found in Group.objects.all()] == ["approvers"]
    bob.refresh_from_db()
    assert bob.check_password("first-pass-phrase")
