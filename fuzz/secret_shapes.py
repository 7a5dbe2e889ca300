"""Secrets as programs, shells, config files and tools write them, written without a look at the rules.

Each entry of `SHAPES` is a form: a way to draw a value, and the texts that contain it. Values have the
length, alphabet and structure that their makers give them; passwords are those of people and of password
managers.
"""

import base64
import json
import random
import string
from collections.abc import Callable
from dataclasses import dataclass

Draw = Callable[[random.Random], str]
HEX, ALNUM = "0123456789abcdef", string.ascii_letters + string.digits
SYMBOLS = "!#%*+-_.?~^@=:/"
HARD = SYMBOLS + "()[]{}$&"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A text and the secret in it."""

    form: str
    secret: str
    text: str


def chars(alphabet: str, least: int, most: int | None = None) -> Draw:
    """Return a draw of `least` to `most` characters, with at least one digit and one letter."""

    def draw(rng: random.Random) -> str:
        n = rng.randint(least, most or least)
        while True:
            text = "".join(rng.choices(alphabet, k=n))
            if any(c.isdigit() for c in text) and any(c.isalpha() for c in text):
                return text

    return draw


def b64(least: int, most: int, *, url: bool = False) -> Draw:
    def draw(rng: random.Random) -> str:
        data = rng.randbytes(rng.randint(least, most))
        return base64.urlsafe_b64encode(data).decode().rstrip("=") if url else base64.b64encode(data).decode()

    return draw


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


WORDS = (
    "Sommer", "tiger", "Liverpool", "Password", "Admin", "Secret", "Test", "Welcome", "dragon", "Nairobi",
)  # fmt: skip
ENDS_A_VALUE = "&;@/"
PLAIN = {"config files", "typed languages", "mysql -p", "sshpass", "other commands", "headers and URLs"}
"""The forms in which some texts end a value at one of `ENDS_A_VALUE`."""


def person(rng: random.Random) -> str:
    """Draw a password as people make them: a word, often one such as `Password`, a number, a sign."""
    joint = rng.choice(["", "-", "_", ".", "@"])
    end = rng.choice("!?#*%") + rng.choice("abKQx7")
    return f"{rng.choice(WORDS)}{joint}{rng.randint(1980, 99999)}{end}"


def manager(rng: random.Random) -> str:
    """Draw a password as a password manager does, with a letter first, as most sites demand."""
    return rng.choice(string.ascii_letters) + chars(ALNUM + SYMBOLS, 11, 31)(rng)


def hard(rng: random.Random) -> str:
    """Draw a password with brackets and dollars, for files without quotes."""
    while True:
        text = rng.choice(ALNUM) + chars(ALNUM + HARD, 13, 23)(rng)
        if {"${", "$(", "{{"}.isdisjoint({text[i : i + 2] for i in range(len(text))}):
            return text


def any_password(rng: random.Random) -> str:
    return rng.choice([person, manager])(rng)


def jwe(rng: random.Random) -> str:
    header = rng.choice([{"alg": "dir", "enc": "A256GCM"}, {"alg": "RSA-OAEP", "enc": "A128CBC-HS256"}])
    first = base64.urlsafe_b64encode(json.dumps(header, separators=(",", ":")).encode()).decode().rstrip("=")
    key = "" if header["alg"] == "dir" else b64(256, 256, url=True)(rng)
    rest = b64(12, 12, url=True)(rng), b64(40, 900, url=True)(rng), b64(16, 16, url=True)(rng)
    return ".".join((first, key, *rest))


def jws(rng: random.Random) -> str:
    header = encoded(json.dumps({"alg": "ES256", "kid": chars(HEX, 8)(rng)})).rstrip("=")
    return f"{header}.{b64(60, 900, url=True)(rng)}.{b64(64, 64, url=True)(rng)}"


def vendor(rng: random.Random) -> str:
    kinds = [("ghp_", chars(ALNUM, 36)), ("sk-proj-", chars(ALNUM + "_-", 60)), ("glpat-", chars(ALNUM, 20))]
    prefix, draw = rng.choice(kinds)
    return prefix + draw(rng)


def pem(rng: random.Random) -> str:
    kind = rng.choice(["RSA PRIVATE KEY", "PRIVATE KEY", "EC PRIVATE KEY", "OPENSSH PRIVATE KEY"])
    body = b64(400, 1200)(rng)
    lines = "\n".join(body[i : i + 64] for i in range(0, len(body), 64))
    return f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----\n"


def account(rng: random.Random) -> str:
    """Draw a service account, as base64 of its JSON."""
    value = {"type": "service_account", "project_id": "shop", "private_key_id": chars(HEX, 40)(rng)}
    return encoded(json.dumps(value | {"private_key": pem(rng), "client_email": "a@b.iam"}))


def wrapped_token(rng: random.Random) -> str:
    token = vendor(rng)
    return encoded(rng.choice(["{}", '{{"token":"{}"}}', "export TOKEN={}\n", "x:{}"]).format(token))


def docker_auth(rng: random.Random) -> str:
    return encoded(f"{rng.choice(['bot', 'ada', 'deploy'])}:{any_password(rng)}")


def putty(rng: random.Random) -> str:
    body = b64(300, 700)(rng)
    return "\n".join(body[i : i + 64] for i in range(0, len(body), 64))


def cookie(rng: random.Random) -> str:
    return rng.choice([chars(ALNUM, 26, 64), b64(24, 120, url=True), chars(HEX, 32)])(rng)


SHAPES: dict[str, tuple[Draw, tuple[str, ...]]] = {
    "AWS session token": (
        b64(300, 900),
        (
            "aws_session_token = {}",
            "export AWS_SESSION_TOKEN={}",
            'AWS_SESSION_TOKEN="{}"',
            '  "SessionToken": "{}",',
            "  AWS_SESSION_TOKEN: {}",
            "$env:AWS_SESSION_TOKEN='{}'",
            "docker run -e AWS_SESSION_TOKEN={} app",
        ),
    ),
    "AWS secret key": (
        chars(ALNUM + "+/", 40),
        (
            "aws_secret_access_key = {}",
            "aws configure set aws_secret_access_key {}",
            'secretAccessKey: "{}",',
            "set -gx AWS_SECRET_ACCESS_KEY {}",
            '"SecretAccessKey" : "{}"',
        ),
    ),
    "kubeconfig key": (
        lambda rng: encoded(pem(rng)),
        ("    client-key-data: {}", '"client-key-data":"{}"', "  tls.key: {}"),
    ),
    "service account, base64": (
        account,
        ("GOOGLE_CREDENTIALS={}", "  gcp.json: {}", 'echo "{}" | base64 -d > sa.json', "GCP_SA={}"),
    ),
    "a token, base64": (
        wrapped_token,
        ("  blob: {}", "echo {} | base64 -d", 'data = b64decode("{}")', "x={}"),
    ),
    "docker auth": (
        docker_auth,
        ('{{"auths": {{"ghcr.io": {{"auth": "{}"}}}}}}', "//npm.corp/:_auth={}", "Authorization: Basic {}"),
    ),
    "JWE": (jwe, ("Cookie: s={}; theme=dark", "id_token: {}", "saw {} in the log", 'parse("{}")')),
    "JWS": (jws, ("curl -H 'Authorization: Bearer {}'", "got {}", "token={}", "/cb?code=1&jwt={}&x=1")),
    "PuTTY": (
        putty,
        (
            "PuTTY-User-Key-File-3: ssh-rsa\nEncryption: none\nComment: k\nPublic-Lines: 1\nAAAA\n"
            "Private-Lines: 9\n{}\nPrivate-MAC: 3f786850e387550fdab836ed7e6dc881de23001b\n",
        ),
    ),
    "netrc": (
        any_password,
        (
            "machine api.host.io login ada password {}",
            "machine git.corp\n  login ci-bot\n  password {}\n",
            "default login deploy password {}",
        ),
    ),
    "pgpass": (
        chars(ALNUM + "!#%*+-_.?~^@=", 12, 24),
        ("db.internal:5432:shop:app:{}", "*:*:*:postgres:{}", "127.0.0.1:6543:shop_test:ada:{}"),
    ),
    "curl -u": (
        any_password,
        (
            "curl -u ada:{} https://host/x",
            "curl -fsS --user 'ada:{}' https://host/x",
            'curl https://h/x -X PUT -u "bot@corp.io:{}"',
            "http --auth ada:{} host/x",
        ),
    ),
    "mysql -p": (
        any_password,
        (
            "mysql -uroot -p{} shop",
            "mysqldump -h db -u app -p'{}' shop > d.sql",
            "mariadb -p{} -e 'select 1'",
        ),
    ),
    "sshpass": (
        any_password,
        ("sshpass -p {} ssh ada@host", "sshpass -p '{}' rsync a b", "sshpass -p{} scp a b"),
    ),
    "other commands": (
        any_password,
        (
            "docker login -u ada -p {} ghcr.io",
            "redis-cli -h cache -a {} ping",
            "ldapsearch -x -D cn=admin -w {} uid=1",
            "PGPASSWORD={} psql -h db app",
            "openssl rsa -passin pass:{} -in k.pem",
            "htpasswd -b .htpasswd ada {}",
            "net use Z: \\\\srv\\x /user:ada /password:{}",
            "smbclient //srv/x -U ada%{}",
            "MYSQL_PWD={} mysql app",
            "helm install x --set db.password={}",
            "psql 'host=db user=app password={} dbname=x'",
            "export A=1 DB_PASSWORD={}; ./run",
        ),
    ),
    "cookies": (
        cookie,
        (
            "Cookie: theme=dark; sessionid={}; lang=de",
            "Set-Cookie: sid={}; Path=/; HttpOnly",
            "curl -b 'session={}' https://host/",
            'curl --cookie "auth={}" https://host/',
            "{{'Cookie': 'JSESSIONID={}'}}",
        ),
    ),
    "brackets and dollars": (
        hard,
        ("DB_PASSWORD={}", "password: {}", '"password": "{}"', "db.password={}", "SMTP_PASSWORD='{}'"),
    ),
    "stand-in words": (
        person,
        (
            'password = "{}"',
            "DB_PASSWORD={}",
            '"admin_password": "{}",',
            "  password: '{}'",
            "spring.datasource.password={}",
            "postgres://app:{}@db.corp:5432/x",
        ),
    ),
    "typed languages": (
        manager,
        (
            'const dbPassword: string = "{}";',
            'let apiSecret: String = "{}"',
            'var token string = "{}"',
            'private static final String PASSWORD = "{}";',
            'const char *password = "{}";',
            'static char password[] = "{}";',
            'val clientSecret: String = "{}"',
            '#define AUTH_TOKEN "{}"',
            'pub const SECRET: &str = "{}";',
            'password: str = "{}"',
            "$config[\"db_password\"] = '{}';",
            'System.setProperty("db.password", "{}");',
            '.env("API_TOKEN", "{}")',
            'ENV["SECRET"] ||= "{}"',
            'my $password = "{}";',
            'password <- "{}"',
            "password: process.env.PW ?? '{}',",
        ),
    ),
    "config files": (
        manager,
        (
            "<password>{}</password>",
            '<add key="DbPassword" value="{}"/>',
            '<property name="password" value="{}"/>',
            "- name: DB_PASSWORD\n  value: {}",
            '{{"name": "DB_PASSWORD", "value": "{}"}}',
            "password: |\n    {}\n",
            "password=  {}",
            '  password = "{}"  # vault',
            "Server=db;Database=x;User Id=sa;Password={};",
            'environment = {{ DB_PASSWORD = "{}" }}',
            "ENV DB_PASSWORD {}",
            "ARG NPM_TOKEN={}",
            '\\"password\\":\\"{}\\"',
            '\\\\\\"secret\\\\\\": \\\\\\"{}\\\\\\"',
            "[db]\npassword : {}",
        ),
    ),
    "headers and URLs": (
        chars(ALNUM, 24, 44),
        (
            "X-Api-Key: {}",
            "curl -H 'X-Auth-Token: {}' https://h",
            "Authorization: token {}",
            "https://host/x?access_token={}&n=1",
            "https://{}@git.corp/ada/x.git",
            "wss://h/s?apikey={}",
            'headers = {{"Private-Token": "{}"}}',
            '-H "Authorization: ApiKey {}"',
        ),
    ),
}


def draw(form: str, rng: random.Random) -> Drawn:
    """Draw one secret of `form` in one of its texts."""
    make, texts = SHAPES[form]
    secret = make(rng)
    while form in PLAIN and set(secret) & set(ENDS_A_VALUE):
        secret = make(rng)
    template = rng.choice(texts)
    return Drawn(form=form, secret=secret, text=template.format(secret))
