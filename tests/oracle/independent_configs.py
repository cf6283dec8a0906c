"""Random model configurations, as config.json files of ten families hold them, for independent_counts.py."""


def heads(rng, choose):
    kv = rng.choice([1, 2, 3, 4])
    choose["num_key_value_heads"] = kv
    choose["num_attention_heads"] = kv * rng.choice([1, 1, 2, 4])


def common(rng, family):
    return {
        "model_type": family,
        "hidden_size": 8 * rng.randint(2, 40),
        "num_hidden_layers": rng.randint(1, 9),
        "vocab_size": rng.randint(50, 5000),
        "max_position_embeddings": 4096,
        "tie_word_embeddings": rng.random() < 0.5,
        "hidden_act": "silu",
    }


def make_llama(rng):
    c = common(rng, "llama")
    heads(rng, c)
    c["head_dim"] = 2 * rng.randint(1, 40)
    c["intermediate_size"] = rng.randint(1, 900)
    c["attention_bias"] = rng.random() < 0.3
    c["mlp_bias"] = rng.random() < 0.3
    c["rms_norm_eps"] = 1e-5
    return c


def make_mistral(rng):
    c = common(rng, "mistral")
    heads(rng, c)
    c["head_dim"] = 2 * rng.randint(1, 40)
    c["intermediate_size"] = rng.randint(1, 900)
    c["sliding_window"] = rng.choice([None, 1, 2, 3, 7, 16, 50, 4096])
    return c


def make_qwen2(rng):
    c = common(rng, "qwen2")
    heads(rng, c)
    c["hidden_size"] = 2 * c["num_attention_heads"] * rng.randint(1, 20)  # the head size is width / heads
    c["intermediate_size"] = rng.randint(1, 900)
    c["use_sliding_window"] = rng.random() < 0.5
    c["sliding_window"] = rng.choice([1, 5, 11, 100])
    c["max_window_layers"] = rng.randint(0, 9)
    return c


def make_qwen3(rng):
    c = common(rng, "qwen3")
    heads(rng, c)
    c["head_dim"] = 2 * rng.randint(1, 40)
    c["intermediate_size"] = rng.randint(1, 900)
    c["attention_bias"] = False
    c["use_sliding_window"] = False
    return c


def make_gemma2(rng):
    c = common(rng, "gemma2")
    heads(rng, c)
    c["head_dim"] = 2 * rng.randint(1, 40)
    c["intermediate_size"] = rng.randint(1, 900)
    c["sliding_window"] = rng.choice([1, 4, 9, 64])
    return c


def make_gpt2(rng):
    n = rng.randint(1, 8)
    return {
        "model_type": "gpt2",
        "n_embd": 2 * n * rng.randint(1, 20),
        "n_layer": rng.randint(1, 9),
        "n_head": n,
        "n_positions": 4096,
        "vocab_size": rng.randint(50, 5000),
        "n_inner": rng.choice([None, rng.randint(1, 900)]),
        "activation_function": "gelu_new",
    }


def make_mixtral(rng):
    c = common(rng, "mixtral")
    heads(rng, c)
    c["head_dim"] = 2 * rng.randint(1, 40)
    c["intermediate_size"] = rng.randint(1, 500)
    c["num_local_experts"] = rng.randint(2, 12)
    c["num_experts_per_tok"] = rng.randint(1, c["num_local_experts"])
    c["sliding_window"] = None
    return c


def make_qwen3_moe(rng):
    c = common(rng, "qwen3_moe")
    heads(rng, c)
    c["head_dim"] = 2 * rng.randint(1, 40)
    c["intermediate_size"] = rng.randint(1, 900)
    c["moe_intermediate_size"] = rng.randint(1, 300)
    c["num_experts"] = rng.randint(2, 12)
    c["num_experts_per_tok"] = rng.randint(1, c["num_experts"])
    c["decoder_sparse_step"] = rng.randint(1, 3)
    c["mlp_only_layers"] = sorted(l for l in range(c["num_hidden_layers"]) if rng.random() < 0.2)
    c["use_sliding_window"] = False
    c["attention_bias"] = False
    return c


def make_qwen2_moe(rng):
    c = common(rng, "qwen2_moe")
    heads(rng, c)
    c["hidden_size"] = 2 * c["num_attention_heads"] * rng.randint(1, 20)
    c["intermediate_size"] = rng.randint(1, 900)
    c["moe_intermediate_size"] = rng.randint(1, 300)
    c["shared_expert_intermediate_size"] = rng.randint(1, 700)
    c["num_experts"] = rng.randint(2, 12)
    c["num_experts_per_tok"] = rng.randint(1, c["num_experts"])
    c["decoder_sparse_step"] = rng.randint(1, 3)
    c["mlp_only_layers"] = []
    c["use_sliding_window"] = False
    return c


def make_deepseek(rng):
    c = common(rng, rng.choice(["deepseek_v2", "deepseek_v3"]))
    c["num_attention_heads"] = c["num_key_value_heads"] = rng.randint(1, 8)
    c["q_lora_rank"] = rng.choice([None, rng.randint(1, 90)])
    c["kv_lora_rank"] = rng.randint(1, 90)
    c["qk_nope_head_dim"] = rng.randint(1, 40)
    c["qk_rope_head_dim"] = 2 * rng.randint(1, 20)
    c["v_head_dim"] = rng.randint(1, 40)
    c["intermediate_size"] = rng.randint(1, 900)
    c["moe_intermediate_size"] = rng.randint(1, 300)
    c["n_routed_experts"] = rng.randint(2, 12)
    c["num_experts_per_tok"] = rng.randint(1, c["n_routed_experts"])
    c["n_shared_experts"] = rng.choice([None, 1, 2])
    c["first_k_dense_replace"] = rng.randint(0, 3)
    c["moe_layer_freq"] = rng.randint(1, 2)
    return c


FAMILIES = [make_llama, make_mistral, make_qwen2, make_qwen3, make_gemma2, make_gpt2, make_mixtral, make_qwen3_moe, make_qwen2_moe, make_deepseek]
