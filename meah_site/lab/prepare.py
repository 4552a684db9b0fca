"""Fills the lab's home in one process: `python -m meah_site.lab.prepare POLICY SERVERS APPROVER…`.

Prints the approvers' tokens as a JSON object, by name, on its last line.
"""

from __future__ import annotations

import json
import sys


def main(policy: str, servers: str, *approvers: str) -> None:
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", interactive=False, verbosity=0, stdout=sys.stderr)
    call_command("policy", "import", policy, "--yes", stdout=sys.stderr)
    call_command("servers", "import", servers, "--yes", stdout=sys.stderr)
    sys.stdout.write(json.dumps({name: _token(name) for name in approvers}) + "\n")


def _token(name: str) -> str:
    """The token of a new user who may decide everything; nobody can log in with a password."""
    from django.contrib.auth.models import User

    from approvals import tokens

    user = User.objects.create_superuser(name, f"{name}@example.invalid", password=None)
    _, secret = tokens.create(name=f"{name}-lab", user=user, scopes=["approve"], expires_at=None, principal="system")
    return secret


if __name__ == "__main__":
    main(*sys.argv[1:])
