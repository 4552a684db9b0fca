from __future__ import annotations

import io
import json
import stat
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from audit.models import Entry
from core.errors import MeahError
from workers import config_file, config_import
from workers.config import effective, stored_values
from workers.config_fields import Values
from workers.models import Provider, ProviderModel, RoleRoute, WorkerSettings
from workers.routing import AllowedCommand, choose

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "meah.config.json"
FAKE_KEY = "sk-" + "proj-" + "a1B2c3D4" * 6

GLM = {"baseUrl": "https://glm.test/v4", "apiKeyEnv": "MY_KEY", "model": "a", "models": ["b", "a"]}


def as_bytes(document: Any) -> bytes:
    return json.dumps(document).encode()


def refused(data: bytes) -> MeahError:
    with pytest.raises(MeahError) as caught:
        config_file.loads(data)
    assert caught.value.code == "E_CONFIG"
    return caught.value


def test_the_example_is_valid() -> None:
    values = config_file.loads(EXAMPLE.read_bytes())
    assert list(values.providers) == ["glm", "aicredits", "local"]
    assert len(values.roles) == 6


def test_values_are_read_by_their_wire_names() -> None:
    document = {
        "providers": {"glm": {**GLM, "baseUrl": "https://glm.test/v4/chat/completions/", "private": None}},
        "roles": {"coder": {"provider": "glm", "maxOutputTokens": None, "temperature": 1, "systemPrompt": "A\nB"}},
        "defaults": {"timeoutMs": 1000, "onClientExit": "finish"},
        "terminal": {"allowlist": ["/bin/ls", {"path": "/bin/cat", "args": ["[a-z]+"]}]},
    }
    values = config_file.loads(as_bytes(document))
    assert values.providers["glm"]["base_url"] == "https://glm.test/v4"
    assert values.providers["glm"]["models"] == ("b", "a")
    assert values.roles["coder"] == {
        "provider": "glm",
        "max_output_tokens": None,
        "temperature": 1.0,
        "system_prompt": "A\nB",
    }
    assert values.defaults == {"timeout_ms": 1000, "on_client_exit": "finish"}
    assert values.terminal["allowlist"] == (AllowedCommand("/bin/ls"), AllowedCommand("/bin/cat", ("[a-z]+",)))


BAD = [
    ({"provider": {}}, "provider is not known", "Did you mean providers?"),
    ({"providers": {"glm": {"baseURL": "x"}}}, "providers.glm.baseURL is not known", "baseUrl"),
    ({"providers": {"glm": {"apiKey": FAKE_KEY}}}, "providers.glm.apiKey is not known", "No key stands"),
    ({"providers": {"glm": {"headers": {}}}}, "providers.glm.headers is not known", "No key stands"),
    ({"providers": {"glm": {"apiKeyEnv": FAKE_KEY}}}, "providers.glm.apiKeyEnv holds", "variables"),
    ({"providers": {"glm": {"apiKeyEnv": "lower-key"}}}, "apiKeyEnv must be the NAME", "MY_API_KEY"),
    ({"providers": {"glm": {"baseUrl": "glm.test"}}}, "providers.glm.baseUrl is not valid", "https://glm.test"),
    ({"providers": {"glm": {"baseUrl": "https://u:p@glm.test"}}}, "providers.glm.baseUrl", ""),
    ({"providers": {"glm": {"baseUrl": ""}}}, "providers.glm.baseUrl is not valid", "base URL"),
    ({"providers": {"glm": {"models": "a,b"}}}, "models must be a list", "[]"),
    ({"providers": {"glm": {"models": [1]}}}, "models must be a text", "quotes"),
    ({"providers": {"glm": {"private": "yes"}}}, "private must be true or false", "true"),
    ({"providers": {"glm": []}}, "providers.glm must be an object", "{...}"),
    ({"providers": {"GLM": {}}}, "providers.GLM has no valid provider name", "lower-case"),
    ({"providers": {"mock": {}}}, "providers.mock names the built-in provider", "another"),
    ({"providers": {FAKE_KEY.lower()[:32]: {}}}, "providers.", ""),
    ({"providers": []}, "providers must be an object", "{...}"),
    ({"roles": {"codr": {}}}, "roles.codr is no role", "Did you mean 'coder'?"),
    ({"roles": {"coder": {"temperature": 3}}}, "roles.coder.temperature must be", "between"),
    ({"roles": {"coder": {"temperature": True}}}, "roles.coder.temperature must be", "between"),
    ({"roles": {"coder": {"maxOutputTokens": 0}}}, "roles.coder.maxOutputTokens must be", "between"),
    ({"roles": {"coder": {"systemPrompt": "x" * 20_001}}}, "20001 characters, 20000 at most", "Shorten"),
    ({"roles": {"coder": {"provider": "No Name"}}}, "roles.coder.provider has no valid", "lower-case"),
    ({"defaults": {"maxConcurrent": -1}}, "defaults.maxConcurrent must be a whole number", "between"),
    ({"defaults": {"maxConcurrent": 4.0}}, "defaults.maxConcurrent must be a whole number", "between"),
    (
        {"defaults": {"maxConcurrent": "4"}},
        'defaults.maxConcurrent must be a whole number from 1 to 256, and is "4"',
        "",
    ),
    ({"defaults": {"maxConcurrent": None}}, "defaults.maxConcurrent must be", "between"),
    ({"defaults": {"timeoutMS": 1}}, "defaults.timeoutMS is not known", "Did you mean timeoutMs?"),
    ({"terminal": {"allowlist": ["ls"]}}, "terminal.allowlist has the entry 'ls'", "from / on"),
    ({"terminal": {"allowlist": [{"path": "/bin/ls", "arg": []}]}}, "terminal.allowlist has an entry", "path"),
    ({"terminal": {"allowlist": [7]}}, "terminal.allowlist has an entry", "path"),
    ([], "The file must hold one object", "providers"),
    (None, "The file must hold one object", "providers"),
]


