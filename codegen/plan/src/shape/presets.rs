//! Named shapes, from a toy that trains in a minute to published models.

use super::{Shape, parse_text};

/// A named shape.
#[derive(Debug)]
pub struct Preset {
    /// What `--preset` takes.
    pub name: &'static str,
    /// One line on it.
    pub about: &'static str,
    /// Its fields in the flat text form.
    pub fields: &'static str,
    /// The number of trained values its makers publish, where they do.
    pub published_parameters: Option<usize>,
}

/// Every preset. Published counts are those of the released weights: GPT-2 small 124,439,808; Qwen2.5-0.5B 494,032,768;
/// Llama-3.2-1B (which `llama-1b` is shaped like) 1,235,814,400; SmolLM2-135M 134,515,008; Qwen3-0.6B 596,049,920 and
/// Qwen3-1.7B 1,720,574,976 (without the second copy of the tied table); Gemma-2-2B 2,614,341,888; Pythia-160M
/// 162,322,944.
pub const ALL: &[Preset] = &[
    Preset {
        name: "tiny",
        about: "byte-level, about 1M parameters; trains on a laptop's CPU in a minute or two",
        fields: "model.vocab = 256\nmodel.context = 256\nmodel.d_model = 128\nmodel.layers = 5\nmodel.tied\n\
                 attention.heads = 4\nattention.kv_heads = 2\nattention.head_dim = 32\nattention.rope\n\
                 feed_forward.swiglu\nfeed_forward.d_ff = 352\n",
        published_parameters: None,
    },
    Preset {
        name: "seed-102m",
        about: "102M parameters, Llama-like with grouped queries",
        fields: "model.vocab = 32000\nmodel.context = 1024\nmodel.d_model = 768\nmodel.layers = 16\n\
                 model.tied\nattention.heads = 12\nattention.kv_heads = 4\nattention.head_dim = 64\n\
                 attention.rope\nfeed_forward.swiglu\nfeed_forward.d_ff = 1408\n",
        published_parameters: None,
    },
    Preset {
        name: "gpt2-124m",
        about: "GPT-2 small: layer norm, learned positions, biases, tanh GELU",
        fields: "model.vocab = 50257\nmodel.context = 1024\nmodel.d_model = 768\nmodel.layers = 12\n\
                 model.tied\nmodel.norm = layer\nmodel.positions = learned\nmodel.biases = all\n\
                 attention.heads = 12\nfeed_forward.gelu_tanh\nfeed_forward.d_ff = 3072\n",
        published_parameters: Some(124_439_808),
    },
    Preset {
        name: "llama-1b",
        about: "the shape of Llama-3.2-1B, with plain rope",
        fields: "model.vocab = 128256\nmodel.context = 8192\nmodel.d_model = 2048\nmodel.layers = 16\n\
                 model.tied\nattention.heads = 32\nattention.kv_heads = 8\nattention.head_dim = 64\n\
                 attention.rope\nattention.rope.theta = 500000.0\nfeed_forward.swiglu\n\
                 feed_forward.d_ff = 8192\n",
        published_parameters: Some(1_235_814_400),
    },
    Preset {
        name: "qwen2.5-0.5b",
        about: "Qwen2.5-0.5B: biases on query, key and value",
        fields: "model.vocab = 151936\nmodel.context = 32768\nmodel.d_model = 896\nmodel.layers = 24\n\
                 model.tied\nmodel.norm.eps = 1e-6\nmodel.biases = qkv\nattention.heads = 14\n\
                 attention.kv_heads = 2\nattention.head_dim = 64\nattention.rope\n\
                 attention.rope.theta = 1000000.0\nfeed_forward.swiglu\nfeed_forward.d_ff = 4864\n",
        published_parameters: Some(494_032_768),
    },
    Preset {
        name: "smollm2-135m",
        about: "SmolLM2-135M: small, deep, grouped queries",
        fields: "model.vocab = 49152\nmodel.context = 8192\nmodel.d_model = 576\nmodel.layers = 30\n\
                 model.tied\nattention.heads = 9\nattention.kv_heads = 3\nattention.rope\n\
                 attention.rope.theta = 100000.0\nfeed_forward.swiglu\nfeed_forward.d_ff = 1536\n",
        published_parameters: Some(134_515_008),
    },
    Preset {
        name: "llama3.2-1b",
        about: "Llama-3.2-1B with its scaled rope",
        fields: "model.vocab = 128256\nmodel.context = 131072\nmodel.d_model = 2048\nmodel.layers = 16\n\
                 model.tied\nattention.heads = 32\nattention.kv_heads = 8\nattention.rope\n\
                 attention.rope.theta = 500000.0\nattention.rope.scaling = llama3\n\
                 attention.rope.scaling.factor = 32.0\n\
                 attention.rope.scaling.original_context = 8192\nfeed_forward.swiglu\n\
                 feed_forward.d_ff = 8192\n",
        published_parameters: Some(1_235_814_400),
    },
    Preset {
        name: "qwen3-0.6b",
        about: "Qwen3-0.6B: norms on queries and keys, heads wider than the stream",
        fields: "model.vocab = 151936\nmodel.context = 40960\nmodel.d_model = 1024\nmodel.layers = 28\n\
                 model.tied\nmodel.norm.eps = 1e-6\nattention.heads = 16\nattention.kv_heads = 8\n\
                 attention.head_dim = 128\nattention.qk_norm\nattention.rope\n\
                 attention.rope.theta = 1000000.0\nfeed_forward.swiglu\nfeed_forward.d_ff = 3072\n",
        published_parameters: Some(596_049_920),
    },
    Preset {
        name: "qwen3-1.7b",
        about: "Qwen3-1.7B: norms on queries and keys",
        fields: "model.vocab = 151936\nmodel.context = 40960\nmodel.d_model = 2048\nmodel.layers = 28\n\
                 model.tied\nmodel.norm.eps = 1e-6\nattention.heads = 16\nattention.kv_heads = 8\n\
                 attention.head_dim = 128\nattention.qk_norm\nattention.rope\n\
                 attention.rope.theta = 1000000.0\nfeed_forward.swiglu\nfeed_forward.d_ff = 6144\n",
        published_parameters: Some(1_720_574_976),
    },
    Preset {
        name: "gemma-2-2b",
        about: "Gemma-2-2B: local and global layers, norms before and after, softcaps, gated GELU",
        fields: "model.vocab = 256000\nmodel.context = 8192\nmodel.d_model = 2304\nmodel.layers = 26\n\
                 model.pattern = [local, global]\nmodel.tied\nmodel.norm.eps = 1e-6\n\
                 model.norm.weight = one_plus_w\nmodel.norm.placement = both\n\
                 model.embedding_scale = 48.0\nmodel.softcap = 30.0\nattention.heads = 8\n\
                 attention.kv_heads = 4\nattention.head_dim = 256\nattention.softcap = 50.0\n\
                 attention.rope\nattention.local.window = 4096\nfeed_forward.geglu_tanh\n\
                 feed_forward.d_ff = 9216\n",
        published_parameters: Some(2_614_341_888),
    },
    Preset {
        name: "pythia-160m",
        about: "Pythia-160M: parallel blocks, a quarter of each head rotates",
        fields: "model.vocab = 50304\nmodel.d_model = 768\nmodel.layers = 12\nmodel.norm = layer\n\
                 model.biases = all\nmodel.parallel\nattention.heads = 12\nattention.rope\n\
                 attention.rope.fraction = 0.25\nfeed_forward.gelu\nfeed_forward.d_ff = 3072\n",
        published_parameters: Some(162_322_944),
    },
];

