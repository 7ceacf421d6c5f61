use kernwright::Transformer;

#[derive(Transformer)]
#[model(vocab = 512, layers = 2)]
#[attention(kv_heads = 2)]
#[feed_forward(d_ff = 176)]
#[target(sm_86)]
struct Brain;

fn main() {}
