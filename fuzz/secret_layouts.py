"""Secrets in 300 and more published forms, each with a random body: services' tokens, and places in files.

`TOKENS` holds the forms of services' tokens as their manuals and their clients' tests describe them, and
`LAYOUTS` the texts in which files, tools and people keep a secret. `{u64}` stands for 64 random characters of
an alphabet: `a` letters and digits, `u` these with `_-`, `b` base64, `h` hexadecimal, `l` small letters and
digits, `U` capitals and digits, `d` digits, `L` letters, `T` base32; `{g}` is a UUID, `{P}` a password, `{B}`
the base64 of random bytes and `{D}` that of a login. `[[ ]]` encloses what is secret in a text.

Half of the names, chosen by a digest, are for development. The others are sealed: rules are not made with
them, so the figure on them tells how the rules do on forms that nobody thought of.
"""

import base64
import hashlib
import json
import random
import re
import string
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

from fuzz.secret_shapes import Draw, any_password, b64, docker_auth, pem, vendor

ALPHABETS = {
    "a": string.ascii_letters + string.digits,
    "u": string.ascii_letters + string.digits + "_-",
    "b": string.ascii_letters + string.digits + "+/",
    "h": "0123456789abcdef",
    "l": string.ascii_lowercase + string.digits,
    "U": string.ascii_uppercase + string.digits,
    "d": string.digits,
    "L": string.ascii_letters,
    "T": string.ascii_uppercase + "234567",
}
OTHERS: dict[str, Draw] = {
    "{g}": lambda rng: str(uuid.UUID(int=rng.getrandbits(128), version=4)),
    "{P}": any_password,
    "{B}": b64(18, 30),
    "{D}": docker_auth,
}
SIGNS = str.maketrans("⏎→", "\n\t")
FIELD = re.compile(r"\{(?:([auhlUdLbT])(\d+)|[gPBD])\}")
TOKENS = dict(
    line.split(None, 1)
    for line in """
1password-secret-key  A3-{U6}-{U6}-{U5}-{U5}-{U5}-{U5}
1password-service     ops_eyJ{u260}
adafruit              aio_{a28}
airtable              pat{a14}.{h64}
alibaba               LTAI{a20}
artifactory           AKCp5{a68}
artifactory-reference cmVmdGtuO{a55}
asana                 1/{d16}:{h32}
atlassian             ATATT3xFfGF0{u160}={U8}
aws-bedrock           ABSKQmVkcm9ja0FQSUtleS{b108}=
azure-ad              {a3}8Q~{u34}
azure-devops          {a76}AZDO{a4}
azure-openai          {a52}JQQJ99{a10}ACOG{a6}
bitbucket             ATBB{a32}
braintree             access_token$production${l16}${h32}
braintrust            sk-{a48}
brevo                 xkeysib-{h64}-{a16}
browserbase           bb_live_{u27}
buildkite             bkua_{h40}
cerebras              csk-{l48}
circleci              CCIPAT_{a22}_{h40}
clickhouse-cloud      4b1d{a38}
clickup               pk_{d8}_{U32}
clojars               CLOJARS_{h60}
cloudflare-ca         v1.0-{h24}-{h146}
cohere                co_{a40}
contentful            CFPAT-{u43}
crates                cio{a32}
discord-bot           MT{a22}.G{u5}.{u38}
docker-organisation   dckr_oat_{u32}
doppler               dp.pt.{a43}
dropbox               sl.{u135}
duffel                duffel_live_{u43}
dynatrace             dt0c01.{U24}.{U64}
e2b                   e2b_{h40}
easypost              EZAK{a54}
elevenlabs            sk_{h48}
facebook              EAA{a110}
figma                 figd_{u40}
firebase-messaging    AAAA{u7}:APA91b{u140}
firecrawl             fc-{h32}
fireworks             fw_{a24}
fly                   FlyV1 fm2_{b160}
flutterwave           FLWSECK-{h32}-X
frame-io              fio-u-{u64}
gitlab-deploy         gldt-{u20}
gitlab-feed           glft-{u20}
gitlab-oauth          gloas-{h64}
gitlab-runner         GR1348941{u20}
gitlab-trigger        glptt-{h40}
google-hmac           GOOG1E{U57}
google-refresh        1//0{u100}
groq                  gsk_{a52}
harness               pat.{u22}.{h24}.{a20}
heroku                HRKU-AA{u58}
hubspot               pat-na1-{g}
ibm-cloud             ApiKey-{g}
infisical             st.{h24}.{h32}.{h32}
intercom              dG9rO{b54}=
jina                  jina_{h32}{a28}
langfuse              sk-lf-{g}
langsmith             lsv2_pt_{h32}_{h10}
launchdarkly          api-{g}
linear                lin_api_{a40}
linear-oauth          lin_oauth_{h64}
lob                   live_{h35}
mailchimp             {h32}-us12
mapbox                sk.eyJ1{a60}.{u22}
maxmind               {a6}_{a29}_mmk
modal                 as-{a22}
mollie                live_{a30}
mongodb-atlas         mdb_sa_sk_{u40}
neon                  napi_{l64}
newrelic-insert       NRII-{u32}
notion                ntn_{d11}{a35}
notion-old            secret_{a43}
npm                   npm_{a36}
nuget                 oy2{l43}
nvidia                nvapi-{u64}
octopus               API-{U26}
okta                  00{u40}
openai-project        sk-proj-{u74}T3BlbkFJ{u74}
openrouter            sk-or-v1-{h64}
packagist             packagist_ack_{h36}
paystack              sk_live_{h40}
perplexity            pplx-{a48}
pinecone              pcsk_{a6}_{a63}
plaid                 access-production-{g}
planetscale           pscale_tkn_{u43}
planetscale-password  pscale_pw_{u43}
postman               PMAK-{h24}-{h34}
posthog               phx_{a43}
prefect               pnu_{a36}
pulumi                pul-{h40}
pypi                  pypi-AgEIcHlwaS5vcmc{u150}
rapidapi              {l10}msh{l20}p1{l5}jsn{l12}
readme                rdme_{l70}
render                rnd_{a28}
replicate             r8_{a37}
resend                re_{a8}_{a24}
rubygems              rubygems_{h48}
runpod                rpa_{U40}{l6}
salesforce            00D{a12}!AQ{a94}
sanity                sk{a180}
scalingo              tk-us-{u48}
segment               sgp_{a64}
sentry-organisation   sntrys_eyJ{b120}_{b43}
sentry-user           sntryu_{h64}
shippo                shippo_live_{h40}
slack-app             xapp-1-A{U10}-{d13}-{h64}
slack-browser         xoxc-{d12}-{d12}-{d12}-{h64}
slack-cookie          xoxd-{a40}%2F{a60}%2B{a40}%3D
slack-refresh         xoxe-1-{a147}
snowflake             ver:1-hint:{d10}-ETMs{b150}
sonar                 squ_{h40}
sourcegraph           sgp_{h16}_{h40}
square                sq0csp-{u43}
square-access         EAAA{u60}
stripe-restricted     rk_live_{a99}
stripe-webhook        whsec_{a32}
stytch                secret-live-{u35}=
supabase              sbp_{h40}
supabase-secret       sb_secret_{u22}_{u8}
tailscale             tskey-auth-k{a10}CNTRL-{a32}
tavily                tvly-dev-{a32}
telegram              {d10}:AA{u33}
tencent               AKID{a32}
terraform-cloud       {a14}.atlasv1.{u67}
together              tgp_v1_{u43}
trigger-dev           tr_prod_{a20}
twitch                oauth:{l30}
twitter-bearer        AAAAAAAAAAAAAAAAAAAAA{a40}%3D{a50}
typeform              tfp_{u44}_{u14}
vault-batch           hvb.AAAAAQ{u130}
vault-recovery        hvr.CAESI{u60}
vercel                vcp_{a56}
voyage                pa-{u43}
wandb                 wandb_v1_{a80}
weaviate              WCD{a57}
workos                sk_live_{b60}
xai                   xai-{a80}
yandex                AQVN{u36}
zapier                sk-ak-{u24}
""".strip().splitlines()
)
AROUND = (
    "used [[{}]] until yesterday",
    'x = connect("[[{}]]")',
    "  - [[{}]]",
    '{{"a": ["[[{}]]", 1]}}',
    "the bot said: [[{}]].",
    "client.use('[[{}]]');",
    "https://host/x/[[{}]]/y",
    "| prod | [[{}]] | 3 |",
)
"""Texts in which nothing but its form tells that a token is secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Laid:
    """A text, the parts of it that are secret, its form (kind and name) and whether that is sealed."""

    form: str
    text: str
    secrets: tuple[str, ...]
    sealed: bool


def filled(pattern: str, rng: random.Random) -> str:
    """Return `pattern` with each `{…}` drawn; a random body has a digit wherever its alphabet has digits."""

    def one(field: re.Match[str]) -> str:
        if field[1] is None:
            return OTHERS[field[0]](rng)
        alphabet, n = ALPHABETS[field[1]], int(field[2])
        while True:
            text = "".join(rng.choices(alphabet, k=n))
            if n < 8 or field[1] == "L" or any(each.isdigit() for each in text):
                return text

    return FIELD.sub(one, pattern)


def laid(form: str, text: str) -> Laid:
    """Return a text in which `[[ ]]` enclosed the secrets."""
    secrets = tuple(re.findall(r"\[\[(.*?)\]\]", text, re.DOTALL))
    plain = re.sub(r"\[\[(.*?)\]\]", r"\1", text, flags=re.DOTALL)
    return Laid(form=form, text=plain, secrets=secrets, sealed=is_sealed(form.split(" ", maxsplit=1)[0]))


OPENED = ("token/airtable", "command/")
"""Forms which somebody found missing, and with which rules were made then."""
PUBLIC = """
AKIAIOSFODNN7EXAMPLE
aws_access_key_id = AKIAI44QH8DHBEXAMPLE
aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY
"SecretAccessKey": "je7MtGbClwBF/2Zp9Utk/h3yCo8nvbEXAMPLEKEY",
{"AccessKeyId": "ASIAIOSFODNN7EXAMPLE", "x": "9drTJvcXLB89EXAMPLELB8923FB892xMFI"}
export GITHUB_TOKEN=ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
GITLAB_TOKEN: glpat-XXXXXXXXXXXXXXXXXXXX
OPENAI_API_KEY=sk-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
the header is eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9
const header = "eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCIsImtpZCI6IjEyMyJ9";
expect(parts[0]).toBe('eyJ0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9')
Stripe("pk_test_TYooMQauvdEDq54NiTphI7jx")
NEXT_PUBLIC_STRIPE_KEY=pk_live_51H8kqLK2eZvKYlo2C0aBcDeF
data-key="pk_test_51HxYzABCDEF0123456789abcdefXYZ"
mapboxgl.accessToken = "pk.eyJ1IjoiYWRhIiwiYSI6ImNrMTIzNDU2In0.abcdEFGH1234ijkl5678mn";
NEXT_PUBLIC_SUPABASE_KEY=sb_publishable_q8Zt3LmX90pWv2RbAA77xx_a1b2c3d4
posthog.init('phc_q8Zt3LmX90pWv2RbAA77xxq8Zt3LmX90pWv2RbAA7')
helm install db . --set auth.existingSecret=shop-db-creds,image.tag=16.2.0
kubectl create secret generic db --from-file=password=./password.txt
helm upgrade db . --set imagePullSecrets[0].name=regcred --set secretKeys.adminPasswordKey=postgres-password
terraform apply -var secret_name=prod/db/main1 -var token_ttl=24h
openssl enc -aes-256-cbc -k "$PASS" -pass env:PASS -in a
openssl req -new -key server1.key -out server1.csr -subj /CN=a
""".strip().splitlines()
"""What looks like a secret and is none: manuals print it, pages give it to every visitor, or it names one."""


def is_sealed(name: str) -> bool:
    if name.startswith(OPENED):
        return False
    return hashlib.sha256(name.encode()).digest()[0] % 2 == 1


def draw_all(rng: random.Random) -> Iterator[Laid]:
    """Yield one secret of every form: each token in two surroundings, and each layout."""
    for i, (name, pattern) in enumerate(TOKENS.items()):
        for step in (0, 3):
            around = AROUND[(i + step) % len(AROUND)]
            yield laid(f"token/{name} {around}", around.format(filled(pattern, rng)))
    for name, text in LAYOUTS.items():
        yield laid(name, filled(text.translate(SIGNS), rng))
    for name, text in _built(rng):
        yield laid(name, text)


LAYOUTS = dict(
    line.split(" ", 1)
    for line in r"""
