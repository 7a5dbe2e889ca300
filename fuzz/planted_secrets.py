"""Secrets planted in lines of source: in forms that vendors print, and passwords and tokens of no vendor.

Each is drawn at random and written into a line as people write it: source, `.env`, YAML, JSON, a shell, a
header, a log.
"""

import random
import string
from dataclasses import dataclass

from fuzz.secret_shapes import Draw
from ostinato.store.redaction.find import find

HEX, ALNUM = "0123456789abcdef", string.ascii_letters + string.digits
URLSAFE = ALNUM + "_-"
UPPER, BASE64 = string.ascii_uppercase + string.digits, ALNUM + "+/"
PASSWORD = ALNUM + "!#%*+-_.?~^"
NAMES = (
    "password", "DB_PASSWORD", "db_passwd", "secret", "client_secret", "SECRET_KEY", "api_key", "apiKey",
    "API_TOKEN", "access_token", "auth_token", "STRIPE_SECRET", "smtp_pwd", "private_key", "signing_key",
    "webhook_secret",
)  # fmt: skip


def some(alphabet: str, n: int) -> Draw:
    """Return a draw of `n` characters, of which at least one is a digit, as in nearly all real ones."""

    def draw(rng: random.Random) -> str:
        text = "".join(rng.choices(alphabet, k=n))
        return text if any(each.isdigit() for each in text) else draw(rng)

    return draw


def joined(*parts: str | Draw) -> Draw:
    return lambda rng: "".join(part if isinstance(part, str) else part(rng) for part in parts)


FORMS: dict[str, Draw] = {
    "AWS key id": joined("AKIA", some(UPPER, 16)),
    "GitHub": joined("ghp_", some(ALNUM, 36)),
    "GitHub fine-grained": joined("github_pat_", some(ALNUM, 22), "_", some(ALNUM, 59)),
    "GitLab": joined("glpat-", some(URLSAFE, 20)),
    "Slack": joined("xoxb-", some(string.digits, 12), "-", some(string.digits, 12), "-", some(ALNUM, 24)),
    "OpenAI": joined("sk-proj-", some(URLSAFE, 74)),
    "Anthropic": joined("sk-ant-api03-", some(URLSAFE, 93), "AA"),
    "Stripe": joined("sk_live_", some(ALNUM, 24)),
    "Google": joined("AIza", some(URLSAFE, 35)),
    "JWT": joined("eyJhbGciOiJIUzI1NiJ9.eyJ", some(URLSAFE, 40), ".", some(URLSAFE, 43)),
    "npm": joined("npm_", some(ALNUM, 36)),
    "PyPI": joined("pypi-AgEIcHlwaS5vcmc", some(URLSAFE, 130)),
    "Hugging Face": joined("hf_", some(string.ascii_letters + "0123456789", 34)),
    "SendGrid": joined("SG.", some(URLSAFE, 22), ".", some(URLSAFE, 43)),
    "Twilio": joined("SK", some(HEX, 32)),
    "Databricks": joined("dapi", some(HEX, 32)),
    "Telegram": joined(some("123456789", 9), ":AA", some(URLSAFE, 33)),
}
OTHERS: dict[str, Draw] = {
    "hex 32": some(HEX, 32),
    "hex 64": some(HEX, 64),
    "base64 40": some(BASE64, 40),
    "url-safe 43": some(URLSAFE, 43),
    "letters and digits 20": some(ALNUM, 20),
    "password 12": some(PASSWORD, 12),
    "password 16": some(PASSWORD, 16),
    "word and number": joined(
        lambda rng: rng.choice(("Winter", "tiger", "Oslo", "monkey")), some(string.digits, 4), "!"
    ),
}
ANYWHERE = (
    '    {name} = "{secret}"',
    "{name}: '{secret}'",
    "{NAME}={secret}",
    "export {NAME}={secret}",
    "  {name}: {secret}",
    '    "{name}": "{secret}",',
    '{{\\"{name}\\": \\"{secret}\\"}}',
    'client = Client({name}="{secret}")',
    '+{NAME}="{secret}"',
    "os.environ[\"{NAME}\"] = '{secret}'",
)
ALONE = (
    "# old one: {secret}",
    "curl -H 'Authorization: Bearer {secret}' https://host/v1",
    "token {secret} was refused",
    'assert login("{secret}") is None',
    "WARNING client sent {secret}, retrying",
)
PASSWORD_ALONE = (
    "DATABASE_URL=postgres://app:{secret}@db.internal:5432/app",
    "redis://:{secret}@cache:6379/0",
    "mysql --user app --password {secret} app",
)
CHANCE = ("hex 64", "base64 40", "url-safe 43")
FAMILIES = {
    "form, named": 25,
    "form, alone": 25,
    "named": 25,
    "url or flag": 15,
    "key block": 5,
    "nothing but chance": 5,
}
"""The share of each family in a hundred: in a vendor's form or not, after a telling name or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A secret, its kind, and the line that contains it."""

    kind: str
    family: str
    secret: str
    line: str


def plant(rng: random.Random) -> Planted:
    """Draw one secret in one line."""
    name = rng.choice(NAMES)
    family = rng.choices(list(FAMILIES), list(FAMILIES.values()))[0]
    if family == "key block":
        kind, secret = family, "\n".join(some(BASE64, 64)(rng) for _ in range(6))
        line = f"-----BEGIN RSA PRIVATE KEY-----\n{secret}\n-----END RSA PRIVATE KEY-----"
        return Planted(kind=kind, family=family, secret=secret, line=line)
    kinds = {"nothing but chance": CHANCE}.get(family, FORMS if family.startswith("form") else OTHERS)
    kind = rng.choice(list(kinds))
    secret = (FORMS | OTHERS)[kind](rng)
    shape = rng.choice(
        {"form, alone": ALONE, "nothing but chance": ALONE, "url or flag": PASSWORD_ALONE}.get(
            family, ANYWHERE
        )
    )
    line = shape.format(name=name, NAME=name.upper(), secret=secret)
    return Planted(kind=kind, family=family, secret=secret, line=line)


def removed(text: str, planted: Planted) -> bool:
    """Return whether redaction leaves at most three characters of the secret, such as a common prefix."""
    at = text.index(planted.secret)
    inside = [(max(s.start, at), min(s.end, at + len(planted.secret))) for s in find(text)]
    covered = sum(max(0, end - start) for start, end in inside)
    return covered >= len(planted.secret) - 3
