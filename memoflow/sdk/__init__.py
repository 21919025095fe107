"""What the adapters of the official SDKs share: options, results, streams, and the two ports.

The SDKs of OpenAI and Anthropic are made by one generator, so one port serves both; which SDK it speaks to,
and which API of it, is told by an `Api`. No SDK is imported here.
"""
