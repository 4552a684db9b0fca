"""Rules of layer 2 that go by context: the name of a credential, a sign, and a value that could be one."""

# ruff: noqa: S105  # patterns, no passwords
from __future__ import annotations

from typing import Final

from core.redaction.rules import Check, Rule
from core.redaction.values import (
    is_bare_password,
    is_bare_secret,
    is_cookie,
    is_header_value,
    is_quoted_password,
    is_quoted_secret,
    is_shell_value,
    is_user_and_password,
    is_userinfo,
)

_PASSWORD: Final = r"(?i:pass(?:word|wd|phrase|code)|pwd)"
_SECRET: Final = (
    r"(?i:secret|token|api[_-]?key|credentials?|authorization|secret[_-]key[_-]base"
    r"|(?:access|secret|private|auth|signing|encryption|account|master|session|shared|service|client)[_-]?key)"
)
_SHELL_NAME: Final = (
    r"(?:PASS(?:WORD|WD|PHRASE)|_PASS|PWD|SECRET|TOKEN|API_?KEY|CREDENTIALS?|SECRET_KEY_BASE"
    r"|(?:ACCESS|SECRET|PRIVATE|AUTH|SIGNING|ENCRYPTION|ACCOUNT|MASTER|SESSION|SHARED|SERVICE|CLIENT)_?KEY)"
)
# Cursors and the special tokens of language models.
_NO_SECRET: Final = (
    r"(?i:(?:progress|page|next|continuation|sync|cursor|stop|pad|eos|bos|unk|sep|cls|mask|first|last|prev|previous)"
    r"[_-]?token)"
)
# Between the name and the value: a closing quote (escaped or not, of a subscript perhaps), then the sign.
_CLOSE: Final = r"""(?:\\{0,3}["'`]\]?)?"""
_SIGN: Final = r"[ \t]{0,8}(?::?[ \t]?(?:str|string)[ \t]?=|:=|=>|==?|:|%3[dD])[ \t]{0,8}"
_QUOTED: Final = (
    r"""(?:[bru]?"((?:[^"\\\n]|\\[^\n]){6,128})"""
    r"""|[bru]?'((?:[^'\\\n]|\\[^\n]){6,128})"""
    r"""|`((?:[^`\\\n]|\\[^\n]){6,128})"""
    r"""|\\{1,3}["']((?:[^"'\\\n]|\\{1,4}[^"'\\\n]){6,128}))"""
)
_QUOTED_TAIL: Final = r"""(?:[^"'`\\\n]|\\+[^"'`\\\n])*"""
_BARE_BYTE: Final = r"""[^\s"'`,;<>(){}|&\\]"""
_BARE: Final = rf"({_BARE_BYTE}{{6,128}}\(?)"
_BARE_TAIL: Final = f"{_BARE_BYTE}*"
_SHELL_BYTE: Final = r"""[^\s"'`\\]"""
_OPTION: Final = r"--(?:[a-z0-9]{1,20}-){0,4}"
_SCHEME: Final = r"(?:bearer|basic|token|apikey|api-key|key|negotiate|digest)"
_HEADER_BYTE: Final = r"[\w.~+/=-]"
# For checks: a value that is cut short by a replacement text was judged as a whole, when that was not there yet.
_MARK_BEGINS: Final = r"\[?"
_USER_BYTE: Final = r"""[^\s/?#:@=&"'<>\[\]\\]"""
_URL_SECRET: Final = r"""[^\s/?@"'<>\[\]{}\\]{3,128}"""


def _unfinished(words: str) -> str:
    """The name and as much of a sign as there is: a name in prose holds nothing back."""
    return rf"""{words}(?:\z|>|\\{{0,3}}(?:\z|["'`]\]?)?[ \t]{{0,9}}(?:\z|[:=%]|(?i:s(?:\z|t(?:\z|r)))))"""


def _assigned(name: str, first: str, words: str, value: str, tail: str, check: Check) -> Rule:
    sign = rf"{words}(?:{_CLOSE}{_SIGN}|>)"
    start = rf"""{sign}[bru]?\\{{0,3}}["'`]?[^\s"'`]"""
    return Rule(name, first, _unfinished(words), start, sign + value, tail, check)


