"""The texts of the files that `ostinato team init` writes."""

from collections.abc import Mapping

TEAM = """\
# A team of {people}: `ostinato team up --file {file}`. Also a file for `ostinato run` and `ostinato cycle`.
# Written by `ostinato team init`. Every setting: docs/reference/settings.md. An unknown key is refused.
seed = 1

[model]
path = {model}

[engine]
url = [{engine}]          # servers of this model that are there; several make a pool
context = {context}       # tokens of prompt and completion together

[harness]
max_context = {max_context}   # no turn begins beyond it
max_tokens = {max_tokens}     # of one completion

[live]
developers = "people"
host = "{host}"           # 0.0.0.0 for every machine that reaches this one, without TLS
port = {port}             # of the gateway; the dashboard has the next one
address = {address}       # the address that people use, where a proxy stands before it
# {decides}.
claim = "better"          # "suite" once `[bench] suite` names one: `ostinato tasks mine`, `bench seal`
assign = "block"          # everybody meets both versions and is compared with themselves
sessions = {sessions}     # a candidate is trained after so many that may be learnt from
ab_sessions = {ab_sessions}
canary_sessions = 0       # a tenth of a small team is nobody
learning_rate = 1e-5

[tasks]                   # what a candidate must not have forgotten, until you seal a suite of your own
held_out = {{seeds = 24, names = 8, pairs = 8, larger = 8, families = 8}}

[bench]
passes = 1

[schedule]
stages = ["after", "cycle"]
cycles = 1000000          # until you stop it
every_s = 18000           # five hours
"""
UNIT = """\
# systemctl --user enable --now {folder}/ostinato-team.service && loginctl enable-linger
[Unit]
Description=ostinato: gateway, dashboard and cycle of a team
After=network-online.target
StartLimitIntervalSec=0

[Service]
WorkingDirectory={folder}
# PGPASSWORD, OSTINATO_REMOTE_KEY and the like stand there, for nobody else to read.
EnvironmentFile=-{folder}/team.env
ExecStart={command}
Restart=always
RestartSec=1
KillMode=mixed
TimeoutStopSec=30

[Install]
WantedBy=default.target
"""
COMPOSE = """\
# docker compose up -d, or podman-compose up -d, beside the wheel of ostinato (`make wheel`).
services:
  team:
    build:
      context: .
      dockerfile_inline: |
        FROM python:3.11-slim
        RUN apt-get update && apt-get install -y --no-install-recommends git && rm -rf /var/lib/apt/lists/*
        COPY ostinato-*.whl /tmp/
        RUN pip install --no-cache-dir "$(ls /tmp/ostinato-*.whl)[demo,hf]"
    command: ["ostinato", "team", "up", "--file", "/team/{file}"]
    network_mode: host
    volumes: [".:/team"]
    restart: always
    stop_grace_period: 30s
"""
CADDY = """\
# caddy run --config {folder}/Caddyfile
{name} {{
	@gateway path /v1/* /feedback /join /consent /healthz /openapi.json
	reverse_proxy @gateway 127.0.0.1:{port} {{
		flush_interval -1
	}}
	reverse_proxy 127.0.0.1:{dashboard}
}}
"""
NGINX = """\
# Include it in http {{ … }}, as from /etc/nginx/conf.d/.
server {{
    listen 443 ssl;
    server_name {name};
    ssl_certificate     /etc/letsencrypt/live/{name}/fullchain.pem;
    ssl_certificate_key /etc/letsencrypt/live/{name}/privkey.pem;
    client_max_body_size 9m;
    proxy_http_version 1.1;
    proxy_set_header Host $http_host;            # as it came: the gateway refuses names that it does not know
    proxy_set_header X-Forwarded-For $remote_addr;
    proxy_buffering off;                         # tokens stream
    proxy_read_timeout 600s;
    location ~ ^/(v1/|feedback$|join$|consent$|healthz$|openapi\\.json$) {{
        proxy_pass http://127.0.0.1:{port};
    }}
    location / {{
        proxy_pass http://127.0.0.1:{dashboard};
    }}
}}
"""
BESIDE: Mapping[str, str] = {
    "ostinato-team.service": UNIT,
    "compose.yaml": COMPOSE,
    "Caddyfile": CADDY,
    "nginx.conf": NGINX,
}
"""The files beside that of a team, by their names; `{name}` and the like are filled in."""
