"""Several processes append at once: one chain, no gap, no lost entry, no lock error."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from django.contrib.auth.models import Group

from audit import services
from audit.models import Entry
from tests.conftest import ROOT, Home

WRITER = """
import sys, time, django
django.setup()
from django.contrib.auth.models import Group
from django.db import transaction
from audit.services import record
name, count = sys.argv[1], int(sys.argv[2])
longest = 0.0
for n in range(count):
    start = time.monotonic()
    try:
        with transaction.atomic():
            Group.objects.create(name=f"{name}.{n}")
            record("group.added", principal="system", subject=f"{name}.{n}")
            if n % 3 == 2:
                raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    longest = max(longest, time.monotonic() - start)
print(longest)
"""


def write_at_once(home: Home, *, processes: int, count: int) -> float:
    """Run the writers; the longest time that one append took, in seconds."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, f"p{n}", str(count)],
            cwd=ROOT,
            env=home.environ | {"DJANGO_SETTINGS_MODULE": "meah_site.settings"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(processes)
    ]
    longest = []
    for process in running:
        out, err = process.communicate(timeout=240)
        assert process.returncode == 0, err
        longest.append(float(out))
    return max(longest)


def assert_one_chain(expected: int) -> None:
    assert list(Entry.objects.values_list("seq", flat=True)) == list(range(expected))
    assert set(Entry.objects.values_list("subject", flat=True)) == set(Group.objects.values_list("name", flat=True))
    verdict = services.verify()
    assert (verdict.whole, verdict.size) == (True, expected)


def test_four_processes_write_one_gapless_chain(home: Home) -> None:
    longest = write_at_once(home, processes=4, count=60)
    assert_one_chain(4 * 40)
    assert longest < 5


@pytest.mark.slow
def test_eight_processes_write_one_gapless_chain_of_thousands(home: Home) -> None:
    write_at_once(home, processes=8, count=750)
    assert_one_chain(8 * 500)


def test_a_verification_does_not_hold_up_appends_nor_see_them_as_tampering(home: Home) -> None:
    write_at_once(home, processes=1, count=30)
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, "w", "90"],
        cwd=ROOT,
        env=home.environ | {"DJANGO_SETTINGS_MODULE": "meah_site.settings"},
        stdout=subprocess.DEVNULL,
    )
    rounds, until = 0, time.monotonic() + 60
    while writer.poll() is None:
        assert time.monotonic() < until
        assert services.verify().whole
        rounds += 1
    assert writer.wait() == 0
    assert rounds > 1
    assert_one_chain(20 + 60)
