#!/usr/bin/env bash
# verl's own ToolAgentLoop with credit for turns: MODEL=folder examples/verl_rooms/run.sh [overrides]
# The last lines before "$@" are Ascribe's; without them, and with verl.trainer.main_ppo, it is a plain run of verl.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH=$here${PYTHONPATH:+:$PYTHONPATH}
# shellcheck disable=SC2086 (several agent loops may take turns)
python "$here/rooms.py" "${DATA:=data}" ${AGENT:=tool_agent}
exec python -m "ascribe.engines.verl.${COMMAND:-main_ppo}" \
  data.train_files="$DATA/train.parquet" data.val_files="$DATA/train.parquet" \
  data.train_batch_size=4 data.max_prompt_length=128 data.max_response_length=256 \
  actor_rollout_ref.model.path="$MODEL" \
  actor_rollout_ref.actor.ppo_mini_batch_size=4 actor_rollout_ref.actor.use_dynamic_bsz=True \
  actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n=4 \
  actor_rollout_ref.rollout.tensor_model_parallel_size=1 \
  actor_rollout_ref.rollout.multi_turn.enable=True \
  actor_rollout_ref.rollout.multi_turn.function_tool_path="$here/rooms.py" \
  actor_rollout_ref.rollout.multi_turn.max_assistant_turns=4 \
  actor_rollout_ref.rollout.agent.agent_loop_config_path="$here/agent.yaml" \
  reward.custom_reward_function.path="$here/rooms.py" \
  reward.custom_reward_function.name=compute_score \
  trainer.n_gpus_per_node=1 trainer.nnodes=1 'trainer.logger=["console"]' \
  algorithm.adv_estimator=ascribe \
  +ascribe.recipe=gigpo +ascribe.state=tool +ascribe.dump="$PWD/steps" \
  "$@"
