"""verl without a GPU: a platform, and rollout servers of vLLM's build for the CPU.

Loaded where ``VERL_PLATFORM=cpu``. Nothing else in the plug-in knows of it, so what runs here is
what runs on GPUs.
"""
