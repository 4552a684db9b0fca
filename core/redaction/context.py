"""Rules of layer 2 that go by context: the name of a credential, a sign, and then a value that could be one."""

from __future__ import annotations

import re
from typing import Final

from core.redaction.rules import Check, Rule

# What stands where a value would, in code, templates and manuals.
_TEMPLATE: Final = re.compile(
    rb"\$\{|\$\(|\{\{|\}\}|%\(|%s|^[%(&@*/~]|^\./|^[$#]?\{|^\$[A-Za-z_]+$|<[A-Za-z_]|\*\*\*|\.\.\.|\xe2\x80\xa6"
    rb"|\($|://|^\d{4}-\d\d-\d\d|^(?:arn|vault|projects|env|file|ref)[:/]"
)
_PLACEHOLDERS: Final = frozenset(
    b"password passwd pass pwd passphrase secret token apikey api_key api-key credential credentials none null nil true"
    b" false undefined empty string str text bytes number boolean changeme change-me changeit example redacted hidden"
    b" required optional placeholder default user admin root test postgres username secretstr".split()
)
_PROSE: Final = re.compile(
    rb"(?i)(?:^|[\s_.-])(?:your|my|enter|must|the|is|are|at|least|for|with|invalid|wrong|missing|field|please|cannot"
    rb"|should|here|example|placeholder|changeme|insert|replace|dummy|redacted)(?:$|[\s_.-])"
)
# Digits in these words say nothing.
_KNOWN_WORDS: Final = re.compile(
    rb"(?i)sha-?\d+|md[45]|base-?\d+|utf-?\d+|oauth-?2|argon2\w*|pbkdf2\w*|u?int\d+\w*|float\d+|x509|ed25519"
    rb"|[rhe]s256|http2|ipv[46]|p256|aes-?\d+\w*|v\d+\b|_\d+\b|[a-z]\d\b"
)
_PATH: Final = re.compile(rb"[A-Za-z_$][A-Za-z0-9_]*(?:(?:\.|::|->|/|-)[A-Za-z_][A-Za-z0-9_]*)+")
_NAME: Final = re.compile(rb"[A-Za-z_$][A-Za-z0-9_]*")
_DIGITS: Final = re.compile(rb"\d")
_LETTERS: Final = re.compile(rb"[A-Za-z]")
_SYMBOLS: Final = re.compile(rb"[!@#$%^*?+~]")
_MARK: Final = b"[redacted:"
_MARK_CUT_OFF: Final = re.compile(rb"\[(?:r(?:e(?:d(?:a(?:c(?:t(?:ed?)?)?)?)?)?)?)?$")

_PASSWORD: Final = r"(?i:pass(?:word|wd|phrase|code)|pwd)"
_SECRET: Final = (
    r"(?i:secret|token|api[_-]?key|credentials?|authorization|secret[_-]key[_-]base"
    r"|(?:access|secret|private|auth|signing|encryption|account|master|session|shared|service|client)[_-]?key)"
)
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
_BARE: Final = r"""([^\s"'`,;<>(){}|&\\]{6,128}\(?)"""
_BARE_TAIL: Final = r"""[^\s"'`,;<>(){}|&\\]*"""
_QUOTED_TAIL: Final = r"""(?:[^"'`\\\n]|\\+[^"'`\\\n])*"""
_OPTION: Final = r"--(?:[a-z0-9]{1,20}-){0,4}"


def _could_be_value(found: bytes) -> bool:
    if _MARK in found or _MARK_CUT_OFF.search(found):
        return False
    return found.lower() not in _PLACEHOLDERS and not _TEMPLATE.search(found) and not _PROSE.search(found)


def _telling_digits(found: bytes) -> int:
    return len(_DIGITS.findall(_KNOWN_WORDS.sub(b"", found)))


def _is_quoted_password(found: bytes) -> bool:
    if not _could_be_value(found):
        return False
    if len(found.split()) > 1:
        return bool(_DIGITS.search(found) and _SYMBOLS.search(found))
    if _PATH.fullmatch(found):
        return _telling_digits(found) > 1
    return bool(_telling_digits(found) or _SYMBOLS.search(found) or (found.islower() and len(found) >= 12))


