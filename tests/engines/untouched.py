"""Options of TRL and verl that touch neither rewards nor advantages, by the class that has them.

A test fails on a name that is in no list: a release with a new option needs an answer.
"""

UNTOUCHED = {
    "trl.GRPOConfig": """
        beta cache_implementation cast_lm_head_to_fp32 chat_template_kwargs disable_dropout
        ds3_gather_for_generation entropy_coef entropy_coef_delta entropy_coef_max
        entropy_coef_min entropy_target generation_batch_size generation_kwargs log_completions
        log_completions_hub_repo log_multimodal log_unique_prompts max_completion_length
        max_tool_calling_iterations min_p model_init_kwargs num_completions_to_print
        num_generations_eval num_iterations pad_to_multiple_of ref_model_mixup_alpha
        ref_model_sync_steps repetition_penalty router_aux_loss_coef shuffle_dataset
        steps_per_generation sync_ref_model temperature top_k top_p
        transformers_continuous_batching_config trust_remote_code use_adaptive_entropy
        use_bias_correction_kl use_transformers_continuous_batching use_transformers_paged
        use_vllm vllm_enable_sleep_mode vllm_gpu_memory_utilization vllm_group_port
        vllm_max_model_length vllm_mode vllm_model_impl vllm_server_base_url vllm_server_host
        vllm_server_port vllm_server_timeout vllm_structured_outputs_regex
        vllm_tensor_parallel_size
    """,
    "trl.experimental.async_grpo.AsyncGRPOConfig": """
        chat_template_kwargs dtype heartbeat_stale_after_s log_completions max_completion_length
        max_inflight_tasks max_tool_calling_iterations min_p model_init_kwargs
        num_completions_to_print queue_maxsize repetition_penalty request_timeout
        router_aux_loss_coef temperature top_k top_p trust_remote_code vllm_server_base_url
        vllm_server_timeout weight_sync_steps weight_sync_timeout
    """,
    "verl.trainer.config.AlgoConfig": """
        filter_groups rollout_correction
    """,
    "verl.trainer.config.FilterGroupsConfig": """
        max_inflight_gen_batches max_num_gen_batches metric
    """,
    "verl.trainer.config.RolloutCorrectionConfig": """
        loss_type rollout_is_batch_normalize rollout_is_threshold rollout_rs_threshold
    """,
    "verl.workers.config.FSDPActorConfig": """
        calculate_entropy calculate_sum_pi_squared checkpoint clip_ratio clip_ratio_c
        clip_ratio_high clip_ratio_low data_loader_seed engine entropy_checkpointing
        entropy_from_logits_chunk_size entropy_from_logits_with_chunking freeze_vision_tower
        fsdp_config global_batch_info grad_clip kl_loss_coef kl_loss_type loss_scale_factor
        model_config optim pad_to_length policy_loss ppo_epochs ppo_infer_max_token_len_per_gpu
        ppo_infer_micro_batch_size_per_gpu ppo_max_token_len_per_gpu ppo_micro_batch_size
        ppo_micro_batch_size_per_gpu ppo_mini_batch_size profiler qat rollout_n strategy tau_neg
        tau_pos ulysses_sequence_parallel_size use_dynamic_bsz use_fused_kernels
        use_prefix_grouper use_remove_padding use_rollout_log_probs use_torch_compile
    """,
    "verl.workers.config.PolicyLossConfig": """
        clip_cov_lb clip_cov_ratio clip_cov_ub dro_beta kl_cov_ratio ppo_kl_coef
        rollout_correction
    """,
    "verl.workers.config.FSDPCriticConfig": """
        checkpoint cliprange_value data_loader_seed engine forward_max_token_len_per_gpu
        forward_micro_batch_size forward_micro_batch_size_per_gpu fsdp grad_clip loss_agg_mode
        loss_scale_factor model optim ppo_epochs ppo_infer_max_token_len_per_gpu
        ppo_infer_micro_batch_size_per_gpu ppo_max_token_len_per_gpu ppo_micro_batch_size
        ppo_micro_batch_size_per_gpu ppo_mini_batch_size profiler rollout_n strategy
        ulysses_sequence_parallel_size use_dynamic_bsz
    """,
    "verl.workers.config.DistillationLossConfig": """
        chunked_topk_chunk_size clip_ratio clip_ratio_high clip_ratio_low global_batch_info
        log_prob_min_clamp loss_max_clamp loss_mode loss_settings policy_loss_mode topk
        use_chunked_topk use_policy_gradient
    """,
    "verl.workers.config.RewardConfig": """
        num_workers sandbox_fusion
    """,
}