@pytest.mark.parametrize(("document", "problem", "fix"), BAD)
def test_what_is_wrong_is_named_by_its_path_with_the_fix(document: Any, problem: str, fix: str) -> None:
    error = refused(as_bytes(document))
    assert problem in error.message
    assert fix in error.hint
    assert "a1b2c3d4" not in str(error.as_dict()).lower()
    assert "u:p@" not in str(error.as_dict())


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b'{\n  "providers": {,}\n}', "line 2, column 17"),
        (b'{"defaults": {}} trailing', "line 1, column 18"),
        (b"", "line 1, column 1"),
        (b"{'providers': {}}", "line 1, column 2"),
        (b'{"defaults": {"maxRetries": 1, "maxRetries": 2}}', "refused"),
        (b'{"defaults": {"maxRetries": NaN}}', "refused"),
        (b'{"defaults": {"maxRetries": ' + b"9" * 5000 + b"}}", "refused"),
        (b"[" * 100_000, "refused"),
        (b"\xff\xfe{}", "refused"),
        (b'{"a": "\\ud800"}', "refused"),
        (b" " * (1024 * 1024 + 1), ""),
    ],
)
def test_a_file_that_is_no_strict_json_is_refused_with_the_place(data: bytes, place: str) -> None:
    error = refused(data)
    assert error.message.startswith("The file is ")
    assert place in error.message


def test_everything_that_is_wrong_is_told_at_once() -> None:
    document = {"defaults": {"maxRetries": -1, "what": 1}, "roles": {"x": {}}}
    problems = refused(as_bytes(document)).details["problems"]
    assert [problem["path"] for problem in problems] == ["defaults.maxRetries", "defaults.what", "roles.x"]


def write(document: Any) -> list[config_file.Change]:
    return config_import.import_config(as_bytes(document), principal="user:ann")


@pytest.mark.django_db
def test_the_example_imports_into_an_empty_installation_and_works() -> None:
    assert config_import.import_config(EXAMPLE.read_bytes(), principal="user:ann")
    config = effective()
    assert [choose(config, role=role).provider.name for role in ("researcher", "coder")] == ["glm", "aicredits"]
    assert choose(config, role="reviewer").model == "openai/gpt-4o-mini"
    assert config_import.import_config(EXAMPLE.read_bytes(), principal="user:ann") == []