def _is_bare_password(found: bytes) -> bool:
    if not _could_be_value(found):
        return False
    if _PATH.fullmatch(found):
        return _telling_digits(found) > 2
    return bool(_telling_digits(found) or (_SYMBOLS.search(found) and _LETTERS.search(found)))


def _is_quoted_secret(found: bytes) -> bool:
    return len(found.split()) == 1 and _is_bare_secret(found)


def _is_bare_secret(found: bytes) -> bool:
    if len(found) < 8 or not _could_be_value(found) or not _LETTERS.search(found):
        return False
    named = _NAME.fullmatch(found) or _PATH.fullmatch(found)
    return _telling_digits(found) > (2 if named else 0)


def _is_userinfo(found: bytes) -> bool:
    return _could_be_value(found) and b"$" not in found


def _is_user_password(found: bytes) -> bool:
    return _could_be_value(found) and _LETTERS.search(found) is not None


def _is_header_value(found: bytes) -> bool:
    return (b"=" in found or _DIGITS.search(found) is not None) and _could_be_value(found)


def _start(words: str) -> str:
    """The name, and as much of what follows as there is: nothing is held back for a name in prose."""
    close = r"""(?:\\{0,3}(?:["'`]\]?)?)"""
    sign = r"[ \t]{0,8}(?:[:=>%]|\z)"
    return rf"{words}(?:\z|{close}(?:\z|{sign}))"


def _assigned(name: str, words: str, value: str, tail: str, check: Check) -> Rule:
    return Rule(name, _start(words), rf"{words}(?:{_CLOSE}{_SIGN}|>){value}", tail, check)


CONTEXT_RULES: Final = (
    Rule("", _start(_NO_SECRET), rf"{_NO_SECRET}{_CLOSE}{_SIGN}"),
    Rule(
        "authorization",
        _start("(?i:authorization)"),
        rf"(?i:authorization){_CLOSE}{_SIGN}\\{{0,3}}[\"'`]?"
        r"(?i:basic|bearer|token|apikey|api-key|key|negotiate|digest)[ +]{1,4}([\w.~+/=-]{8,80})",
        r"[\w.~+/=-]*",
        _is_header_value,
    ),
    Rule(
        "cookie",
        _start("(?i:cookie)"),
        rf"(?i:cookie){_CLOSE}[ \t]{{0,4}}:[ \t]{{0,4}}\\{{0,3}}[\"'`]?([^\s=;\"'`\\\[]{{1,64}}=[^\s;\"'`\\]{{6,128}})",
        r"""[^\n"'`\\]*""",
        _is_header_value,
    ),
    _assigned("password", _PASSWORD, _QUOTED, _QUOTED_TAIL, _is_quoted_password),
    _assigned("password", _PASSWORD, _BARE, _BARE_TAIL, _is_bare_password),
    _assigned("secret", _SECRET, _QUOTED, _QUOTED_TAIL, _is_quoted_secret),
    _assigned("secret", _SECRET, _BARE, _BARE_TAIL, _is_bare_secret),
    Rule(
        "password",
        "--[a-z]",
        rf"{_OPTION}{_PASSWORD}[ \t]{{1,4}}[\"']?{_BARE}",
        _BARE_TAIL,
        _is_bare_password,
    ),
    Rule("secret", "--[a-z]", rf"{_OPTION}{_SECRET}[ \t]{{1,4}}[\"']?{_BARE}", _BARE_TAIL, _is_bare_secret),
    Rule(
        "password",
        "-u|--user",
        r"""\B(?:-u|--user)[ =]["']?[\w.@+-]{1,64}:([^\s"'`,;<>(){}|&\\]{4,128})""",
        _BARE_TAIL,
        _is_user_password,
    ),
    Rule(
        "url-password",
        "://",
        r"""://[^\s/?#:@"'<>\[\]\\]{0,64}:([^\s/?#@"'<>\[\]{}\\]{3,128})@""",
        "",
        _is_userinfo,
    ),
    Rule("url-password", "://", r"://([\w-]{20,128})@", "", _is_userinfo),
)
