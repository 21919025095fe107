"""Benchmarks: every figure beside what it is compared with, in one run.

A figure is measured by a module of `certification.bench.figures`; nothing here asserts a time.
"""
