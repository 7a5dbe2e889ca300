"""The variables that name an engine, and advice on them; no library is needed to give it."""

E2B_KEY, E2B_TEMPLATE = "E2B_API_KEY", "OSTINATO_E2B_TEMPLATE"
E2B = (
    f"set {E2B_KEY}, and E2B_DOMAIN, or E2B_API_URL and E2B_SANDBOX_URL, for a server of your own "
    f"(E2B_HTTP_VERSION=1.1 where it has no TLS); {E2B_TEMPLATE} names the template, by default `base`"
)
POOL, NAMESPACE = "OSTINATO_AGENT_SANDBOX_POOL", "OSTINATO_AGENT_SANDBOX_NAMESPACE"
ROUTER, GATEWAY = "OSTINATO_AGENT_SANDBOX_URL", "OSTINATO_AGENT_SANDBOX_GATEWAY"
AGENT_SANDBOX = (
    f"set {POOL} to a SandboxWarmPool in the namespace {NAMESPACE} (by default `default`), and {ROUTER} to "
    f"the sandbox router or {GATEWAY} to its gateway, or neither within the cluster; KUBECONFIG or the pod's "
    "service account names the cluster and has to allow sandboxclaims and sandboxes"
)
