from __future__ import annotations

from typing import Any

from django.db import migrations

from approvals.shipped import add_shipped_rules


def add(apps: Any, schema_editor: Any) -> None:
    add_shipped_rules(apps.get_model("approvals", "Rule"))


class Migration(migrations.Migration):
    dependencies = [("approvals", "0002_govern")]

    operations = [migrations.RunPython(add, migrations.RunPython.noop)]
