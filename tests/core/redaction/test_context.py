from __future__ import annotations

import random

import pytest

from core.redaction import looks_like_key, redact
from tests.core.redaction.fakes import CONTEXTS, SYMBOLS, VALUES, chars


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("kind", VALUES)
def test_a_value_behind_the_name_of_a_credential_is_found(context: str, kind: str) -> None:
    rng = random.Random(context + kind)
    for _ in range(3):
        value = VALUES[kind](rng)
        text = context.format(value)
        clean = redact(text)
        assert value[:8] not in clean
        assert value[-8:] not in clean
        assert clean.startswith(context.partition("{}")[0].format()[:8])
        assert redact(clean) == clean


@pytest.mark.parametrize(
    "text",
    [
        'password = "{}"',
        '"password": "{}"',
        "password: '{}'",
        "DB_PASSWORD='{}'",
        "const dbPassword = `{}`;",
        '{{\\"password\\":\\"{}\\"}}',
        "--password '{}'",
        "DB_PASSWORD={}\n",
    ],
)
def test_passwords_with_symbols_are_found_whole(text: str) -> None:
    rng = random.Random(text)
    for _ in range(40):
        value = "k3" + chars(rng, 18, SYMBOLS) + "#9"
        clean = redact(text.format(value))
        assert not any(value[start : start + 6] in clean for start in range(len(value) - 5)), value


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ('password = "hunter2hunter"', 'password = "[redacted:password]"'),
        ("password=hunter2", "password=[redacted:password]"),
        ('password: "correct horse 7 battery!"', 'password: "[redacted:password]"'),
        ('password: "correcthorsebattery"', 'password: "[redacted:password]"'),
        ('"token":"abc123def456", "x":1', '"token":"[redacted:secret]", "x":1'),
        ("token=abc123def456&x=1", "token=[redacted:secret]&x=1"),
        ("MEAH_TOKEN=abc123def456 python x", "MEAH_TOKEN=[redacted:secret] python x"),
        ("Authorization: Basic dXNlcjpwYXNzd29yZA==", "Authorization: Basic [redacted:authorization]"),
        ("Bearer 0123456789abcdef0123", "Bearer [redacted:authorization]"),
        ("Set-Cookie: sid=a1b2c3d4e5; Path=/\nX: y", "Set-Cookie: [redacted:cookie]\nX: y"),
        ("psql postgresql://me:pa55word@db/x", "psql postgresql://me:[redacted:url-password]@db/x"),
        ("redis://:pa55word@db/0", "redis://:[redacted:url-password]@db/0"),
        ("curl -u me:pa55word https://h", "curl -u [redacted:password] https://h"),
        ("mysql --password pa55word -h x", "mysql --password [redacted:password] -h x"),
        ("api_key%3Dabc123def456", "api_key%3D[redacted:secret]"),
    ],
)
def test_only_the_value_is_replaced(text: str, clean: str) -> None:
    assert redact(text) == clean
    assert redact(clean) == clean


@pytest.mark.parametrize(
    "text",
    [
        # code
        "token = get_token()",
        "token = oauth2.fetch_token(client)",
        "self.password = password",
        "password=self.password2",
        "password = hash2password(raw)",
        'password = os.environ["DB_PASSWORD"]',
        'password: str = Field(default="")',
        "secret: Uint8Array = new Uint8Array(32)",
        "token = tokens[12:34]",
        "token = token[:-1]",
        "api_key=settings.API_KEY",
        'api_key = os.getenv("OPENAI_API_KEY")',
        'apiKeyEnv: "MEAH_GLM_API_KEY"',
        "max_tokens: 2048, maxOutputTokens: 4096, total_tokens=1234567",
        '"inputTokens": 12, "tokens": ["abc123def"]',
        '"nextPageToken": "CAUQAA0123456789"',
        '"progressToken": "a1b2c3d4e5f6"',
        "token_type: bearer",
        'type="password" name="password"',
        '<label for="password">Password:</label>',
        "privateKey=self.sKey",
        "const token = await this.auth2.token;",
        "SECRET_KEY = env('SECRET_KEY')",
        "secret = sha256(data).hexdigest()",
        "if token == 'Identifier':",
        "PASSWORD_HASHERS = ['argon2']",
        "PWD=/home/user1/project2",
        # templates and manuals
        "password: ${DB_PASSWORD_1}",
        "password: {{ vault_password1 }}",
        "token: <your-token-1>",
        'api_key="sk-..."',
        "DB_PASSWORD=$DB_PASSWORD_2",
        "Authorization: Bearer $TOKEN",
        "Authorization: Bearer {token}",
        "Authorization: Bearer <token>",
        'headers = {"Authorization": f"Bearer {key}"}',
        "password=%s",
        'password: "********"',
        "password: changeme",
        "https://user:password@host/",
        "https://user:${PASS}@host/",
        # prose
        "The password is required. Password: at least 8 characters.",
        "Basic authentication: see token 12.",
        "A bearer token is a secret; the secret: never write it down.",
        "cookie: a small text",
        "docker run -u 1000:1000 image",
        "ssh user@host:path and mail me@example.org",
        "http://localhost:8000/x?a=b@c",
        "--token-file /run/x1 --no-password --help",
    ],
)
def test_ordinary_code_and_prose_stay(text: str) -> None:
    assert redact(text) == text
    assert not looks_like_key(text)


@pytest.mark.parametrize(
    "text",
    [
        'password="[redacted:password]"',
        "password=[redacted:MEAH_KEY]",
        "MEAH_KEY=[redacted:MEAH_KEY]",
        '"see password: [redacted:secret] 123!"',
        "Authorization: Bearer [redacted:authorization]",
        "https://u:[redacted:url-password]@h/",
        "Cookie: a=[redacted:MEAH_KEY]; b=c4d5e6f7",
        "[redacted:MEAH_TOKEN]=abc123def456",
        "[redacted:password]: abc123def456",
    ],
)
def test_replacements_are_never_replaced(text: str) -> None:
    assert redact(text) == text