@pytest.mark.django_db
def test_an_import_writes_rows_and_one_entry_with_before_and_after() -> None:
    Provider.objects.create(name="glm", base_url="https://old.test/v1", description="stays")
    changes = write({"providers": {"glm": GLM}, "defaults": {"maxRetries": 0}})
    assert [change.path for change in changes] == [
        "defaults.maxRetries",
        "providers.glm.apiKeyEnv",
        "providers.glm.baseUrl",
        "providers.glm.model",
        "providers.glm.models",
    ]
    glm = Provider.objects.get(name="glm")
    assert (glm.base_url, glm.description) == ("https://glm.test/v4", "stays")
    assert set(glm.provider_models.values_list("name", "listed")) == {("a", True), ("b", True)}
    assert WorkerSettings.objects.get().max_retries == 0
    entry = Entry.objects.get(kind="config.imported")
    assert entry.principal == "user:ann"
    payload = json.loads(bytes(entry.payload))
    told = json.dumps(payload)
    assert "https://old.test/v1" in told
    assert "https://glm.test/v4" in told


@pytest.mark.django_db
def test_what_the_file_does_not_mention_stays() -> None:
    write({"providers": {"glm": GLM, "other": {"baseUrl": "https://o.test"}}, "defaults": {"maxRetries": 0}})
    write({"providers": {"glm": {"model": "b"}}})
    values = stored_values()
    assert list(values.providers) == ["glm", "other"]
    assert values.providers["glm"]["model"] == "b"
    assert values.providers["glm"]["base_url"] == "https://glm.test/v4"
    assert values.defaults["max_retries"] == 0


@pytest.mark.django_db
def test_a_list_of_models_is_replaced_and_what_was_known_of_them_is_kept() -> None:
    write({"providers": {"glm": GLM}})
    ProviderModel.objects.filter(name="a").update(input_price=Decimal(3))
    write({"providers": {"glm": {"models": ["b", "c"]}}})
    assert effective().providers["glm"].models == ("b", "c")
    assert ProviderModel.objects.get(name="a").input_price == Decimal(3)
    write({"providers": {"glm": {"models": []}}})
    assert effective().providers["glm"].models == ()


@pytest.mark.django_db
def test_export_then_import_changes_nothing() -> None:
    write(
        {
            "providers": {"glm": {**GLM, "private": True}, "other": {"baseUrl": "http://localhost:1/v1"}},
            "roles": {"coder": {"provider": "glm", "model": "b", "temperature": 0.5, "systemPrompt": "é\n⟨x⟩"}},
            "defaults": {"workspaceRoot": "elsewhere", "retainTranscripts": True},
            "terminal": {"enabled": True, "allowlist": ["/bin/ls", {"path": "/bin/cat", "args": []}]},
        }
    )
    Provider.objects.create(name="remembered", base_url="")
    before = stored_values()
    exported = config_import.export_config()
    assert config_import.preview(exported.encode()) == []
    assert config_import.import_config(exported.encode(), principal="user:ann") == []
    assert stored_values() == before
    assert Entry.objects.filter(kind="config.imported").count() == 1


@pytest.mark.django_db
def test_an_export_makes_the_same_configuration_elsewhere() -> None:
    write({"providers": {"glm": GLM}, "roles": {"coder": {"provider": "glm", "temperature": 0}}})
    exported, before = config_import.export_config(), stored_values()
    for model in (ProviderModel, Provider, RoleRoute, WorkerSettings):
        model.objects.all().delete()
    config_import.import_config(exported.encode(), principal="user:ann")
    assert stored_values() == before


