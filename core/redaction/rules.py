"""Layer 2 of redaction: what looks like a credential by its own form, whoever it belongs to."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

Check = Callable[[bytes], bool]

REACH_BYTES: Final = 320
LONG_REACH_BYTES: Final = 768

_RUN: Final = r"[\w-]*"
_BASE64_RUN: Final = r"[\w+/=-]*"
# A word begins here; in escaped text it may follow \n or %20 directly.
_EDGE: Final = r"(?:\b|\\[nrt]|%[0-9A-Fa-f]{2}|u00[0-9a-f]{2})"


@dataclass(frozen=True)
class Rule:
    """One form of credential.

    `head` matches enough of it to be sure; its groups are what is replaced, the whole when it has none. `tail` is the
    rest of its run, and belongs to the last group. `start` is a part that every match has within its first bytes, by
    which a stream knows what to hold back; `reach` is how far from there the head is decided. `check` looks at the
    first group.
    """

    name: str
    start: str
    head: str
    tail: str = _RUN
    check: Check | None = None
    reach: int = REACH_BYTES
    keeps: bool = False


def _has_digit(found: bytes) -> bool:
    return re.search(rb"\d", found) is not None


def _is_mixed(found: bytes) -> bool:
    return _has_digit(found) or (found.lower() != found and found.upper() != found)


def _is_basic(found: bytes) -> bool:
    return _has_digit(found) or b"=" in found


def _is_jwt(found: bytes) -> bool:
    """Whether the part before the dot is the base64url of an object with a field of JWT headers."""
    part = found.split(b".", 1)[0]
    try:
        header = json.loads(base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        return False
    return isinstance(header, dict) and not header.keys().isdisjoint({"alg", "typ", "enc", "kid"})


def _prefixed(name: str, start: str, rest: str, *, check: Check | None = None, tail: str = _RUN) -> Rule:
    return Rule(name, start, f"({start}{rest})" if check else f"{start}{rest}", tail, check)


def _word(name: str, start: str, rest: str, *, check: Check | None = None, tail: str = _RUN) -> Rule:
    return Rule(name, start, f"{_EDGE}({start}{rest})", tail, check)


_PEM_GAP: Final = r"""(?:[\s"'`+,>|]|\\[nrt]|\\){0,80}"""
_PEM_LINE: Final = rf"{_PEM_GAP}(?:[A-Za-z0-9+/=]{{16}}[A-Za-z0-9+/=]*|(?:Proc-Type|DEK-Info|Comment|Version):[^\n\\\"]{{0,120}})"
_PEM_END: Final = rf"(?:{_PEM_GAP}[A-Za-z0-9+/=]{{0,15}}{_PEM_GAP}-----END [A-Z0-9 ]{{0,40}}-----)"

PREFIX_RULES: Final = (
    Rule(
        "private-key",
        "-----BEGIN ",
        r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,4}PRIVATE KEY(?: BLOCK)?-----",
        rf"(?:{_PEM_LINE})*{_PEM_END}?",
    ),
    Rule(
        "jwt", "eyJ", r"(eyJ[\w-]{10,600}\.)[\w-]{4}", r"(?:[\w-]|\.{1,2}[\w-])*", _is_jwt, LONG_REACH_BYTES
    ),
    _prefixed("anthropic-key", "sk-ant-", r"[\w-]{10}"),
    _word("openai-key", "sk-(?:proj|svcacct|admin|None|or|lf|service)-", r"[\w-]{10}"),
    _word("api-key", "sk-", r"[A-Za-z0-9]{20,64}", check=_has_digit),
    _prefixed("github-token", "gh[opusr]_", r"[A-Za-z0-9]{30}"),
    _prefixed("github-token", "github_pat_", r"\w{20}"),
    _prefixed("gitlab-token", "gl(?:pat|dt|rt|oas|cbt|ptt|ft|soat)-", r"[\w-]{18}", tail=r"(?:[\w-]|\.\w)*"),
    _prefixed("slack-token", "xox[abceoprs]-", r"[\w-]{10}"),
    _prefixed("slack-token", "xapp-", r"\d-[\w-]{10}"),
    _prefixed(
        "slack-webhook", r"hooks\.slack\.com/", r"(?:services|workflows|triggers)/[\w/-]{16}", tail=r"[\w/-]*"
    ),
    _prefixed("discord-webhook", r"discord(?:app)?\.com/api/webhooks/", r"\d{5,24}/[\w-]{16}"),
    Rule(
        "aws-key",
        "A(?:KIA|SIA|BIA|CCA)",
        r"(A(?:KIA|SIA|BIA|CCA)[A-Z2-7]{16}\w{0,16})(?:[^A-Za-z0-9/+\n][^\n]{0,60}?[\s\"'`:=,;|\\]([A-Za-z0-9/+]{40}))?",
        _BASE64_RUN,
    ),
    _prefixed("google-key", "AIza", r"[\w-]{35}"),
    _word("google-token", r"ya29\.", r"[\w-]{20}", tail=r"(?:[\w-]|\.[\w-])*"),
    _prefixed("google-secret", "GOCSPX-", r"[\w-]{20}"),
    _word("huggingface-token", "(?:hf_|api_org_)", r"[A-Za-z0-9]{30}"),
    _word("npm-token", "npm_", r"[A-Za-z0-9]{30}"),
    _prefixed("pypi-token", "pypi-", r"Ag[\w-]{40}"),
    _prefixed("stripe-key", "[srp]k_(?:live|test)_", r"[A-Za-z0-9]{16}"),
    _prefixed("stripe-webhook", "whsec_", r"[A-Za-z0-9+/]{20}", tail=_BASE64_RUN),
    _word("sendgrid-key", r"SG\.", r"[\w-]{16,40}\.[\w-]{16}"),
    _word("twilio-key", "SK", r"[0-9a-f]{32}"),
    _prefixed("digitalocean-token", "do[opr]_v1_", r"[0-9a-f]{40}"),
    Rule("telegram-token", r"\d{8,10}:", rf"{_EDGE}(\d{{8,10}}:[A-Za-z0-9_-]{{35}})"),
    Rule("zai-key", r"[0-9a-f]{32}\.", rf"{_EDGE}[0-9a-f]{{32}}\.([A-Za-z0-9]{{16}})", _RUN, _is_mixed),
    _word("meah-token", "meah_", r"[\w-]{24,64}", check=_has_digit),
    _word("groq-key", "gsk_", r"[A-Za-z0-9]{30}"),
    _word("xai-key", "xai-", r"[A-Za-z0-9]{30}"),
    _word("replicate-token", "r8_", r"[A-Za-z0-9]{30}"),
    _word("perplexity-key", "pplx-", r"[A-Za-z0-9]{30}"),
    _word("nvidia-key", "nvapi-", r"[\w-]{30}"),
    _prefixed("docker-token", "dckr_[po]at_", r"[\w-]{20}"),
    _prefixed("shopify-token", "shp(?:at|ca|pa|ss)_", r"[0-9a-fA-F]{32}"),
    _word("linear-key", "lin_(?:api|oauth)_", r"[A-Za-z0-9]{30}"),
    _word("vault-token", r"hv[sbr]\.", r"[\w-]{24}"),
    _word("atlassian-token", "AT[AC]TT3", r"[\w-]{40}", tail=r"[\w=-]*"),
    _word("databricks-token", "dapi", r"[0-9a-f]{32}"),
    _prefixed("age-key", "AGE-SECRET-KEY-1", r"[A-Z0-9]{40}"),
    _word("sentry-token", "sntry[su]_", r"[\w+/=-]{30}", tail=_BASE64_RUN),
    _word("grafana-token", "gl(?:sa|c)_", r"\w{30}", tail=_BASE64_RUN),
    Rule(
        "azure-key",
        "(?i:AccountKey|SharedAccessKey)=",
        r"(?i:AccountKey|SharedAccessKey)=([A-Za-z0-9+/]{20})",
        _BASE64_RUN,
    ),
    Rule(
        "authorization",
        "(?i:bearer)[ +]|%20",
        r"(?i:bearer)(?: {1,4}|\+|%20)([\w.~+/-]{16,80})",
        r"[\w.~+/=-]*",
        _has_digit,
    ),
)
