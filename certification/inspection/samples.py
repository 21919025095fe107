"""One made-up credential of every format.

Each is put together here, so that no scanner of this repository takes one for real.
"""

from __future__ import annotations

__all__ = ["LOOK_ALIKES", "SAMPLES"]

ALNUM = "Zq8mW3xR7tLp2VbN9cKf4HsD6jYgQaE5uTi1oPwXzBvCnMkLdFhGyJrSeA0qR2w" * 3
LOWER = ALNUM.lower()
HEX = "9f8b6c1d2e3f4a5b6c7d8e9f0a1b2c3d4e5f6a7b8c9d0e1f2a3b4c5d6e7f8091" * 3
DIGITS = "8172635490" * 3
LETTERS = "".join(c for c in ALNUM if c.isalpha())

SAMPLES = {
    "aws_key": "AKIA" + "IOSFODNN7EXAMPLE",
    "aws_secret": "aws_secret_access_key=" + ALNUM[:40],
    "github_pat": "ghp_" + ALNUM[:36],
    "github_fine_grained": "github_pat_" + ALNUM[:82],
    "gitlab": "glpat-" + ALNUM[:20],
    "slack": "xoxb-" + DIGITS[:11] + "-" + ALNUM[:24],
    "slack_app": "xapp-1-A0" + ALNUM[:6].upper() + "-" + DIGITS[:12] + "-" + HEX[:64],
    "slack_webhook": "https://hooks.slack.com/services/T"
    + ALNUM[:8].upper()
    + "/B"
    + ALNUM[:8].upper()
    + "/"
    + ALNUM[:24],
    "jwt": "eyJ" + ALNUM[:20] + "." + ALNUM[:30] + "." + ALNUM[:30],
    "private_key": "-----BEGIN RSA PRIVATE " + "KEY-----",
    "putty_key": "PuTTY-User-Key-File-3: ssh-ed25519",
    "age_key": "AGE-SECRET-KEY-1" + "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L" + "QPZRY9X8GF2TVDW0S3JN54KHCE",
    "anthropic": "sk-ant-api03-" + ALNUM[:93] + "AA",
    "openai": "sk-proj-" + ALNUM[:48],
    "openai_legacy": "sk-" + ALNUM[:48],
    "google_api": "AIza" + ALNUM[:35],
    "google_oauth": "ya29." + ALNUM[:40],
    "google_client_secret": "GOCSPX-" + ALNUM[:28],
    "stripe": "sk_live_" + ALNUM[:24],
    "stripe_webhook": "whsec_" + ALNUM[:32],
    "square": "sq0atp-" + ALNUM[:22],
    "npm": "npm_" + ALNUM[:36],
    "npmrc": "//registry.example/:_authToken=" + ALNUM[:30],
    "pypi": "pypi-AgE" + ALNUM[:80],
    "rubygems": "rubygems_" + HEX[:48],
    "docker": "dckr_pat_" + ALNUM[:27],
    "huggingface": "hf_" + LETTERS[:34],
    "sendgrid": "SG." + ALNUM[:22] + "." + ALNUM[:43],
    "mailgun": "key-" + HEX[:32],
    "mailchimp": HEX[:32] + "-us12",
    "twilio": "SK" + HEX[:32],
    "telegram": DIGITS[:9] + ":AA" + ALNUM[:33],
    "discord": "M" + ALNUM[:23] + "." + ALNUM[:6] + "." + ALNUM[:27],
    "discord_webhook": "https://discord.com/api/webhooks/" + DIGITS[:18] + "/" + ALNUM[:68],
    "digitalocean": "dop_v1_" + HEX[:64],
    "shopify": "shpat_" + HEX[:32],
    "databricks": "dapi" + HEX[:32],
    "linear": "lin_api_" + ALNUM[:40],
    "notion": "ntn_" + ALNUM[:46],
    "postman": "PMAK-" + HEX[:24] + "-" + HEX[:34],
    "grafana": "glsa_" + ALNUM[:32] + "_" + HEX[:8],
    "vault": "hvs." + ALNUM[:24],
    "terraform": ALNUM[:14] + ".atlasv1." + ALNUM[:64],
    "pulumi": "pul-" + HEX[:40],
    "sentry": "sntrys_" + ALNUM[:60],
    "newrelic": "NRAK-" + ALNUM[:27].upper(),
    "groq": "gsk_" + ALNUM[:52],
    "xai": "xai-" + ALNUM[:80],
    "perplexity": "pplx-" + ALNUM[:48],
    "openrouter": "sk-or-v1-" + HEX[:64],
    "replicate": "r8_" + ALNUM[:37],
    "supabase": "sbp_" + HEX[:40],
    "planetscale": "pscale_tkn_" + ALNUM[:43],
    "tailscale": "tskey-auth-" + ALNUM[:12] + "-" + ALNUM[:32],
    "cloudflare_origin": "v1.0-" + HEX[:24] + "-" + HEX[:146],
    "artifactory": "AKC" + ALNUM[:70],
    "azure_storage": "AccountKey=" + ALNUM[:86] + "==",
    "azure_sas": "https://a.example/b?sv=1&sig=" + ALNUM[:43] + "%3D",
    "basic_auth": "postgresql://shop:" + "s3cretPass99" + "@db.example/shop",
    "authorization": "Authorization: Bearer " + ALNUM[:30],
    "assignment": "password=" + "Tr0ub4dor3x",
}

LOOK_ALIKES = [
    "AKIA and ASIA are prefixes of keys",
    "sk-learn is a library, and task-force-one-hundred-and-twenty-three is none",
    "ghp_short",
    "sha256:" + HEX[:64],
    "commit " + HEX[:40],
    "0197f0a2-7c1e-7a40-8d52-1f3b5c7d9e0f",
    "postgresql://shop:${PASSWORD}@db.example/shop",
    "https://user@example.org/path",
    "password: ********",
    "the password is kept in the vault",
    "api_key = os.environ['API_KEY']",
    "tests/providers/test_conformance_streams.py",
    "Authorization: Bearer <token>",
    "eyJ.is.short",
]
