"""Imported once by the server that workers are forked from: what takes long to load is loaded here.

Nothing in this module may leave a thread or a connection behind, for the workers would inherit half of it.
"""

from __future__ import annotations

import gc
import importlib
from contextlib import suppress

import openai

import certification.crash.worker
import memoflow.settings
from memoflow.providers.measure import estimate_tokens
from memoflow.testing import SimulatedProvider

__all__: list[str] = []

_ = (certification.crash.worker, memoflow.settings)

for name in ("cryptography.hazmat.primitives.ciphers.aead", "psycopg", "sqlalchemy.dialects.sqlite"):
    with suppress(ImportError):
        importlib.import_module(name)

# Each builds modules, vocabularies or validators when it is used first.
reply = SimulatedProvider().client().responses.create(model="gpt-5-mini", input="Warm?")
openai.types.responses.Response.construct(**reply.model_dump())
other = openai.AsyncOpenAI(api_key="any").responses.with_streaming_response
estimate_tokens(["warm"], "gpt-5-mini")
# What is here now stays, so that collecting garbage in the workers need not touch, and copy, all of it.
gc.freeze()
