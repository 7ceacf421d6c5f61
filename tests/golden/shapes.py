"""The shapes of the golden files, in the flat text form, and the sizes of their batches.

Sizes are odd where they may be, and no value is a default, so that a field that is ignored shows. Each is named after
the published family that it is a small one of; of `full` and those that begin with `odd` there is none. Long because it is a table.
"""

SHAPES = {
    "llama": """
        model.vocab = 61
        model.context = 32
        model.d_model = 48
        model.layers = 2
        model.tied = true
        model.norm = rms
        model.norm.eps = 1e-3
        model.precision = fp32
        attention.heads = 6
        attention.kv_heads = 2
        attention.head_dim = 8
        attention.rope = true
        attention.rope.theta = 777.0
        attention.causal = true
        feed_forward.swiglu = true
        feed_forward.d_ff = 72
    """,
    "gpt2": """
        model.vocab = 67
        model.context = 17
        model.d_model = 40
        model.layers = 2
        model.tied = true
        model.norm = layer
        model.norm.eps = 2e-4
        model.positions = learned
        model.biases = all
        model.precision = fp32
        attention.heads = 5
        attention.head_dim = 8
        attention.causal = true
        feed_forward.gelu_tanh = true
        feed_forward.d_ff = 104
    """,
    "qwen": """
        model.vocab = 59
        model.context = 64
        model.d_model = 40
        model.layers = 2
        model.tied = false
        model.norm = rms
        model.norm.eps = 1e-6
        model.biases = qkv
        model.precision = fp32
        attention.heads = 4
        attention.kv_heads = 2
        attention.head_dim = 24
        attention.rope = true
        attention.rope.theta = 31000.0
        attention.causal = true
        attention.qk_norm = true
        feed_forward.swiglu = true
        feed_forward.d_ff = 56
    """,
    # What those above do not use: exact GELU, a full mask, layer norm with rope and qk_norm.
    "full": """
        model.vocab = 31
        model.context = 16
        model.d_model = 24
        model.layers = 1
        model.tied = false
        model.norm = layer
        model.norm.eps = 1e-2
        model.precision = fp32
        attention.heads = 3
        attention.kv_heads = 1
        attention.head_dim = 16
        attention.rope = true
        attention.rope.theta = 55.0
        attention.full = true
        attention.qk_norm = true
        feed_forward.gelu = true
        feed_forward.d_ff = 40
    """,
    # Bounds and window so small that they bite; the third layer begins the pattern again.
    "gemma2": """
        model.vocab = 29
        model.context = 32
        model.d_model = 16
        model.layers = 3
        model.pattern = [local, global]
        model.tied = true
        model.norm = rms
        model.norm.eps = 3e-3
        model.norm.weight = one_plus_w
        model.norm.placement = both
        model.precision = fp32
        model.embedding_scale = 4.0
        model.softcap = 2.0
        attention.heads = 4
        attention.kv_heads = 2
        attention.head_dim = 6
        attention.rope = true
        attention.rope.theta = 300.0
        attention.local.window = 5
        attention.scale = 0.3779644730092272
        attention.softcap = 1.5
        feed_forward.geglu_tanh = true
        feed_forward.d_ff = 19
    """,
    "gemma3": """
        model.vocab = 27
        model.context = 32
        model.d_model = 16
        model.layers = 3
        model.pattern = [local, local, global]
        model.tied = true
        model.norm = rms
        model.norm.eps = 4e-3
        model.norm.weight = one_plus_w
        model.norm.placement = both
        model.precision = fp32
        model.embedding_scale = 4.0
        attention.heads = 2
        attention.kv_heads = 1
        attention.head_dim = 12
        attention.rope = true
        attention.rope.theta = 40.0
        attention.global.rope.theta = 2000.0
        attention.local.window = 4
        attention.qk_norm = head
        attention.scale = 0.4472135954999579
        feed_forward.geglu_tanh = true
        feed_forward.d_ff = 21
    """,
    "qwen3": """
        model.vocab = 37
        model.context = 64
        model.d_model = 16
        model.layers = 2
        model.tied = true
        model.norm = rms
        model.norm.eps = 2e-3
        model.precision = fp32
        attention.heads = 4
        attention.kv_heads = 2
        attention.head_dim = 12
        attention.rope = true
        attention.rope.theta = 4000.0
        attention.qk_norm = head
        feed_forward.swiglu = true
        feed_forward.d_ff = 21
    """,
    # Waves of 6.3, 11, 20, 35, 63, 112, 199 and 353 tokens: two are kept, two mixed, four slowed.
    "llama3": """
        model.vocab = 31
        model.context = 512
        model.d_model = 16
        model.layers = 2
        model.tied = true
        model.norm = rms
        model.norm.eps = 1e-3
        model.precision = fp32
        attention.heads = 2
        attention.kv_heads = 1
        attention.head_dim = 16
        attention.rope = true
        attention.rope.theta = 100.0
        attention.rope.scaling = llama3
        attention.rope.scaling.factor = 8.0
        attention.rope.scaling.original_context = 64
        attention.rope.scaling.low_freq_factor = 1.25
        attention.rope.scaling.high_freq_factor = 5.0
        feed_forward.swiglu = true
        feed_forward.d_ff = 17
    """,
    # The ramp goes from pair 1 to pair 6 of 8.
    "yarn": """
        model.vocab = 31
        model.context = 160
        model.d_model = 16
        model.layers = 2
        model.tied = false
        model.norm = rms
        model.norm.eps = 1e-3
        model.precision = fp32
        attention.heads = 2
        attention.kv_heads = 1
        attention.head_dim = 16
        attention.rope = true
        attention.rope.theta = 50.0
        attention.rope.scaling = yarn
        attention.rope.scaling.factor = 4.0
        attention.rope.scaling.original_context = 40
        attention.rope.scaling.beta_fast = 3.0
        attention.rope.scaling.beta_slow = 0.5
        attention.rope.scaling.attention_factor = 1.3
        feed_forward.swiglu = true
        feed_forward.d_ff = 17
    """,
    "pythia": """
        model.vocab = 29
        model.context = 32
        model.d_model = 32
        model.layers = 2
        model.tied = false
        model.norm = layer
        model.norm.eps = 2e-3
        model.biases = all
        model.parallel = true
        model.precision = fp32
        attention.heads = 2
        attention.head_dim = 16
        attention.rope = true
        attention.rope.theta = 200.0
        attention.rope.fraction = 0.25
        feed_forward.gelu = true
        feed_forward.d_ff = 22
    """,
    "phi": """
        model.vocab = 29
        model.context = 32
        model.d_model = 16
        model.layers = 2
        model.tied = false
        model.norm = layer
        model.norm.eps = 2e-3
        model.biases = [all, head]
        model.parallel = true
        model.parallel.shared_norm = true
        model.precision = fp32
        attention.heads = 2
        attention.head_dim = 10
        attention.rope = true
        attention.rope.theta = 90.0
        attention.rope.fraction = 0.4
        feed_forward.gelu_tanh = true
        feed_forward.d_ff = 23
    """,
    "nemotron": """
        model.vocab = 33
        model.context = 32
        model.d_model = 16
        model.layers = 2
        model.tied = false
        model.norm = layer
        model.norm.eps = 3e-3
        model.norm.weight = one_plus_w
        model.precision = fp32
        attention.heads = 4
        attention.kv_heads = 2
        attention.head_dim = 8
        attention.rope = true
        attention.rope.theta = 150.0
        attention.rope.fraction = 0.5
        feed_forward.relu2 = true
        feed_forward.d_ff = 27
    """,
    # Norms without weights as published, with an exact GELU as gate, which is not.
    "olmo": """
        model.vocab = 35
        model.context = 32
        model.d_model = 16
        model.layers = 2
        model.tied = true
        model.norm = layer
        model.norm.eps = 1e-5
        model.norm.weight = none
        model.precision = fp32
        attention.heads = 4
        attention.kv_heads = 2
        attention.head_dim = 6
        attention.rope = true
        attention.rope.theta = 500.0
        feed_forward.geglu = true
        feed_forward.d_ff = 13
    """,
    "olmo2": """
        model.vocab = 33
        model.context = 32
        model.d_model = 16
        model.layers = 2
        model.tied = false
        model.norm = rms
        model.norm.eps = 2e-3
        model.norm.placement = post
        model.precision = fp32
        attention.heads = 4
        attention.kv_heads = 2
        attention.head_dim = 6
        attention.rope = true
        attention.rope.theta = 600.0
        attention.qk_norm = whole
        feed_forward.swiglu = true
        feed_forward.d_ff = 21
    """,
    "granite": """
        model.vocab = 33
        model.context = 32
        model.d_model = 16
        model.layers = 2
        model.tied = true
        model.norm = rms
        model.norm.eps = 2e-3
        model.precision = fp32
        model.embedding_scale = 3.5
        model.residual_scale = 0.37
        model.logits_scale = 0.3
        attention.heads = 4
        attention.kv_heads = 2
        attention.head_dim = 4
        attention.rope = true
        attention.rope.theta = 700.0
        attention.scale = 0.21
        feed_forward.swiglu = true
        feed_forward.d_ff = 21
    """,
    "smollm3": """
        model.vocab = 33
        model.context = 32
        model.d_model = 16
        model.layers = 5
        model.pattern = [local, local, local, global]
        model.tied = true
        model.norm = rms
        model.norm.eps = 2e-3
        model.precision = fp32
        attention.heads = 4
        attention.kv_heads = 1
        attention.head_dim = 4
        attention.rope = true
        attention.rope.theta = 800.0
        attention.global.no_rope = true
        feed_forward.swiglu = true
        feed_forward.d_ff = 11
    """,
    "hunyuan": """
        model.vocab = 33
        model.context = 32
        model.d_model = 16
        model.layers = 2
        model.tied = true
        model.norm = rms
        model.norm.eps = 2e-3
        model.precision = fp32
        attention.heads = 4
        attention.kv_heads = 2
        attention.head_dim = 6
        attention.rope = true
        attention.rope.theta = 900.0
        attention.qk_norm = head
        attention.qk_norm.order = after
        feed_forward.swiglu = true
        feed_forward.d_ff = 15
    """,
    # The norm after rope would be the one before it, did the factor of YaRN not lengthen the turned columns.
    "odd": """
        model.vocab = 23
        model.context = 16
        model.d_model = 16
        model.layers = 2
        model.tied = true
        model.norm = rms
        model.norm.eps = 5e-3
        model.norm.weight = none
        model.norm.embedding = true
        model.biases = head
        model.parallel = true
        model.parallel.shared_norm = true
        model.precision = fp32
        model.logits_scale = 0.7
        model.softcap = 3.0
        attention.heads = 3
        attention.kv_heads = 1
        attention.head_dim = 10
        attention.rope = true
        attention.rope.theta = 60.0
        attention.rope.fraction = 0.6
        attention.rope.scaling = yarn
        attention.rope.scaling.factor = 3.0
        attention.rope.scaling.original_context = 16
        attention.rope.scaling.beta_fast = 1.5
        attention.rope.scaling.beta_slow = 0.25
        attention.full = true
        attention.window = 3
        attention.qk_norm = head
        attention.qk_norm.order = after
        feed_forward.geglu = true
        feed_forward.d_ff = 13
    """,
    # Kinds that differ in everything they may, norms after the halves only.
    "odd_post": """
        model.vocab = 21
        model.context = 64
        model.d_model = 16
        model.layers = 3
        model.pattern = [global, local]
        model.tied = false
        model.norm = layer
        model.norm.eps = 6e-3
        model.norm.weight = one_plus_w
        model.norm.placement = post
        model.norm.embedding = true
        model.positions = learned
        model.biases = [qkv, head]
        model.precision = fp32
        model.embedding_scale = 0.6
        model.residual_scale = 1.4
        attention.heads = 3
        attention.kv_heads = 3
        attention.head_dim = 9
        attention.window = 7
        attention.local.window = 4
        attention.local.rope = true
        attention.local.rope.theta = 30.0
        attention.local.rope.fraction = 0.6666666666666666
        attention.global.rope = true
        attention.global.rope.theta = 70.0
        attention.global.rope.fraction = 0.8888888888888888
        attention.qk_norm = whole
        attention.qk_norm.order = after
        feed_forward.relu2 = true
        feed_forward.d_ff = 13
    """,
    # Parallel halves with norms on both sides; no positions but the mask's.
    "odd_both": """
        model.vocab = 19
        model.context = 16
        model.d_model = 16
        model.layers = 2
        model.tied = true
        model.norm = layer
        model.norm.eps = 7e-3
        model.norm.placement = both
        model.biases = [all, head]
        model.parallel = true
        model.precision = fp32
        model.residual_scale = 0.8
        attention.heads = 2
        attention.kv_heads = 1
        attention.head_dim = 7
        attention.scale = 0.55
        attention.softcap = 0.9
        attention.qk_norm = whole
        feed_forward.relu = true
        feed_forward.d_ff = 9
    """,
}

# Sequences and tokens per sequence; those of scaled rope are long enough for the slowed waves to tell.
SIZES = {"llama": (2, 13), "gpt2": (3, 11), "qwen": (2, 13), "full": (2, 7), "llama3": (1, 40), "yarn": (1, 40)}
SIZE = (2, 11)
