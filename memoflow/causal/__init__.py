"""Causal audit: why was this action permitted?"""