letters/assigned api_key = "[[{L24}]]"
letters/environment STRIPE_TOKEN=[[{L32}]]
letters/json {"client_secret": "[[{L20}]]"}
letters/yaml   auth_token: [[{L28}]]
letters/header X-Api-Key: [[{L32}]]
letters/java String accessToken = "[[{L22}]]";
letters/shell export DB_PASSWORD='[[{L16}]]'
letters/query GET /v1?apikey=[[{L24}]]&page=2
connection/ado Server=tcp:db.corp,1433;Database=shop;User ID=sa;Password=[[{P}]];Encrypt=True;
connection/ado-pwd Data Source=db;Initial Catalog=x;Uid=app;Pwd=[[aB;{a9}]];
connection/ado-symbols "ConnectionString": "Server=db;User Id=app;Password=[[p(w$)<{a8}>!]];TrustServerCertificate=true"
connection/ado-quoted Server=db;User Id=app;Password='[[x y {a8}]]';Timeout=3
connection/odbc Driver={ODBC Driver 18};Server=db;UID=app;PWD={[[Zq;{a10}]]};
connection/service-bus Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=[[{b43}=]]
connection/storage DefaultEndpointsProtocol=https;AccountName=x;AccountKey=[[{b86}==]];EndpointSuffix=core.windows.net
connection/jdbc-query jdbc:mysql://db:3306/shop?user=app&password=[[{P}]]&useSSL=true
connection/jdbc-oracle jdbc:oracle:thin:app/[[{a14}]]@//db:1521/shop
connection/jdbc-sqlserver jdbc:sqlserver://db:1433;user=sa;password=[[{a12}!]];encrypt=true
connection/sqlplus sqlplus app/[[{a12}]]@shop
connection/libpq host=db port=5432 dbname=shop user=app password=[[{a12}]] sslmode=require
connection/mongo mongodb+srv://app:[[{a18}]]@c0.ab1cd.mongodb.net/shop?retryWrites=true
connection/redis redis://default:[[{a32}]]@cache:6379
connection/amqp amqps://app:[[{u20}]]@mq/vhost
connection/neon postgresql://owner:[[npg_{a12}]]@ep-x-pooler.eu-central-1.aws.neon.tech/db
connection/percent postgres://app:[[p%40{a8}%21x]]@db/shop
connection/smtp smtp://bot%40corp.io:[[{a16}]]@mail:587
connection/ftp lftp -u ada,[[{P}]] ftp.corp
connection/git git clone https://oauth2:[[{u26}]]@git.corp/x.git
kubernetes/data apiVersion: v1⏎kind: Secret⏎metadata:⏎  name: db⏎data:⏎  username: YXBw⏎  database: [[{B}]]⏎type: Opaque
kubernetes/data-before-kind apiVersion: v1⏎data:⏎  hmac: [[{B}]]⏎kind: Secret
kubernetes/json {"apiVersion":"v1","data":{"blob":"[[{B}]]"},"kind":"Secret","metadata":{"name":"x"}}
kubernetes/string-data apiVersion: v1⏎kind: Secret⏎stringData:⏎  dsn.txt: [[{a14}!]]
kubernetes/list-item - apiVersion: v1⏎  kind: Secret⏎  data:⏎    one: [[{B}]]⏎    two: [[{B}]]
kubernetes/dockerconfig kind: Secret⏎type: kubernetes.io/dockerconfigjson⏎data:⏎  .dockerconfigjson: [[{D}]]
table/markdown | user | password | role |⏎|------|----------|------|⏎| ada  | [[{a10}!]] | admin |⏎| bob  | [[{P}]] | dev |
table/psql  id | login | api_key⏎----+-------+---------⏎  1 | ada   | [[{a24}]]⏎  2 | bob   | [[{a24}]]⏎(2 rows)
table/mysql +----+-------+--------------+⏎| id | user  | auth_token   |⏎+----+-------+--------------+⏎|  1 | ada   | [[{h24}]] |⏎+----+-------+--------------+
table/csv name,email,password,active⏎ada,ada@x.io,[[{a9}!]],1⏎bob,bob@x.io,[[{P}]],0
table/csv-quoted "id","client_secret","scope"⏎"7","[[{u30}]]","read"
table/tsv host→user→passwd⏎db1→app→[[{a11}]]⏎db2→app→[[{a13}]]
table/semicolons Konto;Benutzer;Password⏎1;ada;[[{a12}]]
table/two-columns secret | owner⏎-------|------⏎[[{u22}]] | ada
table/expanded-psql -[ RECORD 1 ]---⏎login   | ada⏎api_key | [[{a26}]]
table/box │ name │ token │⏎├──────┼───────┤⏎│ ada  │ [[{a20}]] │
hash/bcrypt ada:[[$2y$10${a53}]]
hash/bcrypt-sql INSERT INTO u VALUES (1, 'ada', '[[$2b$12${a53}]]');
hash/shadow-6 root:[[$6${a8}${a86}]]:19000:0:99999:7:::
hash/shadow-6-rounds app:[[$6$rounds=5000${a16}${a86}]]:19000:0:99999:7:::
hash/shadow-5 app:[[$5${a16}${a43}]]:19000::::::
hash/yescrypt ada:[[$y$j9T${a22}${a43}]]:19800:0:99999:7:::
hash/md5crypt ada:[[$1${a8}${a22}]]:17000:0:99999:7:::
hash/apr1 ada:[[$apr1${a8}${a22}]]
hash/argon2 got [[$argon2id$v=19$m=65536,t=3,p=4${b22}${b43}]] back
hash/django pbkdf2: [[pbkdf2_sha256$870000${a22}${b43}=]]
hash/phpass '[[$P$B{a30}]]'
hash/scrypt [[scrypt:32768:8:1${a16}${h128}]]
hash/ssha userPassword: [[{SSHA}{b38}==]]
hash/ntlm Administrator:500:[[{h32}:{h32}]]:::
hash/scram [[SCRAM-SHA-256$4096:{b22}==${b43}=:{b43}=]]
lines/continued curl https://h -H X-A:[[ghp_{a18}\⏎{a18}]] -v
lines/python-joined x = ("[[glpat-{a10}"⏎     "{a10}]]")
lines/added const t = "[[sk-proj-{u30}" +⏎  "{u30}]]";
lines/wrapped the token is⏎  [[github_pat_{a22}_{a25}⏎  {a34}]]⏎and no other
lines/folded-yaml x: >-⏎  [[{b64}⏎  {b64}⏎  {b20}]]
lines/wrapped-named aws_secret_access_key = "[[{b20}" \⏎  "{b20}]]"
lines/wrapped-jwt [[eyJhbGciOiJIUzI1NiJ9.eyJzdWIi{a42}⏎{u60}⏎{u20}.{u43}]]
lines/quoted-mail > [[xoxb-{d12}-{d12}-{a6}⏎> {a18}]]
lines/php $k = '[[AIza{u15}' .⏎     '{u20}]]';
pair/beside AKIA{U16} [[{b40}]]
pair/csv User name,Access key ID⏎deploy,AKIA{U16},[[{b40}]]
pair/lines AKIA{U16}⏎[[{b40}]]
pair/tuple boto3.client("s3", "eu", "AKIA{U16}", "[[{b40}]]")
pair/reversed [[{b40}]] / AKIA{U16}
pair/id-and-secret "AccessKeyId": "ASIA{U16}", "x": "[[{b40}]]"
query/amazon https://b.s3.amazonaws.com/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Expires=900&X-Amz-Signature=[[{h64}]]
query/amazon-session https://b.s3.amazonaws.com/k?X-Amz-Security-Token=[[{a120}]]&X-Amz-Date=20260101T000000Z
query/google https://storage.googleapis.com/b/o?X-Goog-Expires=60&X-Goog-Signature=[[{h200}]]
query/escaped "url": "https://b.s3.amazonaws.com/k?a=1\u0026X-Amz-Signature=[[{h64}]]"
query/html <a href="https://h/x?a=1&amp;access_token=[[{a30}]]&amp;b=2">
query/azure https://x.blob.core.windows.net/c/f?sv=2022-11-02&se=2026&sig=[[{a42}%3D]]
query/fragment https://app/cb#access_token=[[{a40}]]&state=1
query/cloudfront https://d1.cloudfront.net/x?Expires=1&Signature=[[{u170}]]&Key-Pair-Id=K2
query/code https://h/oauth/cb?code=[[{a40}]]&state=ok
webhook/discord https://discord.com/api/webhooks/{d19}/[[{u68}]]
webhook/discord-old https://discordapp.com/api/webhooks/{d18}/[[{u68}]]
webhook/teams https://x.webhook.office.com/webhookb2/[[{g}@{g}/IncomingWebhook/{h32}/{g}]]
webhook/slack https://hooks.slack.com/services/[[T{U8}/B{U10}/{a24}]]
webhook/zapier https://hooks.zapier.com/hooks/catch/{d7}/[[{l7}{l12}]]/
webhook/google-chat https://chat.googleapis.com/v1/spaces/AAAA{u7}/messages?key=[[AIza{u35}]]&token=[[{u43}]]
webhook/power-automate https://prod-1.westus.logic.azure.com:443/workflows/{h32}/triggers/manual/paths/invoke?sig=[[{u43}]]
webhook/mattermost https://chat.corp/hooks/[[{l26}]]
webhook/telegram https://api.telegram.org/bot[[{d10}:AA{u33}]]/sendMessage
webhook/n8n POST https://flow.corp/webhook/[[{g}]]
webhook/gitlab https://git.corp/api/v4/projects/1/trigger/pipeline?token=[[glptt-{h40}]]
file/netrc machine api.corp login ada password [[{P}]]
file/netrc-lines machine api.corp⏎login ada⏎password [[{a12}]]
file/pgpass db.corp:5432:*:app:[[{a14}]]
file/npmrc //registry.corp/:_authToken=[[{g}]]
file/npmrc-password //registry.corp/:_password="[[{B}]]"
file/docker {"auths": {"https://index.docker.io/v1/": {"auth": "[[{D}]]"}}}
file/docker-identity {"auths": {"x.azurecr.io": {"identitytoken": "[[{u120}]]"}}}
file/pypirc [pypi]⏎username = __token__⏎password = [[pypi-AgEIcHlwaS5vcmc{u120}]]
file/cargo [registry]⏎token = "[[{a32}]]"
file/gem :rubygems_api_key: [[rubygems_{h48}]]
file/git-credentials https://ada:[[{a20}]]@git.corp
file/maven <server><id>x</id><username>u</username><password>[[{a14}]]</password></server>
file/gradle signing.password=[[{a12}!]]
file/my.cnf [client]⏎user=root⏎password="[[{P}]]"
file/htdigest ada:realm:[[{h32}]]
file/wpa network={⏎  ssid="home"⏎  psk="[[{a14}]]"⏎}
file/wireguard [Interface]⏎PrivateKey = [[{b42}E=]]
file/ansible ansible_become_pass: [[{a12}!]]
file/terraform password = "[[{a16}]]" # rds
file/tfvars db_admin_pw = "[[{a16}]]"
file/rails secret_key_base: [[{h128}]]
file/laravel APP_KEY=base64:[[{b43}=]]
file/php-define define('AUTH_SALT', '[[{a40}!{a22}]]');
file/kubeconfig     token: [[eyJhbGciOiJSUzI1NiJ9.eyJ{u90}.{u86}]]
file/rclone pass = [[{u44}]]
file/s3cfg secret_key = [[{b40}]]
file/boto aws_secret_access_key=[[{b40}]]
file/heroku-netrc machine api.heroku.com login a@b.io password [[{g}]]
file/composer {"http-basic": {"repo.corp": {"username": "u", "password": "[[{a20}]]"}}}
file/sentry-dsn https://[[{h32}:{h32}]]@sentry.corp/4
file/ldap bindpw [[{a14}!]]
file/cookie Cookie: _ga=GA1.2.3; user_session=[[{u48}]]; tz=UTC
file/set-cookie Set-Cookie: connect.sid=s%3A[[{u32}.{a43}]]; Path=/
file/basic Authorization: Basic [[{D}]]
file/digest Authorization: Digest username="ada", response="[[{h32}]]"
file/aws-header Authorization: AWS4-HMAC-SHA256 Credential=AKIA{U16}/x, SignedHeaders=host, Signature=[[{h64}]]
file/totp otpauth://totp/x:ada?secret=[[{T32}]]&issuer=x
command/kubectl kubectl create secret generic db --from-literal=username=ada --from-literal=password=[[S3{a8}]]
command/kubectl-quoted kubectl -n x create secret generic db --from-literal='api-token=[[{a12}]]' --dry-run=client
command/helm helm install db bitnami/postgresql --set auth.postgresPassword=[[{a10}]],auth.replicationPassword=[[{a10}]]
command/helm-string helm upgrade db . --set-string 'global.redis.password=[[{a9}7]]' --wait
command/docker docker run -e MYSQL_ROOT_PASSWORD=[[{a9}7]] -e TZ=UTC mysql:8
command/build docker build --build-arg NPM_TOKEN=[[{a12}]] .
command/terraform terraform apply -var 'db_password=[[{a10}]]' -auto-approve
command/ansible ansible-playbook -i hosts site.yml --extra-vars "ansible_become_password=[[{a10}]] mode=fast"
command/vault vault kv put secret/db user=ada password=[[{a10}]]
command/heroku heroku config:set SMTP_PASSWORD=[[{a10}]] -a shop
command/gcloud gcloud run deploy x --set-env-vars=MODE=prod,DB_PASSWORD=[[{a10}]]
command/openssl-k openssl enc -aes-256-cbc -pbkdf2 -k [[{a9}7]] -in a -out b
command/openssl-hex openssl enc -aes-128-cbc -K [[{h32}]] -iv {h32} -in a
command/openssl-pass openssl enc -d -aes-256-cbc -pass pass:[[correct-{l8}]] -in a
command/openssl-passin openssl rsa -in k.pem -passin 'pass:[[{a10}]]' -out k
command/sas azcopy copy a 'https://x.blob.core.windows.net/c?sv=2022-11-02&sp=rw&sig=[[{a20}%2B{a21}%3D]]'
command/sas-variable export SAS="sv=2022-11-02&ss=b&sig=[[{a20}%2F{a21}%3D]]"
command/sas-alone sig=[[{a43}%3D]]
command/snowflake snowsql -a corp --token [[ver:3-hint:{d10}-ETMs{b150}]]
command/putty-escaped {"ppk": "PuTTY-User-Key-File-3: ssh-rsa\nPublic-Lines: 1\nAAAA\nPrivate-Lines: 2\n[[{b64}\n{b40}]]\nPrivate-MAC: {h64}"}
command/putty-cut Encryption: none⏎Private-Lines: 8⏎[[{b64}⏎{b64}⏎{b33}]]
command/putty-diff +Private-Lines: 2⏎+[[{b64}⏎+{b40}]]⏎+Private-MAC: {h64}
spoken/english The password for the staging box is [[{a9}!x]], please change it.
spoken/german Das Passwort lautet [[{a10}!x]]
spoken/backticks Use the API key `[[{a28}]]` for now.
spoken/label Password (staging): [[{a10}!]]
spoken/prompt Enter your token: [[{a30}]]
spoken/typed Password for 'ada': [[{P}]]
spoken/bold **API key:** [[{a32}]]
spoken/list * secret: `[[{a20}]]`
""".strip().splitlines()  # noqa: E501
)  # fmt: skip
"""The texts by kind and name; `⏎` stands for a new line and `→` for a tab."""


def _built(rng: random.Random) -> Iterator[tuple[str, str]]:
    """Yield the texts that are made by an encoding, with their names."""
    token, key = vendor(rng), pem(rng)
    body = "".join(key.split("\n")[1:-2])
    unicode = "".join(f"\\u{ord(each):04x}" for each in token)
    pkcs8, pkcs1 = ("MIIEvQIBADANBgkqhkiG9w0BAQEFAASC", "MIIEpAIBAAKCAQEA")
    yield "escape/unicode-whole", f'{{"a": "[[{unicode}]]"}}'
    dashed = vendor(rng).replace("-", "\\u002d").replace("_", "\\u005f")
    yield "escape/unicode-signs", f'{{"a": "[[{dashed}]]"}}'
    named = filled("{a12}+{a12}/{a14}", rng).replace("+", "\\u002b").replace("/", "\\u002f")
    yield "escape/unicode-named", f'{{"x_secret": "[[{named}]]"}}'
    yield "escape/hex", f"x = '[[{''.join(f'{chr(92)}x{ord(each):02x}' for each in token)}]]'"
    yield "escape/slash", '{"Key": "[[' + filled("{b13}\\/{b12}\\/{b13}", rng) + ']]", "secret": 1}'
    percent = "".join(f"%{ord(each):02X}" for each in vendor(rng))
    yield "escape/percent", f"POST /x a=[[{percent}]]"
    url = quote(f"postgres://app:[[{filled('{a16}', rng)}]]@db/x", safe="[]")
    yield "escape/url-in-url", f"https://h/?u={url}"
    entity = "".join(f"&#{ord(each)};" for each in vendor(rng))
    yield "escape/entities", f"<b>[[{entity}]]</b>"
    yield "escape/quoted-json", "<x a='{&quot;password&quot;: &quot;[[" + any_password(rng) + "]]&quot;}'/>"
    yield "escape/hex-dump", f"data = bytes.fromhex('[[{vendor(rng).encode().hex()}]]')"
    yield "escape/base64-url", f"?state=[[{quote(_b64(json.dumps({'token': vendor(rng)})))}]]"
    yield "escape/base64-lines", f"x: |\n  [[{_wrapped(_b64(pem(rng)), 60, '  ')}]]\ny: 1"
    yield "pem/percent", f"key=[[{quote(key, safe='')}]]"
    yield "pem/form", f"key=[[{quote(pem(rng), safe='').replace('%20', '+')}]]"
    yield "pem/headless-pkcs8", f"[[{pkcs8}{_wrapped(body, 64, '')}]]"
    yield "pem/headless-pkcs1", f"<k>[[{pkcs1}{filled('{b900}', rng)}==]]</k>"
    yield "pem/headless-lines", f"  [[{pkcs1}{_wrapped(filled('{b960}', rng), 64, '  ')}]]\n"
    yield "pem/openssh-headless", f"k = '[[b3BlbnNzaC1rZXktdjEAAAAA{filled('{b400}', rng)}==]]'"
    yield "pem/ec-headless", f'"[[MHcCAQEEI{filled("{b151}", rng)}==]]"'
    yield "pem/ed25519-headless", f"x [[MC4CAQAwBQYDK2VwBCIEI{filled('{b42}', rng)}]]"
    yield "pem/escaped-newlines", f'"a": "[[{key.strip()}]]"'.replace("\n", "\\n")
    yield "pem/json-in-json", f'\\"a\\": \\"[[{pem(rng).strip()}]]\\"'.replace("\n", "\\\\n")
    yield "pem/cut", f"-----BEGIN RSA PRIVATE KEY-----\n[[{_wrapped(filled('{b500}', rng), 64, '')}]]"
    tail = f"[[{_wrapped(filled('{b300}', rng), 64, '')}]]\n-----END RSA PRIVATE KEY-----"
    yield "pem/tail", f"…\n{tail}\n"
    yield (
        "pem/commented",
        "# -----BEGIN PRIVATE KEY-----\n# [[" + _wrapped(body, 64, "# ") + "]]\n# -----END PRIVATE KEY-----",
    )
    yield (
        "pem/concatenated",
        "k = '-----BEGIN PRIVATE KEY-----\\n' +\n  '[["
        + filled("{b64}\\n' +\n  '{b64}", rng)
        + "]]\\n' +\n '-----END PRIVATE KEY-----'",
    )
    yield "jwt/plain", "[[" + filled("eyJhbGciOiJub25lIn0.eyJzdWIi{u60}.{u43}", rng) + "]]"
    yield "jwt/cookie", "Cookie: a=[[" + filled("eyJhbGciOiJIUzI1NiJ9.eyJ{u60}.{u43}", rng) + "]]"


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _wrapped(text: str, width: int, indent: str) -> str:
    return f"\n{indent}".join(text[i : i + width] for i in range(0, len(text), width))
