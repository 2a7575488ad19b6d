"""Unicode properties as Python's ``re`` can use them: ranges for the inside of a set."""

from __future__ import annotations

import sys
import unicodedata
from functools import lru_cache

MARKS = (
    r"\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0900-\u0903\u093a-\u093c\u093e-\u094f"
    r"\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u200c\u200d\u203f\u2040\u20d0-\u20f0\u3099\u309a\ufe20-\ufe2f"
)
"""Marks and joiners that belong to words (ripgrep has them in ``\\w``, Python does not); the common ones."""

_SCRIPTS = {
    "han": r"\u2e80-\u2fd5\u3005\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufad9"
    r"\U00016fe2-\U00016ff1\U00020000-\U000323af",
    "hiragana": r"\u3041-\u3096\u309d-\u309f\U0001b001-\U0001b11f\U0001f200",
    "katakana": r"\u30a1-\u30fa\u30fd-\u30ff\u31f0-\u31ff\u32d0-\u32fe\u3300-\u3357\uff66-\uff6f\uff71-\uff9d",
    "hangul": r"\u1100-\u11ff\u302e\u302f\u3131-\u318e\u3200-\u321e\u3260-\u327e\ua960-\ua97c\uac00-\ud7a3"
    r"\ud7b0-\ud7fb\uffa0-\uffdc",
    "greek": r"\u0370-\u0373\u0375-\u0377\u037a-\u037d\u037f\u0384\u0386\u0388-\u03e1\u03f0-\u03ff\u1d26-\u1d2a"
    r"\u1f00-\u1ffe\u2126",
    "cyrillic": r"\u0400-\u0484\u0487-\u052f\u1c80-\u1c8a\u1d2b\u1d78\u2de0-\u2dff\ua640-\ua69f\ufe2e\ufe2f",
    "latin": r"A-Za-z\xaa\xba\xc0-\xd6\xd8-\xf6\xf8-\u02b8\u02e0-\u02e4\u1d00-\u1d25\u1d2c-\u1d5c\u1e00-\u1eff"
    r"\u2071\u207f\u2090-\u209c\u212a\u212b\u2132\u214e\u2160-\u2188\u2c60-\u2c7f\ua722-\ua787\ua78b-\ua7ff"
    r"\uab30-\uab64\ufb00-\ufb06\uff21-\uff3a\uff41-\uff5a",
    "arabic": r"\u0600-\u0604\u0606-\u060b\u060d-\u061a\u061c-\u061e\u0620-\u063f\u0641-\u064a\u0656-\u066f"
    r"\u0671-\u06dc\u06de-\u06ff\u0750-\u077f\u08a0-\u08ff\ufb50-\ufdff\ufe70-\ufefc",
    "hebrew": r"\u0591-\u05f4\ufb1d-\ufb4f",
    "thai": r"\u0e01-\u0e3a\u0e40-\u0e5b",
    "devanagari": r"\u0900-\u0950\u0955-\u0963\u0966-\u097f\ua8e0-\ua8ff",
}
_LONG = {
    "letter": "L", "uppercase_letter": "Lu", "lowercase_letter": "Ll", "uppercase": "Lu", "lowercase": "Ll",
    "mark": "M", "number": "N", "decimal_number": "Nd", "punctuation": "P", "symbol": "S", "separator": "Z",
    "other": "C", "control": "Cc", "format": "Cf", "currency_symbol": "Sc", "math_symbol": "Sm",
    "space_separator": "Zs", "titlecase_letter": "Lt", "modifier_letter": "Lm", "other_letter": "Lo",
    "nonspacing_mark": "Mn", "letter_number": "Nl", "dash_punctuation": "Pd", "connector_punctuation": "Pc",
}  # fmt: skip
_KINDS = {
    "L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "Me", "N", "Nd", "Nl", "No", "P", "Pc", "Pd", "Ps", "Pe", "Pi",
    "Pf", "Po", "S", "Sm", "Sc", "Sk", "So", "Z", "Zs", "Zl", "Zp", "C", "Cc", "Cf", "Co", "Cn",
}  # fmt: skip


def property_class(name: str) -> str | None:
    """What a general category or a script is inside a set; None if it is not known here."""
    plain = name.rpartition("=")[2].rpartition(":")[2].strip().replace(" ", "_").replace("-", "_").lower()
    if plain in _SCRIPTS:
        return _SCRIPTS[plain]
    kind = _LONG.get(plain, plain.capitalize())
    return _category(kind) if kind in _KINDS else None


@lru_cache(maxsize=8)
def _category(kind: str) -> str:
    ranges: list[tuple[int, int]] = []
    start = -1
    for code in range(sys.maxunicode + 2):
        inside = code <= sys.maxunicode and unicodedata.category(chr(code)).startswith(kind)
        if inside and start < 0:
            start = code
        elif not inside and start >= 0:
            ranges.append((start, code - 1))
            start = -1
    return "".join(f"\\U{first:08x}" if first == last else f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)
