"""Whether the text behind the name of a credential is one, or what code, templates and manuals have in its place."""

from __future__ import annotations

import re
from typing import Final

from core.redaction.linear import linear

# RE2 for the long ones: values are up to 128 bytes, and hostile texts have many.
_NO_VALUE: Final = linear(
    r"\$\{|\$\(|\{\{|\}\}|%\(|^%[sdr]|%[sdr]$|^[$#]?\{|\{[A-Za-z_.]+\}|^\$[A-Za-z_]+$|^\$[A-Z][A-Z0-9_]*$|^</?[A-Za-z_]"
    r"|^[(*]+$|^[@&][A-Za-z_./-]+$|^[/(][A-Za-z_(]|^\.{0,2}/|^~/|^[A-Za-z]:[/\\]|\*\*\*|\.\.\.|\xe2\x80\xa6|\($|://"
    r"|^\d{4}-\d\d-\d\d|^(?:arn|vault|projects|env|file|ref|op)[:/]"
    r"|^(?:self|this|cls|config|conf|settings|process|env|args|options|opts|kwargs|ctx|request|req|data)[.\[]"
    r"|(?i:(?:^|[\s_.-])(?:your|my|enter|must|the|is|are|at|least|for|with|invalid|wrong|missing|field|please"
    r"|cannot|should|here|example|placeholder|changeme|insert|replace|dummy|redacted)(?:$|[\s_.-]))"
)
_PLACEHOLDERS: Final = frozenset(
    b"password passwd pass pwd passphrase secret token apikey api_key api-key credential credentials none null nil"
    b" true false undefined empty string str text bytes number boolean changeme change-me changeit example redacted"
    b" hidden required optional placeholder default user admin root test postgres username secretstr string?".split()
)
_CREDENTIAL_WORDS: Final = re.compile(rb"(?i)passw|passphrase|secret|token|api_?key|credential|private_?key")
# Digits in these words say nothing.
_ALGORITHMS: Final = (
    rb"(?i)sha-?\d+|md[45]|base-?\d+|utf-?\d+|oauth-?2|argon2\w*|pbkdf2\w*|u?int\d+\w*|float\d+|x509|ed25519"
    rb"|[rhe]s256|http2|ipv[46]|p256|aes-?\d+\w*"
)
_ALGORITHM: Final = re.compile(_ALGORITHMS)
_KNOWN_WORDS: Final = re.compile(_ALGORITHMS + rb"|v\d+\b|_\d+\b|[a-z]\d\b")
_SUBSCRIPT: Final = re.compile(rb"[A-Za-z_][\w.]*\[[\w:+-]{0,16}\]")
_PATH: Final = re.compile(rb"[A-Za-z_$][A-Za-z0-9_]*(?:(?:\.|::|->|/|-)[A-Za-z_][A-Za-z0-9_]*)*")
_HUMPS: Final = re.compile(rb"[A-Z]?[a-z]+|[A-Z]+|\d+")
_RANDOM_HUMP_CHARS: Final = 3
_RANDOM_CHARS: Final = 8
_PASSPHRASE_CHARS: Final = 12
_DIGITS: Final = re.compile(rb"\d")
_LETTERS: Final = re.compile(rb"[A-Za-z]")
_SYMBOLS: Final = re.compile(rb"[!@#$%^&*?+~=]")
_MARKUP: Final = re.compile(rb"[<>{}]")
_MARK: Final = b"[redacted:"
_MARK_CUT_OFF: Final = re.compile(rb"\[(?:r(?:e(?:d(?:a(?:c(?:t(?:ed?)?)?)?)?)?)?)?$")


def is_quoted_password(found: bytes) -> bool:
    if not _could_be_value(found):
        return False
    if len(found.split()) > 1:
        return bool(_DIGITS.search(found) and _SYMBOLS.search(found) and not _MARKUP.search(found))
    return _is_password(found) or (found.islower() and len(found) >= _PASSPHRASE_CHARS and found.isalpha())


def is_bare_password(found: bytes) -> bool:
    if _SUBSCRIPT.match(found) or (found.isalnum() and _CREDENTIAL_WORDS.search(found)):
        return False
    return _could_be_value(found) and _is_password(found)


def is_quoted_secret(found: bytes) -> bool:
    return _is_secret(found, name_digits=0)


def is_bare_secret(found: bytes) -> bool:
    return not _SUBSCRIPT.match(found) and _is_secret(found, name_digits=2)


def is_shell_value(found: bytes) -> bool:
    """Of NAME=value, the name in capitals: there the value is hardly ever an expression."""
    if _CREDENTIAL_WORDS.search(found) or _SUBSCRIPT.match(found) or not _could_be_value(found):
        return False
    return _is_password(found) or (len(found) >= _RANDOM_CHARS and found.isalnum())


def is_userinfo(found: bytes) -> bool:
    return _could_be_value(found) and b"$" not in found


def is_user_and_password(found: bytes) -> bool:
    password = found.partition(b":")[2]
    return is_userinfo(password) and _LETTERS.search(password) is not None


def is_header_value(found: bytes) -> bool:
    if not _could_be_value(found):
        return False
    return b"=" in found or _has_digits(found) or _looks_random(found)


def is_cookie(found: bytes) -> bool:
    return _MARK not in found and not _MARK_CUT_OFF.search(found) and _has_digits(found)


def _could_be_value(found: bytes) -> bool:
    if _MARK in found or _MARK_CUT_OFF.search(found) or found[:1].isspace():
        return False
    return found.lower() not in _PLACEHOLDERS and _NO_VALUE.search(found) is None


def _is_password(found: bytes) -> bool:
    if _looks_random(found):
        return True
    if found.isalnum():
        # People number words: hunter2.
        return _has_digits(_ALGORITHM.sub(b"", found))
    digits = _telling_digits(found)
    if _PATH.fullmatch(found):
        return digits > 2
    return digits > 0 or (_SYMBOLS.search(found) is not None and _LETTERS.search(found) is not None)


def _is_secret(found: bytes, *, name_digits: int) -> bool:
    """A word in one case may have that many digits and still be a name."""
    if len(found) < _RANDOM_CHARS or not _has_variety(found) or len(found.split()) > 1:
        return False
    if not _could_be_value(found):
        return False
    return _looks_random(found) or _telling_digits(found) > _digits_of_a_name(found, name_digits)


def _has_variety(found: bytes) -> bool:
    """Letters and digits, or letters of both cases."""
    return not _is_one_case(found) or (_has_digits(found) and _LETTERS.search(found) is not None)


def _is_one_case(found: bytes) -> bool:
    return found in (found.lower(), found.upper())


def _has_digits(found: bytes) -> bool:
    return _DIGITS.search(found) is not None


def _digits_of_a_name(found: bytes, of_a_word: int) -> int:
    if not _PATH.fullmatch(found):
        return 0
    if not found.isalnum() or _CREDENTIAL_WORDS.search(found):
        return 2
    return of_a_word if _is_one_case(found) else 0


def _telling_digits(found: bytes) -> int:
    return len(_DIGITS.findall(_KNOWN_WORDS.sub(b"", found))) if _has_digits(found) else 0


def _looks_random(found: bytes) -> bool:
    """Whether case and digits change too often for names and words, such as `getUserIdToken2`."""
    if not _has_variety(found):
        return False
    words = _HUMPS.findall(_KNOWN_WORDS.sub(b"", found) if _has_digits(found) else found)
    chars = sum(map(len, words))
    return chars >= _RANDOM_CHARS and chars < _RANDOM_HUMP_CHARS * len(words)