/// The preset of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Preset> {
    ALL.iter().find(|preset| preset.name == name)
}

impl Preset {
    /// Its shape.
    ///
    /// # Panics
    /// Never: a test parses every preset.
    #[must_use]
    #[allow(clippy::expect_used)]
    pub fn shape(&self) -> Shape {
        parse_text(self.fields).expect("presets are tested")
    }

    /// Its canonical text.
    #[must_use]
    pub fn text(&self) -> String {
        self.shape().text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameter_counts_are_the_published_ones() {
        for preset in ALL {
            if let Some(published) = preset.published_parameters {
                assert_eq!(preset.shape().n_parameters(), published, "{}", preset.name);
            }
        }
        assert_eq!(find("seed-102m").map(|p| p.shape().n_parameters()), Some(SEED));
        let tiny = find("tiny").map_or(0, |preset| preset.shape().n_parameters());
        assert!((800_000..1_200_000).contains(&tiny), "{tiny}");
    }

    /// 32000 x 768 embeddings; per block 768 x 1280 + 768 x 768 + 3 x 768 x 1408 + 2 x 768; one last norm.
    const SEED: usize = 32_000 * 768 + 16 * (768 * 1280 + 768 * 768 + 3 * 768 * 1408 + 2 * 768) + 768;
}
