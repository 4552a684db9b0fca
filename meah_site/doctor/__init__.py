"""The doctor: looks at everything that MEAH needs, and says what to do about what is wrong."""

from __future__ import annotations

from dataclasses import dataclass

from core.errors import JsonObject
from meah_site.doctor import database, installation, limits, processes, providers, records
from meah_site.doctor.findings import Group, Level, info
from meah_site.version import version


@dataclass(frozen=True)
class Report:
    groups: tuple[Group, ...]

    def count(self, level: Level) -> int:
        return sum(finding.level is level for group in self.groups for finding in group.findings)

    @property
    def healthy(self) -> bool:
        return self.count(Level.PROBLEM) == 0

    def as_dict(self) -> JsonObject:
        return {
            "ok": self.healthy,
            "version": version(),
            "problems": self.count(Level.PROBLEM),
            "warnings": self.count(Level.WARNING),
            "groups": [group.as_dict() for group in self.groups],
        }


def examine(*, port: int, probe: str | None = None) -> Report:
    """Look at everything. `probe`: a provider to call, all of them where empty, none where None."""
    about_database, usable = database.examine()
    groups = [installation.examine(), about_database, processes.examine(port, usable=usable)]
    if not usable:
        groups.append(_unseen("Providers, audit chain, storage", "the database can not be used as it is"))
        return Report((*groups, limits.examine(None)))
    about_configuration, config = providers.configuration()
    groups.append(about_configuration)
    if config is None:
        groups += [records.chain(), _unseen("Storage", "the configuration can not be used as it is")]
    else:
        groups += [providers.examine(config), records.chain(), records.storage(config)]
        groups += [] if probe is None else [providers.probes(config, probe)]
    return Report((*groups, limits.examine(config)))


def _unseen(title: str, why: str) -> Group:
    return Group(title, (info("all of it", f"not looked at: {why}"),))
