"""Rules of layer 2 that go by form: prefixes and shapes that only credentials have."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

Check = Callable[[bytes], bool]

# Single hyphens belong to a run; five begin the frame of a key in PEM form.
_RUN: Final = r"(?:-{0,4}\w)*"
_DOTTED_RUN: Final = r"(?:\.?-{0,4}\w)*"
_BASE64_RUN: Final = r"(?:-{0,4}[\w+/=])*"
# Where a word begins; in escaped text that may be right behind \n, \u000a or %20.
EDGE: Final = r"(?:(?<!\w)|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2})|(?<=\\u00[0-9a-fA-F]{2}))"


@dataclass(frozen=True)
class Rule:
    """One form of credential; `core.redaction.scan` says what has to hold for its patterns.

    `start` finds where it may begin, in the whole text at once, and should seldom do so in vain; `first` are the
    bytes, in small letters, that it can begin with. `open` is what a stream goes by: what is there of a match as soon
    as more than a cut word is. `head` decides, from there on, within `reach_bytes`; its groups are what is replaced,
    the whole when it has none. `check` looks at the first group. `tail` is the rest of the run and goes with the last
    group; it ends for certain when `slack_bytes` follow it.
    """

    name: str
    first: str
    open: str
    start: str
    head: str
    tail: str = _RUN
    check: Check | None = None
    reach_bytes: int = 320
    slack_bytes: int = 8


def has_digit(found: bytes) -> bool:
    return re.search(rb"\d", found) is not None


def _has_digit_or_both_cases(found: bytes) -> bool:
    return has_digit(found) or found not in (found.lower(), found.upper())


def _is_jwt(found: bytes) -> bool:
    """Whether the part before the dot is the base64url of an object with a field that headers of such tokens have."""
    part = found.partition(b".")[0]
    try:
        header = json.loads(base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        return False
    return isinstance(header, dict) and not header.keys().isdisjoint({"alg", "typ", "enc", "kid"})


def _prefix(name: str, open_: str, rest: str, *, tail: str = _RUN, first: str = "") -> Rule:
    """A prefix that stands for itself wherever it is found."""
    return Rule(name, first or open_[0].lower(), open_, open_ + rest, open_ + rest, tail)


def _word(name: str, open_: str, rest: str, *, tail: str = _RUN, check: Check | None = None, first: str = "") -> Rule:
    """A prefix so short that it has to begin a word."""
    whole = open_ + rest
    return Rule(name, first or open_[0].lower(), open_, whole, f"{EDGE}({whole})", tail, check)


# Between the lines of a key in PEM form: the line breaks, and what code and JSON put around them.
_PEM_BEGIN: Final = "-----BEGIN (?:[A-Z0-9]{1,12} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
_PEM_GAP: Final = r"""(?:[\s"'`+,>|\\]|\\[nrt]){0,48}"""
_PEM_HEADER: Final = r"""(?:Proc-Type|DEK-Info|Comment|Version):[^\n\\"]{0,120}"""
_PEM_LINE: Final = rf"{_PEM_GAP}(?:[A-Za-z0-9+/=]{{16}}[A-Za-z0-9+/=]*|{_PEM_HEADER})"
# A fake or cut body, which a frame in code does not have.
_PEM_SHORT: Final = rf"{_PEM_GAP}[A-Za-z0-9+/=]{{6,15}}(?:{_PEM_GAP}[A-Za-z0-9+/=]{{1,15}}){{0,2}}{_PEM_GAP}-----END "
_PEM_REST: Final = r"(?:\r?\n|\\n)[A-Za-z0-9+/=]{1,15}"
_PEM_END: Final = rf"(?:{_PEM_GAP}[A-Za-z0-9+/=]{{1,15}}){{0,3}}{_PEM_GAP}-----END [A-Z0-9 ]{{0,40}}-----"

_AWS: Final = "A(?:KIA|SIA|BIA|CCA)"
# A secret access key has no form of its own: it is known by standing next to its id.
_AWS_NEIGHBOUR: Final = r"""[^\w/+\n-][^\n-]{0,60}?(?<=[\s"'`:=,;|\\])([A-Za-z0-9/+]{40})"""

PREFIX_RULES: Final = (
    Rule(
        "private-key",
        "-",
        "-----BEGIN ",
        f"{_PEM_BEGIN}",
        # Code that handles keys has the frame without a key.
        f"{_PEM_BEGIN}(?={_PEM_LINE}|{_PEM_SHORT})",
        f"[A-Za-z0-9+/=]*(?:{_PEM_LINE})*(?:{_PEM_END}|{_PEM_REST})?",
        slack_bytes=320,
    ),
    Rule(
        "jwt",
        "e",
        "eyJ",
        r"eyJ[\w-]{10}",
        r"(eyJ[\w-]{10,600}+\.[\w-]{4})",
        r"(?:-{0,4}\w|\.{1,2}-{0,4}\w)*",
        _is_jwt,
        reach_bytes=768,
    ),
    _prefix("anthropic-key", "sk-ant-", r"[\w-]{10}"),
    _word("openai-key", "sk-(?:proj|svcacct|admin|None|or|lf|service)-", r"[\w-]{10}"),
    Rule("api-key", "s", "sk-", "sk-[A-Za-z0-9]{20}", f"{EDGE}(sk-[A-Za-z0-9]{{20,64}})", check=has_digit),
    _prefix("github-token", "gh[opusr]_", "[A-Za-z0-9]{30}"),
    _prefix("github-token", "github_pat_", r"\w{20}"),
    _prefix("gitlab-token", "gl(?:pat|dt|rt|oas|cbt|ptt|ft|soat)-", r"[\w-]{18}", tail=_DOTTED_RUN),
    _prefix("slack-token", "xox[abceoprs]-", r"[\w-]{10}"),
    _prefix("slack-token", "xapp-", r"\d-[\w-]{10}"),
    _prefix(
        "slack-webhook",
        r"hooks\.slack\.com/",
        r"(?:services|workflows|triggers)/[\w/-]{16}",
        tail=r"(?:-{0,4}[\w/])*",
    ),
    _prefix("discord-webhook", r"discord(?:app)?\.com/api/webhooks/", r"\d{5,24}/[\w-]{16}"),
    Rule(
        "aws-key",
        "a",
        _AWS,
        f"{_AWS}[A-Z2-7]{{16}}",
        rf"{EDGE}({_AWS}[A-Z2-7]{{16}}\w{{0,20}})(?:{_AWS_NEIGHBOUR})?",
        _BASE64_RUN,
    ),
    _prefix("google-key", "AIza", r"[\w-]{35}"),
    _word("google-token", r"ya29\.", r"[\w-]{20}", tail=_DOTTED_RUN),
    _prefix("google-secret", "GOCSPX-", r"[\w-]{20}"),
    _word("huggingface-token", "hf_", "[A-Za-z0-9]{30}"),
    _word("huggingface-token", "api_org_", "[A-Za-z0-9]{30}"),
    _word("npm-token", "npm_", "[A-Za-z0-9]{30}"),
    _prefix("pypi-token", "pypi-", r"Ag[\w-]{40}"),
    _prefix("stripe-key", "[srp]k_(?:live|test)_", "[A-Za-z0-9]{16}", first="srp"),
    _prefix("stripe-webhook", "whsec_", "[A-Za-z0-9+/]{20}", tail=_BASE64_RUN),
    _word("sendgrid-key", r"SG\.", r"[\w-]{16,40}\.[\w-]{16}"),
    _word("twilio-key", "SK", "[0-9a-f]{32}"),
    _prefix("digitalocean-token", "do[opr]_v1_", "[0-9a-f]{40}"),
    _word("telegram-token", r"\d{8,10}:", r"A[\w-]{34}", first="0123456789"),
    Rule(
        "zai-key",
        "0123456789abcdef",
        r"[0-9a-f]{32}\.",
        r"[0-9a-f]{32}\.[A-Za-z0-9]{16}",
        rf"{EDGE}[0-9a-f]{{32}}\.([A-Za-z0-9]{{16}})",
        check=_has_digit_or_both_cases,
    ),
    Rule("meah-token", "m", "meah_", r"meah_[\w-]{24}", rf"{EDGE}(meah_[\w-]{{24,64}})", check=has_digit),
    _word("groq-key", "gsk_", "[A-Za-z0-9]{30}"),
    _word("xai-key", "xai-", "[A-Za-z0-9]{30}"),
    _word("replicate-token", "r8_", "[A-Za-z0-9]{30}"),
    _word("perplexity-key", "pplx-", "[A-Za-z0-9]{30}"),
    _word("nvidia-key", "nvapi-", r"[\w-]{30}"),
    _prefix("docker-token", "dckr_[po]at_", r"[\w-]{20}"),
    _prefix("shopify-token", "shp(?:at|ca|pa|ss)_", "[0-9a-fA-F]{32}"),
    _word("linear-key", "lin_(?:api|oauth)_", "[A-Za-z0-9]{30}"),
    _word("vault-token", r"hv[sbr]\.", r"[\w-]{24}"),
    _word("atlassian-token", "AT[AC]TT3", r"[\w-]{40}", tail=_BASE64_RUN),
    _word("databricks-token", "dapi", "[0-9a-f]{32}"),
    _prefix("age-key", "AGE-SECRET-KEY-1", "[A-Z0-9]{40}"),
    _word("sentry-token", "sntry[su]_", r"[\w+/=-]{30}", tail=_BASE64_RUN),
    _word("grafana-token", "gl(?:sa|c)_", r"\w{30}", tail=_BASE64_RUN),
    Rule(
        "azure-key",
        "as",
        "(?i:AccountKey|SharedAccessKey)=",
        "(?i:AccountKey|SharedAccessKey)=[A-Za-z0-9+/]{20}",
        "(?i:AccountKey|SharedAccessKey)=([A-Za-z0-9+/]{20})",
        _BASE64_RUN,
    ),
)
