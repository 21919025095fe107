"""Live certification: five calls of a provider's real API, and evidence of them that a stranger can check.

``python -m certification live-openai`` and ``live-anthropic`` make the evidence, ``python -m certification
verify FILE`` checks it offline. The evidence is a closed schema of figures, states and digests: there is no
field in it that could hold a prompt, a reply, arguments, a result, a key or an id of the provider's.
"""

from __future__ import annotations