def _option(name: str, words: str, check: Check) -> Rule:
    start = rf"--(?:[a-z0-9]{{1,20}}-){{0,4}}{words}[ \t=][ \t]{{0,4}}[\"']?"
    value = f"{_SHELL_BYTE}{{6,128}}"
    return Rule(name, "-", "--[A-Za-z0-9]", f"{start}{_SHELL_BYTE}{{6}}", f"{start}({value})", f"{_SHELL_BYTE}*", check)


_PLAIN_NAME: Final = _NO_SECRET + _CLOSE + _SIGN
_AUTHORIZATION: Final = rf"(?i:authorization{_CLOSE}{_SIGN}\\{{0,3}}[\"'`]?{_SCHEME})[ +]{{1,4}}"
_BEARER: Final = r"(?i:bearer)(?: {1,4}|\+|%20)"
_COOKIE: Final = rf"(?i:cookie){_CLOSE}[ \t]{{0,4}}:[ \t]{{0,4}}\\{{0,3}}[\"'`]?"
_COOKIE_NAME: Final = r"""[^\s=;"'`\\\[]{1,64}="""
_USER_OPTION: Final = r"""(?:-u|--user)[ =]["']?"""
_USER: Final = r"[\w.@+-]{1,64}:"
_SHORT_USER: Final = f"://{_USER_BYTE}{{0,16}}:"
# A name as long as this may be a key itself.
_LONG_USER: Final = rf"(?:{_USER_BYTE}{{17,64}}:{_URL_SECRET}|[\w-]{{20,64}})"

CONTEXT_RULES: Final = (
    # No credential, but its value is not to be taken for one.
    Rule("", "pncsebumfl", _unfinished(_NO_SECRET), _PLAIN_NAME, _PLAIN_NAME, ""),
    Rule(
        "authorization",
        "a",
        _unfinished("(?i:authorization)"),
        f"{_AUTHORIZATION}{_HEADER_BYTE}{{8}}",
        f"{_AUTHORIZATION}({_HEADER_BYTE}{{8,80}}{_MARK_BEGINS})",
        f"{_HEADER_BYTE}*",
        is_header_value,
    ),
    Rule(
        "authorization",
        "b",
        "(?i:bearer)[ +%]",
        f"{_BEARER}{_HEADER_BYTE}{{16}}",
        f"{_BEARER}({_HEADER_BYTE}{{16,80}}{_MARK_BEGINS})",
        f"{_HEADER_BYTE}*",
        is_header_value,
    ),
    Rule(
        "cookie",
        "c",
        _unfinished("(?i:cookie)"),
        f"{_COOKIE}{_COOKIE_NAME}",
        rf"{_COOKIE}({_COOKIE_NAME}[^\n\"'`\\]{{4,128}})",
        r"""[^\n"'`\\]*""",
        is_cookie,
    ),
    _assigned("password", "p", _PASSWORD, _QUOTED, _QUOTED_TAIL, is_quoted_password),
    _assigned("secret", "stacpem", _SECRET, _QUOTED, _QUOTED_TAIL, is_quoted_secret),
    Rule(
        "secret",
        "_pstacem",
        _SHELL_NAME,
        f"{_SHELL_NAME}={_SHELL_BYTE}{{6}}",
        f"{_SHELL_NAME}=({_SHELL_BYTE}{{6,128}})",
        f"{_SHELL_BYTE}*",
        is_shell_value,
    ),
    _assigned("password", "p", _PASSWORD, _BARE, _BARE_TAIL, is_bare_password),
    _assigned("secret", "stacpem", _SECRET, _BARE, _BARE_TAIL, is_bare_secret),
    _option("password", _PASSWORD, is_bare_password),
    _option("secret", _SECRET, is_bare_secret),
    Rule(
        "password",
        "-",
        "-u|--user",
        f"{_USER_OPTION}{_USER}",
        rf"(?<![\w-]){_USER_OPTION}({_USER}{_SHELL_BYTE}{{4,128}})",
        f"{_SHELL_BYTE}*",
        is_user_and_password,
    ),
    Rule(
        "url-password",
        ":",
        "://",
        f"{_SHORT_USER}{_URL_SECRET}@",
        f"{_SHORT_USER}({_URL_SECRET})@",
        "",
        is_userinfo,
    ),
    Rule("url-password", ":", "://", f"://{_LONG_USER}@", f"://({_LONG_USER})@", "", is_userinfo),
)
