"""Engines that are vLLM servers, which are asked over HTTP."""
