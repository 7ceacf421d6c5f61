"""Hugging Face's models of the golden shapes, and the comparison with them.

In: a golden model of `make.py` with its gradients. Out: the worst differences in logits, loss and gradients when the
same weights stand in the model that `transformers` (5.x) has for that family, with its eager attention.
"""

import re

import torch
import torch.nn.functional as F
import transformers

ALLOWED = 1e-5

# Their names within a layer: ours, and which rows of ours where several of theirs share it.
INSIDE = {
    "input_layernorm": ("attention_norm", None),
    "pre_feedforward_layernorm": ("feed_forward_norm", None),
    "post_feedforward_layernorm": ("feed_forward_post_norm", None),
    "self_attn.q_proj": ("attention.qkv", "q"),
    "self_attn.k_proj": ("attention.qkv", "k"),
    "self_attn.v_proj": ("attention.qkv", "v"),
    "self_attn.q_norm": ("attention.q_norm", None),
    "self_attn.k_norm": ("attention.k_norm", None),
    "self_attn.query_layernorm": ("attention.q_norm", None),
    "self_attn.key_layernorm": ("attention.k_norm", None),
    "self_attn.o_proj": ("attention.output", None),
    "self_attn.dense": ("attention.output", None),
    "mlp.gate_proj": ("feed_forward.up", "gate"),
    "mlp.up_proj": ("feed_forward.up", "up"),
    "mlp.down_proj": ("feed_forward.down", None),
    "mlp.fc1": ("feed_forward.up", None),
    "mlp.fc2": ("feed_forward.down", None),
    # GPT-2, whose linears are transposed.
    "ln_1": ("attention_norm", None),
    "ln_2": ("feed_forward_norm", None),
    "attn.c_attn": ("attention.qkv", None),
    "attn.c_proj": ("attention.output", None),
    "mlp.c_fc": ("feed_forward.up", None),
    "mlp.c_proj": ("feed_forward.down", None),
    # GPT-NeoX, whose joint projection goes head by head.
    "attention.query_key_value": ("attention.qkv", "by head"),
    "attention.dense": ("attention.output", None),
    "mlp.dense_h_to_4h": ("feed_forward.up", None),
    "mlp.dense_4h_to_h": ("feed_forward.down", None),
}

# Their names outside the layers.
OUTSIDE = {
    "embed_tokens": "embedding",
    "embed_in": "embedding",
    "wte": "embedding",
    "wpe": "positions",
    "norm": "final_norm",
    "final_layernorm": "final_norm",
    "final_layer_norm": "final_norm",
    "ln_f": "final_norm",
    "lm_head": "head",
}

ACTIVATIONS = {
    "swiglu": "silu",
    "geglu": "gelu",
    "geglu_tanh": "gelu_pytorch_tanh",
    "gelu": "gelu",
    "gelu_tanh": "gelu_new",
    "relu": "relu",
    "relu2": "relu2",
}


def gpt2(shape):
    return {
        "n_positions": shape.context, "n_embd": shape.d_model, "n_layer": shape.layers, "n_head": shape.heads,
        "n_inner": shape.d_ff, "activation_function": ACTIVATIONS[shape.activation],
        "layer_norm_epsilon": shape.eps, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
    }  # fmt: skip


def windows(shape):
    window = next(kind.window for kind in shape.kinds if kind.window)
    types = ["sliding_attention" if kind.window else "full_attention" for kind in shape.kinds]
    return {"sliding_window": window, "layer_types": types, "query_pre_attn_scalar": round(shape.scale**-2)}


def gemma2(shape):
    softcaps = {"final_logit_softcapping": shape.softcap, "attn_logit_softcapping": shape.attention_softcap}
    return windows(shape) | softcaps


def gemma3(shape):
    ropes = {("sliding" if kind.window else "full") + "_attention": rope(kind) for kind in shape.kinds}
    return windows(shape) | {"rope_parameters": ropes}


def granite(shape):
    return {
        "embedding_multiplier": shape.embedding_scale, "residual_multiplier": shape.residual_scale,
        "logits_scaling": 1.0 / shape.logits_scale, "attention_multiplier": shape.scale,
    }  # fmt: skip


def smollm3(shape):
    return {"no_rope_layers": [int(kind.rope) for kind in shape.kinds]}


# Of each golden shape that has one, the model and its settings beyond the usual ones.
FAMILIES = {
    "llama": ("Llama", None),
    "gpt2": ("GPT2", gpt2),
    "qwen": ("Qwen3", None),
    "gemma2": ("Gemma2", gemma2),
    "gemma3": ("Gemma3Text", gemma3),
    "qwen3": ("Qwen3", None),
    "llama3": ("Llama", None),
    "yarn": ("Llama", None),
    "pythia": ("GPTNeoX", None),
    "phi": ("Phi", None),
    "nemotron": ("Nemotron", None),
    "olmo": ("Olmo", None),
    "olmo2": ("Olmo2", None),
    "granite": ("Granite", granite),
    "smollm3": ("SmolLM3", smollm3),
    "hunyuan": ("HunYuanDenseV1", None),
}


