"""Others' environments in Ascribe's protocol, one module for each convention."""

ADAPTERS = {
    "gymnasium": "ascribe.envs.adapters.gymnasium:GymnasiumEnvironment",
    "textarena": "ascribe.envs.adapters.textarena:TextArenaEnvironment",
    "openenv": "ascribe.envs.adapters.openenv:OpenEnvEnvironment",
    "agentgym": "ascribe.envs.adapters.agentgym:AgentGymEnvironment",
    "verifiers": "ascribe.envs.adapters.verifiers:VerifiersEnvironment",
}
"""Every adapter by name, and where it is."""

__all__ = ["ADAPTERS"]
