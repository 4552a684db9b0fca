from __future__ import annotations

import secrets

from django.db import migrations, models

from audit import triggers


def _create_head(apps, schema_editor):
    """The chain starts with its installation's id and nothing else."""
    apps.get_model("audit", "Head").objects.create(id=1, log=f"log_{secrets.token_hex(10)}")


def _install_triggers(apps, schema_editor):
    triggers.install(schema_editor.connection)


class Migration(migrations.Migration):
    initial = True
    dependencies = []
    operations = [
        migrations.CreateModel(
            name="Entry",
            fields=[
                ("seq", models.BigIntegerField(primary_key=True, serialize=False)),
                ("payload", models.BinaryField()),
                ("hash", models.CharField(max_length=64)),
                ("kind", models.CharField(max_length=64)),
                ("principal", models.CharField(max_length=200)),
                ("subject", models.CharField(blank=True, max_length=200)),
                ("at", models.DateTimeField(verbose_name="time")),
            ],
            options={
                "verbose_name_plural": "entries",
                "ordering": ["seq"],
                "base_manager_name": "objects",
                "indexes": [
                    models.Index(fields=["kind", "seq"], name="audit_entry_kind"),
                    models.Index(fields=["subject", "seq"], name="audit_entry_subject"),
                    models.Index(fields=["at"], name="audit_entry_at"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Head",
            fields=[
                ("id", models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False)),
                ("log", models.CharField(max_length=40)),
                ("size", models.BigIntegerField(default=0)),
                ("last_hash", models.CharField(default="0" * 64, max_length=64)),
            ],
            options={
                "base_manager_name": "objects",
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("id", 1)), name="audit_head_is_single")
                ],
            },
        ),
        migrations.CreateModel(
            name="LoginFailure",
            fields=[
                ("source", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("unrecorded", models.PositiveIntegerField(default=0)),
                ("first_at", models.DateTimeField(null=True)),
                ("last_at", models.DateTimeField(null=True)),
                ("recorded_in", models.DateTimeField(null=True, verbose_name="minute of the last entry")),
            ],
        ),
        migrations.RunPython(_create_head, migrations.RunPython.noop),
        migrations.RunPython(_install_triggers, migrations.RunPython.noop),
    ]