def rope(kind):
    """Their form of the rope of a kind of layer."""
    names = {"original_context": "original_max_position_embeddings"}
    settings = {names.get(key, key): value for key, value in kind.setting.items()}
    if kind.scaling != "none":
        settings["original_max_position_embeddings"] = int(settings["original_max_position_embeddings"])
    rope_type = "default" if kind.scaling == "none" else kind.scaling
    return settings | {"rope_type": rope_type, "rope_theta": kind.theta, "partial_rotary_factor": kind.fraction}


def build(name, shape):
    """Their model."""
    family, more = FAMILIES[name]
    activation = ACTIVATIONS[shape.activation]
    settings = {
        "vocab_size": shape.vocab, "max_position_embeddings": shape.context, "hidden_size": shape.d_model,
        "num_hidden_layers": shape.layers, "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim, "intermediate_size": shape.d_ff, "tie_word_embeddings": shape.tied,
        "rms_norm_eps": shape.eps, "layer_norm_eps": shape.eps, "norm_eps": shape.eps,
        "hidden_act": activation, "hidden_activation": activation,
        "attention_bias": shape.biases[0] in ("qkv", "all"),
    }  # fmt: skip
    if shape.kinds[0].rope:
        settings["rope_parameters"] = rope(shape.kinds[0])
    if family == "GPT2":
        settings = {"vocab_size": shape.vocab}
    settings |= more(shape) if more else {}
    # A padding token would take no gradient.
    settings |= {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    config = getattr(transformers, f"{family}Config")(**settings, attn_implementation="eager")
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def place(key, shape):
    """Where their parameter is in ours: a name, rows, and whether theirs is transposed."""
    name, part = key.rsplit(".", 1)
    layer = re.search(r"\b(?:layers|h)\.(\d+)\.(.+)", name)
    if layer is None:
        return f"{OUTSIDE[name.split('.')[-1]]}.{part}", slice(None), False
    number, inside = layer.groups()
    if inside == "post_attention_layernorm":
        ours, share = "feed_forward_norm" if shape.placement == "pre" else "attention_post_norm", None
    else:
        ours, share = INSIDE[inside]
    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    rows = {
        None: slice(None),
        "q": slice(0, q),
        "k": slice(q, q + kv),
        "v": slice(q + kv, q + 2 * kv),
        "by head": torch.arange(q + 2 * kv).view(3, -1, shape.head_dim).transpose(0, 1).flatten() if q == kv else None,
        "gate": slice(0, shape.d_ff),
        # The last: all, where there is no gate.
        "up": slice(-shape.d_ff, None),
    }[share]
    return f"layers.{number}.{ours}.{part}", rows, ".c_" in key and part == "weight"


def compare(name, shape, tokens, targets, p, values, loss):
    """Copies our weights into their model; logits, loss and every gradient must agree."""
    model = build(name, shape)
    theirs = dict(model.named_parameters())
    places = {key: place(key, shape) for key in theirs}
    # Qwen3's `attention_bias` gives the output projection a bias too, which ours lacks: it is 0 there.
    unknown = [key for key in theirs if places[key][0] not in p]
    assert all(key.endswith("o_proj.bias") for key in unknown), unknown
    mapped = {places[key][0] for key in theirs if key not in unknown}
    assert mapped == set(p), set(p) - mapped
    with torch.no_grad():
        for key, tensor in theirs.items():
            tensor.zero_()
            if key not in unknown:
                parameter, rows, transposed = places[key]
                value = p[parameter][rows]
                tensor.copy_(value.T if transposed else value)
    found = model(tokens).logits
    found_loss = F.cross_entropy(found.flatten(0, 1), targets.flatten())
    found_loss.backward()
    worst = (0.0, "")
    for key, tensor in theirs.items():
        if key not in unknown:
            parameter, rows, transposed = places[key]
            expected = p[parameter].grad[rows]
            difference = (tensor.grad.T if transposed else tensor.grad) - expected
            worst = max(worst, ((difference.abs().max() / expected.abs().max()).item(), key))
    error = ((found - values).abs().max() / values.abs().max()).item()
    loss_error = abs(found_loss - loss).item()
    print(f"{name}: logits {error:.1e}, loss {loss_error:.1e}, gradients {worst[0]:.1e} ({worst[1]})")
    assert max(error, worst[0], loss_error) < ALLOWED, name
