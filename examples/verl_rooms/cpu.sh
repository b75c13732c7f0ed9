#!/usr/bin/env bash
# run.sh on a machine without a GPU: examples/verl_rooms/cpu.sh [overrides]
# It makes a tiny model that has learned to call the tool and nothing else, and takes three steps.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$(dirname "$here")")
export VERL_PLATFORM=cpu RAY_USAGE_STATS_ENABLED=0 PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
export MODEL=${MODEL:-$PWD/model}
[ -e "$MODEL" ] || python -m tests.tool_model "$MODEL"
mapfile -t keys < <(python -c "from ascribe_lab.train.verl.arguments import ON_CPU as keys
print(*(f'{name}={value}' for name, value in keys.items()), sep='\n')")
exec "$here/run.sh" "${keys[@]}" \
  data.shuffle=False data.dataloader_num_workers=0 \
  actor_rollout_ref.actor.fsdp_config.model_dtype=fp32 actor_rollout_ref.actor.optim.lr=1e-3 \
  actor_rollout_ref.actor.ppo_max_token_len_per_gpu=4096 \
  actor_rollout_ref.rollout.n=8 actor_rollout_ref.rollout.dtype=float32 \
  actor_rollout_ref.rollout.max_model_len=384 actor_rollout_ref.rollout.max_num_seqs=32 \
  actor_rollout_ref.rollout.max_num_batched_tokens=2048 \
  actor_rollout_ref.rollout.calculate_log_probs=True reward.num_workers=1 \
  trainer.resume_mode=disable trainer.val_before_train=False trainer.test_freq=-1 \
  trainer.save_freq=-1 trainer.total_training_steps=3 \
  "$@"