@pytest.mark.django_db
def test_the_environment_is_never_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEAH_MAX_RETRIES", "9")
    monkeypatch.setenv("MY_KEY", FAKE_KEY)
    write({"providers": {"glm": GLM}})
    document = json.loads(config_import.export_config())
    assert document["defaults"]["maxRetries"] == 2
    assert document["providers"]["glm"]["apiKeyEnv"] == "MY_KEY"
    assert FAKE_KEY not in json.dumps(document)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"providers": {"new": {"model": "m"}}}, "providers.new.baseUrl is missing"),
        ({"roles": {"coder": {"provider": "gone"}}}, "roles.coder: the provider 'gone' is not configured"),
        ({"providers": {"glm": GLM}, "roles": {"coder": {"provider": "glm", "model": "z"}}}, "does not list"),
        (
            {"providers": {"x": {"baseUrl": "https://x.test"}}, "roles": {"coder": {"provider": "x"}}},
            "no default model",
        ),
    ],
)
def test_a_file_that_does_not_fit_together_changes_nothing(document: Any, message: str) -> None:
    before = stored_values()
    with pytest.raises(MeahError, match=message) as caught:
        write({**document, "defaults": {"maxRetries": 0}})
    assert caught.value.code == "E_CONFIG"
    assert stored_values() == before
    assert not Entry.objects.exists()


@pytest.mark.django_db(transaction=False)
def test_nothing_is_half_done_when_the_chain_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    before = stored_values()

    def broken(*args: object, **kwargs: object) -> None:
        raise MeahError("E_AUDIT")

    monkeypatch.setattr(config_import, "record", broken)
    with pytest.raises(MeahError):
        write({"providers": {"glm": GLM}, "roles": {"coder": {"provider": "glm"}}, "defaults": {"maxRetries": 0}})
    assert stored_values() == before


@pytest.mark.django_db
def test_a_provider_of_the_environment_may_be_routed_to_and_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEAH_PROVIDER_LOCAL_BASE_URL", "http://localhost:1/v1")
    monkeypatch.setenv("MEAH_PROVIDER_LOCAL_MODEL", "m")
    write({"roles": {"coder": {"provider": "local"}, "builder": {"provider": "mock"}}})
    write({"providers": {"local": {"description": "Here."}}})
    local = effective().providers["local"]
    assert (local.description, local.base_url) == ("Here.", "http://localhost:1/v1")


def test_the_order_of_models_is_no_difference() -> None:
    one = Values(providers={"glm": {"models": ("a", "b")}})
    other = Values(providers={"glm": {"models": ("b", "a")}})
    assert config_file.difference(one, other) == []
    assert config_file.difference(one, Values(providers={"glm": {"models": ("a",)}}))


def command(*args: Any) -> str:
    out = io.StringIO()
    call_command("config", *args, stdout=out, no_color=True)
    return out.getvalue()


@pytest.mark.django_db
def test_the_command_previews_and_writes_only_with_yes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEAH_MAX_RETRIES", "1")
    path = tmp_path / "meah.config.json"
    path.write_bytes(as_bytes({"providers": {"glm": GLM}, "defaults": {"maxRetries": 0}}))
    said = command("import", str(path))
    assert "defaults.maxRetries" in said
    assert '"https://glm.test/v4"' in said
    assert "Nothing is written yet" in said
    assert "defaults.maxRetries is set by the environment too" in said
    assert not Provider.objects.exists()
    assert "Written: 5 changed." in command("import", str(path), "--yes")
    assert Provider.objects.get().name == "glm"
    assert "Nothing to change" in command("import", str(path), "--yes")


@pytest.mark.django_db
def test_the_command_exports_to_a_file_of_the_owners_own(tmp_path: Path) -> None:
    write({"providers": {"glm": GLM}})
    out = tmp_path / "out.json"
    out.write_text("old")
    command("export", "--out", str(out))
    assert out.read_text() == command("export") == config_import.export_config()
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


@pytest.mark.django_db
def test_the_command_tells_every_problem_and_no_traceback(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(as_bytes({"defaults": {"maxRetries": -1}, "role": {}}))
    with pytest.raises(CommandError) as caught:
        command("import", str(path), "--yes")
    told = str(caught.value)
    assert "defaults.maxRetries must be" in told
    assert "role is not known. Did you mean roles?" in told


@pytest.mark.django_db
@pytest.mark.parametrize("args", [("import", "nowhere.json"), ("export", "--out", "/nowhere/at/all.json")])
def test_a_path_that_cannot_be_used_is_told(args: tuple[str, ...]) -> None:
    with pytest.raises(CommandError, match="No such file or directory"):
        command(*args)
