"""Imported once by the server that test processes are forked from: what takes long to load is loaded here.

Nothing in this module may leave a thread or a connection behind, for the processes would inherit half of it.
"""

from __future__ import annotations

import gc

import cryptography.hazmat.primitives.ciphers.aead
import openai
import psycopg

import memoflow.settings
import tests.crash.worker
import tests.races.racers
from memoflow.providers.measure import estimate_tokens
from memoflow.testing import SimulatedProvider

_ = (cryptography, psycopg, memoflow.settings, tests.crash.worker, tests.races.racers)

# Each builds modules, vocabularies or validators when it is used first.
reply = SimulatedProvider().client().responses.create(model="gpt-5-mini", input="Warm?")
openai.types.responses.Response.construct(**reply.model_dump())
other = openai.AsyncOpenAI(api_key="any").responses.with_streaming_response
estimate_tokens(["warm"], "gpt-5-mini")
# What is here now stays, so that collecting garbage in the processes need not touch, and copy, all of it.
gc.freeze()
