"""The texts of the files that `ostinato team init` writes."""

from collections.abc import Mapping

TEAM = """\
# A team of {people}: `ostinato team up --file {file}`. Also a file for `ostinato run` and `ostinato cycle`.
# Written by `ostinato team init`. Every setting: docs/reference/settings.md. An unknown key is refused.
seed = 1

[model]
path = {model}

[engine]
# Servers that serve this model already; several make a pool.
url = [{engine}]
context = {context}

[harness]
# As `ostinato code` works for a person, so that what the gate measures is what people are served.
profile = "{profile}"
max_turns = 50
max_context = {context}
max_tokens = 2048
temperature = 0.3
command_timeout_s = 600

# What stays different, and why (`ostinato fidelity {file}`); the gate admits nobody while another is there.
[fidelity.wanted]
sandbox = "a person's work stays where it is, and a benchmark must harm nothing"
permissions = "the sandbox is the boundary of a benchmark"
user = "nobody sits beside a benchmark"

[trainer]
# Adapters, which an engine that is there loads beside each other.
kind = "fsdp"
lora_rank = 16

[live]
developers = "people"
# 0.0.0.0 is for every machine that reaches this one, without TLS. The dashboard has the next port.
host = "{host}"
port = {port}
# The address that people use where a proxy stands before the gateway, as https://models.example.
address = {address}
# {decides}.
# Once `[bench] suite` names a sealed suite (`ostinato tasks mine`, `bench seal`), claim = "suite" shows more.
claim = "better"
# Everybody meets both versions and is compared with themselves; a tenth of a small team is nobody.
assign = "block"
canary_sessions = 0
# Sessions that may be learnt from, for each candidate, and sessions until a trial is judged.
sessions = {sessions}
ab_sessions = {ab_sessions}
learning_rate = 1e-5

[tasks]
# What no candidate may forget, until you seal a suite of your own.
held_out = {{seeds = 24, names = 8, pairs = 8, larger = 8, families = 8}}

[bench]
passes = 1

[schedule]
# Every five hours, until it is stopped.
stages = ["after", "cycle"]
cycles = 1000000
every_s = 18000
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
RestartSec=100ms
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
