"""verl: the commands ``main_ppo``, ``one_step_off`` and ``fully_async``, with credit for steps.

The modules here import verl, Ray and torch.
"""
