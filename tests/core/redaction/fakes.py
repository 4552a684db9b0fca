"""Credentials that never were: made at run time, so that no scanner of this repository takes them for real ones."""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable

ALNUM = string.ascii_letters + string.digits
URL_SAFE = ALNUM + "-_"
HEX = "0123456789abcdef"
BASE32 = string.ascii_uppercase + "234567"
SYMBOLS = ALNUM + "!#$%^*?+-_=.~@"

Fake = Callable[[random.Random], str]


def chars(rng: random.Random, count: int, alphabet: str = ALNUM) -> str:
    return "".join(rng.choices(alphabet, k=count))


def jwt(rng: random.Random) -> str:
    parts = (json.dumps(part).encode() for part in ({"alg": "HS256", "typ": "JWT"}, {"sub": chars(rng, 12)}))
    header, payload = (base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)
    return f"{header}.{payload}.{chars(rng, 43, URL_SAFE)}"


def pem(rng: random.Random, kind: str = "RSA ", lines: int = 6) -> str:
    body = [chars(rng, 64, ALNUM + "+/") for _ in range(lines)] + [chars(rng, rng.randint(1, 60)) + "=="]
    return "\n".join([f"-----BEGIN {kind}PRIVATE KEY-----", *body, f"-----END {kind}PRIVATE KEY-----"])


def prefixed(prefix: str, count: int, alphabet: str = ALNUM) -> Fake:
    return lambda rng: prefix + chars(rng, count, alphabet)


FORMATS: dict[str, Fake] = {
    "anthropic": prefixed("sk-" + "ant-api03-", 95, URL_SAFE),
    "openai": prefixed("sk-", 48),
    "openai project": prefixed("sk-" + "proj-", 120, URL_SAFE),
    "openai project, short": prefixed("sk-" + "proj-", 16),
    "openrouter": prefixed("sk-" + "or-v1-", 64, HEX),
    "deepseek": prefixed("sk-", 32, HEX),
    "z.ai": lambda rng: f"{chars(rng, 32, HEX)}.{chars(rng, 16)}",
    "github classic": prefixed("gh" + "p_", 36),
    "github oauth": prefixed("gh" + "o_", 36),
    "github fine-grained": lambda rng: f"github_{'pat'}_{chars(rng, 22)}_{chars(rng, 59)}",
    "gitlab": prefixed("gl" + "pat-", 20, URL_SAFE),
    "slack bot": lambda rng: (
        f"xo{'xb'}-{chars(rng, 12, string.digits)}-{chars(rng, 13, string.digits)}-{chars(rng, 24)}"
    ),
    "slack app": lambda rng: f"xa{'pp'}-1-A{chars(rng, 10)}-{chars(rng, 13, string.digits)}-{chars(rng, 64, HEX)}",
    "aws key id": prefixed("AK" + "IA", 16, BASE32),
    "aws temporary key id": prefixed("AS" + "IA", 16, BASE32),
    "google api key": prefixed("AI" + "za", 35, URL_SAFE),
    "google access token": prefixed("ya" + "29.", 80, URL_SAFE),
    "google client": prefixed("GOC" + "SPX-", 28, URL_SAFE),
    "hugging face": prefixed("h" + "f_", 34, string.ascii_letters),
    "npm": prefixed("np" + "m_", 36),
    "pypi": prefixed("py" + "pi-AgEIcHlwaS5vcmc", 80, URL_SAFE),
    "stripe secret": prefixed("sk_" + "live_", 24),
    "stripe restricted": prefixed("rk_" + "live_", 99),
    "sendgrid": lambda rng: f"S{'G'}.{chars(rng, 22, URL_SAFE)}.{chars(rng, 43, URL_SAFE)}",
    "twilio": prefixed("S" + "K", 32, HEX),
    "digitalocean": prefixed("dop_" + "v1_", 64, HEX),
    "telegram": lambda rng: f"{chars(rng, 10, '123456789')}:AA{chars(rng, 33, URL_SAFE)}",
    "meah": prefixed("meah_", 43, URL_SAFE),
    "groq": prefixed("gs" + "k_", 52),
    "xai": prefixed("xa" + "i-", 80),
    "replicate": prefixed("r" + "8_", 37),
    "perplexity": prefixed("pp" + "lx-", 48),
    "nvidia": prefixed("nv" + "api-", 64, URL_SAFE),
    "docker": prefixed("dckr_" + "pat_", 27, URL_SAFE),
    "shopify": prefixed("shp" + "at_", 32, HEX),
    "linear": prefixed("lin_" + "api_", 40),
    "vault": prefixed("hv" + "s.", 95, URL_SAFE),
    "databricks": prefixed("da" + "pi", 32, HEX),
    "age": prefixed("AGE-" + "SECRET-KEY-1", 58, string.ascii_uppercase + string.digits),
    "jwt": jwt,
    "private key": pem,
    "private key, pkcs8": lambda rng: pem(rng, ""),
    "private key, openssh": lambda rng: pem(rng, "OPENSSH "),
}

# Where the secret stands at {}; the rest of the text is to survive.
CONTEXTS: list[str] = [
    'password = "{}"',
    '"password": "{}"',
    "password: '{}'",
    "DB_PASSWORD={}",
    "export DB_PASSWORD='{}'",
    "password={} user=x",
    "--db-password {} --host x",
    "--password={}",
    "login?password={}&next=1",
    "passwd: {}",
    'const dbPassword = "{}";',
    '"password" => "{}"',
    '{{\\"password\\":\\"{}\\"}}',
    'os.environ["DB_PASSWORD"] = "{}"',
    "<password>{}</password>",
    'api_key = "{}"',
    '"apiKey" : "{}"',
    "OPENAI_API_KEY={}",
    "token: {}",
    '"access_token":"{}"',
    "client_secret={}&grant=x",
    "--token {}",
    "--api-key={}",
    "X-Api-Key: {}",
    "SECRET_KEY = '{}'",
    'auth_token := "{}"',
    'var token string = "{}"',
    'password: str = "{}"',
    "Authorization: Bearer {}",
    "Authorization: Token {}",
    'headers={{"Authorization": "Bearer {}"}}',
    'curl -H "authorization: bearer {}" http://h/',
    "Set-Cookie: session={}; Path=/",
    "Cookie: theme=dark2; sid={}",
    "postgres://app:{}@db:5432/x",
    "curl -u admin:{} http://h/",
    "https://{}@github.com/x/y",
]

VALUES: dict[str, Fake] = {
    "hexadecimal": lambda rng: chars(rng, 32, HEX),
    "uuid": lambda rng: "-".join(chars(rng, count, HEX) for count in (8, 4, 4, 4, 12)),
    "forty letters and digits": lambda rng: chars(rng, 38) + "4x",
    "twenty": lambda rng: "q7" + chars(rng, 18),
}
